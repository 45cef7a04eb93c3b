package proctree

import (
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/procfs"
)

// started starts a program as a child that this package reaps.
func started(t *testing.T, argv ...string) *Child {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &Child{PID: cmd.Process.Pid, Handle: -1}
}

// A signal to a task whose main process was reaped does not reach another process with a reused PID.
func TestReapedProcessGetsNoSignals(t *testing.T) {
	task, another := started(t, "/bin/true"), started(t, "/bin/sleep", "1000")
	if x := task.Wait(); x.Code != 0 {
		t.Fatalf("%+v", x)
	}
	task.PID = another.PID // as if the kernel had reused the PID
	task.Kill()
	task.Signal("SIGKILL")
	task.IfUnreaped(func() { t.Error("the process counts as not reaped") })
	if st, ok := procfs.ReadStat(another.PID); !ok || st.State == 'Z' {
		t.Errorf("another process was killed: %c", st.State)
	}
	another.Signal("SIGINT")
	if x := another.Wait(); x.Signal != "SIGINT" || x.Code != 128+int(syscall.SIGINT) {
		t.Errorf("%+v", x)
	}
}

// Each signal that a spec may name is sent as itself, and not as SIGTERM.
func TestTaskSignalsAreKnown(t *testing.T) {
	for _, name := range muster.TaskSignals {
		if unix.SignalNum(name) == 0 {
			t.Errorf("%s is unknown", name)
		}
	}
}

// A signal to a recorded process does not reach another process with a reused PID.
func TestReusedPIDGetsNoSignals(t *testing.T) {
	another := started(t, "/bin/sleep", "1000")
	st, ok := procfs.ReadStat(another.PID)
	if !ok {
		t.Fatal("it has ended")
	}
	before := st
	before.Start--
	signalTo(before, syscall.SIGKILL)
	signalTo(st, syscall.SIGTERM)
	if x := another.Wait(); x.Signal != "SIGTERM" {
		t.Errorf("%+v", x)
	}
}
