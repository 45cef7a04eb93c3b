package proctree

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/procfs"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/testkit"
)

// testTimeout is how long a test waits for something that must happen.
const testTimeout = 60 * time.Second

// fork starts a shell as a shim starts a task, and does not wait for it.
func fork(t *testing.T, k *Tracker, envTag, shell string) (*exec.Cmd, run.Pid) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", shell)
	cmd.Env = []string{envTag, "PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p, err := k.Start(envTag, func() (int, error) {
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		return cmd.Process.Pid, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return cmd, p
}

// ends reports whether the command ends within testTimeout.
func ends(cmd *exec.Cmd) bool {
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	select {
	case <-done:
		return true
	case <-time.After(testTimeout):
		return false
	}
}

// Two workers in one process, as in tests, share its children: neither reaps a task of the other, which would lose its exit code.
func TestTwoTrackersDoNotReapEachOthersTasks(t *testing.T) {
	one, two := New(slog.New(slog.DiscardHandler)), New(slog.New(slog.DiscardHandler))
	for range 50 {
		var child *Child
		p, err := one.Start("MUSTER_OUT="+t.TempDir(), func() (int, error) {
			cmd := exec.Command("/bin/sh", "-c", "exit 7")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if err := cmd.Start(); err != nil {
				return 0, err
			}
			child = &Child{PID: cmd.Process.Pid, Handle: -1}
			return child.PID, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		child.waitExit()
		two.Sweep()
		two.Sweep()
		if x := child.Wait(); x.Code != 7 {
			t.Fatalf("%+v", x)
		}
		one.Cleanup(p, testTimeout)
	}
}

func TestKillOrphanOfAnEarlierProcess(t *testing.T) {
	k := New(slog.New(slog.DiscardHandler))
	for _, started := range []bool{true, false} {
		cmd, p := fork(t, k, "MUSTER_OUT="+t.TempDir(), "trap '' TERM HUP; setsid sleep 1000 & while :; do sleep 1000; done")
		if p.StartTicks == 0 || p.BootID == "" {
			t.Fatalf("%+v", p)
		}
		record := p
		if !started { // the shim was killed before it recorded the PID
			record = run.Pid{BootID: p.BootID, EnvTag: p.EnvTag}
			for deadline := time.Now().Add(testTimeout); !hasEnvTag(p.PID, p.EnvTag); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the program does not run")
				}
			}
		}
		if err := KillOrphans(record); err != nil {
			t.Error(err)
		}
		if !ends(cmd) {
			t.Error("the task survives")
		}
		if left := k.Cleanup(p, testTimeout); left != 0 {
			t.Errorf("%d processes survive", left)
		}
	}
}

func TestKillOrphanSparesAReusedPID(t *testing.T) {
	k := New(slog.New(slog.DiscardHandler))
	cmd, p := fork(t, k, "MUSTER_OUT="+t.TempDir(), "exec sleep 1000")
	other := p
	other.StartTicks++
	other.EnvTag = "MUSTER_OUT=" + t.TempDir()
	unknown := other
	unknown.StartTicks = 0
	elsewhere := p
	elsewhere.BootID = "another boot of the machine"
	for _, o := range []run.Pid{other, unknown, elsewhere, {}, {BootID: p.BootID}} {
		if err := KillOrphans(o); err != nil {
			t.Error(err)
		}
	}
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("another process with the PID was killed: %v", err)
	}
	if st, ok := procfs.ReadStat(p.PID); !ok || st.State == 'Z' {
		t.Errorf("another process with the PID was killed: %c", st.State)
	}
	k.Kill(p)
	if !ends(cmd) {
		t.Error("the task survives")
	}
	k.Cleanup(p, testTimeout)
}

// A few readings of all processes end the leftover processes of many attempts.
func TestKillOrphans(t *testing.T) {
	k := New(slog.New(slog.DiscardHandler))
	dir := t.TempDir()
	record, err := CreatePIDFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer record.Close()
	const tasks = 100
	var cmds []*exec.Cmd
	for i := range tasks {
		cmd, p := fork(t, k, "MUSTER_OUT="+t.TempDir(), "trap '' TERM; sleep 1000")
		cmds = append(cmds, cmd)
		if i%2 == 0 { // the shim was killed before it recorded the PID
			p = run.Pid{BootID: p.BootID, EnvTag: p.EnvTag}
		}
		if err := record.Put(muster.AttemptID{Task: muster.TaskID{Job: 1, Num: i}, N: 1}, p); err != nil {
			t.Fatal(err)
		}
	}
	bystander, p := fork(t, k, "MUSTER_OUT="+t.TempDir(), "exec sleep 1000")
	KillRecordedOrphans(dir, slog.New(slog.DiscardHandler))
	for i, cmd := range cmds {
		if !ends(cmd) {
			t.Fatalf("task %d survives", i)
		}
	}
	if st, ok := procfs.ReadStat(p.PID); !ok || st.State == 'Z' {
		t.Errorf("another process was killed: %c", st.State)
	}
	k.Kill(p)
	if !ends(bystander) {
		t.Error("the task survives")
	}
}

// TestEnvTagWithinExec checks a process that only executes itself: it always has its tag.
func TestEnvTagWithinExec(t *testing.T) {
	envTag := "MUSTER_OUT=" + t.TempDir()
	script := filepath.Join(t.TempDir(), "again")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexec \"$0\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	k := New(slog.New(slog.DiscardHandler))
	cmd, p := fork(t, k, envTag, "exec "+script)
	for deadline := time.Now().Add(testTimeout); !hasEnvTag(p.PID, envTag); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the program does not run")
		}
	}
	for i := range 5000 {
		if !hasEnvTag(p.PID, envTag) {
			t.Fatalf("no tag at check %d", i)
		}
	}
	if err := KillOrphans(p); err != nil || !ends(cmd) {
		t.Errorf("the process still runs: %v", err)
	}
}

// TestKillEndsDescendantsInOtherSessions checks that Kill ends a descendant without a tag, in a session of its own, although its parent ends
// at the signal and another attempt runs that it could belong to.
func TestKillEndsDescendantsInOtherSessions(t *testing.T) {
	k := New(slog.New(slog.DiscardHandler))
	other, running := fork(t, k, "MUSTER_OUT="+t.TempDir(), "exec sleep 1000")
	file := filepath.Join(t.TempDir(), "pid")
	cmd, p := fork(t, k, "MUSTER_OUT="+t.TempDir(), "env -i /bin/sh -c 'exec setsid /bin/sh -c \"echo \\$\\$ >"+file+"; exec sleep 1000\"' & wait")
	pid := 0
	testkit.Await(t, "the descendant runs", func() bool {
		b, _ := os.ReadFile(file)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return pid > 0
	})
	k.Kill(p)
	if !ends(cmd) {
		t.Fatal("the task still runs")
	}
	testkit.Await(t, "the descendant ends", func() bool {
		st, ok := procfs.ReadStat(pid)
		return !ok || st.State == 'Z'
	})
	k.Cleanup(p, testTimeout)
	k.Kill(running)
	if !ends(other) || k.Cleanup(running, testTimeout) != 0 {
		t.Error("the other task survives")
	}
}
