package run_test

import (
	"log/slog"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/agent/run"
)

// start starts a shell as a worker starts a task, and does not wait for it.
func start(t *testing.T, k *run.Kin, mark, shell string) (*exec.Cmd, run.Pid) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", shell)
	cmd.Env = []string{mark, "PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p, err := k.Start(mark, func() (int, error) {
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

// ends reports whether the command is over within the patience of a test.
func ends(cmd *exec.Cmd) bool {
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	select {
	case <-done:
		return true
	case <-time.After(20 * time.Second):
		return false
	}
}

func TestKillLeftoverEndsWhatAnEarlierLifeLeft(t *testing.T) {
	k := (&run.Env{Log: slog.New(slog.DiscardHandler)}).Kin()
	cmd, p := start(t, k, "MUSTER_OUT="+t.TempDir(), "trap '' TERM HUP; setsid sleep 1000 & while :; do sleep 1000; done")
	if p.StartTicks == 0 || p.BootID == "" {
		t.Fatalf("%+v", p)
	}
	if err := run.KillLeftover(p); err != nil {
		t.Error(err)
	}
	if !ends(cmd) {
		t.Error("it survives")
	}
	if left := k.Ended(p, time.Second); left != 0 {
		t.Errorf("%d processes survive", left)
	}
}

func TestKillLeftoverSparesARecycledNumber(t *testing.T) {
	k := (&run.Env{Log: slog.New(slog.DiscardHandler)}).Kin()
	cmd, p := start(t, k, "MUSTER_OUT="+t.TempDir(), "exec sleep 1000")
	other := p
	other.StartTicks++
	other.Mark = "MUSTER_OUT=" + t.TempDir()
	elsewhere := p
	elsewhere.BootID = "another life of the machine"
	for _, o := range []run.Pid{other, elsewhere, {}} {
		if err := run.KillLeftover(o); err != nil {
			t.Error(err)
		}
	}
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("another process with the number was killed: %v", err)
	}
	k.Kill(p)
	if !ends(cmd) {
		t.Error("it survives")
	}
	k.Ended(p, time.Second)
}
