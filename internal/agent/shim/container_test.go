//go:build unix

package shim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/testkit"
)

// Tests of attempts in containers.

// containerTask is an attempt that runs a shell text in a container, with its own folder at /muster.
func containerTask(t *testing.T, text string) *run.StartSpec {
	t.Helper()
	s := shellTask(t, text)
	host := containertest.SharedEngine(t)
	e, err := docker.Open(host)
	if err != nil {
		t.Fatal(err)
	}
	id, err := e.Create(t.Context(), &docker.ContainerSpec{
		Name: fmt.Sprintf("shim-%d-%d", os.Getpid(), s.Attempt.Task.Num), Image: containertest.LoadBusybox(t, host),
		Entrypoint: []string{}, Command: []string{"sh", "-c", text}, LogSize: "32m", LogFiles: 2, Network: "none", CapAdd: []string{"KILL"},
		Mounts: []docker.Mount{{Source: s.Dir, Target: "/muster"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Remove(context.WithoutCancel(t.Context()), id); err != nil {
			t.Error(err)
		}
		_ = e.Close()
	})
	s.Path, s.Env = "", nil
	s.Container = &run.Container{Engine: host, ID: id, Image: "busybox@sha256:0"}
	return s
}

func TestContainerIsSupervisedLikeAProcess(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		t.Helper()
		dir := t.TempDir()
		c := openClient(t, dir, m)
		why := &run.Stopped{Outcome: muster.AttemptCancelled, Reason: muster.CancelledByUser, Message: "by ada"}

		t.Run("its output", func(t *testing.T) {
			s := containerTask(t, `echo '{"step":"one"}' >> /muster/events; echo '::muster progress=0.5 loss=2'; echo out; echo err >&2; exit 4`)
			p, k := startTask(t, c, s)
			if x := waitTask(t, p); x.Code != 4 || x.Stopped != nil || x.Wall <= 0 {
				t.Errorf("%+v", x)
			}
			progress, _ := k.last()
			if progress.Progress == nil || *progress.Progress != 0.5 || progress.Step == nil || *progress.Step != "one" || progress.Metrics["loss"] != 2 {
				t.Errorf("%+v", progress)
			}
			if out, errs := printed(t, dir, s.Attempt, tasklog.Stdout), printed(t, dir, s.Attempt, tasklog.Stderr); out != "out\n" || errs != "err\n" {
				t.Errorf("%q, %q", out, errs)
			}
		})
		t.Run("a stop", func(t *testing.T) {
			s := containerTask(t, "trap 'echo usr1; exit 5' USR1; echo ready; while :; do sleep 0.02; done")
			s.Kill.Signal = "SIGUSR1"
			p, _ := startTask(t, c, s)
			waitReady(t, dir, s)
			p.Stop(why, muster.Kill{})
			if x := waitTask(t, p); x.Code != 5 || x.Stopped == nil || *x.Stopped != *why {
				t.Errorf("%+v", x)
			}
		})
		t.Run("a grace", func(t *testing.T) {
			s := containerTask(t, "trap 'echo hup' HUP; trap '' TERM; echo ready; while :; do sleep 0.02; done")
			s.Kill.Grace = muster.Duration(time.Hour)
			p, _ := startTask(t, c, s)
			waitReady(t, dir, s)
			p.Stop(why, muster.Kill{Signal: "SIGHUP"})
			testkit.Await(t, "its signal", func() bool { return printed(t, dir, s.Attempt, tasklog.Stdout) == "ready\nhup\n" })
			p.Stop(why, muster.Kill{Grace: muster.Duration(time.Millisecond)})
			if x := waitTask(t, p); x.Signal != "SIGKILL" || x.Stopped == nil || x.Survivors != 0 {
				t.Errorf("%+v", x)
			}
		})
		t.Run("a timeout", func(t *testing.T) {
			s := containerTask(t, "trap 'exit 143' TERM; while :; do sleep 0.02; done")
			s.Kill.Grace = muster.Duration(time.Second) // a signal before the trap is ignored
			s.Timeout = 50 * time.Millisecond
			p, _ := startTask(t, c, s)
			if x := waitTask(t, p); x.Stopped == nil || x.Stopped.Reason != muster.Timeout || x.Signal == "" {
				t.Errorf("%+v", x)
			}
		})
		t.Run("a lease", func(t *testing.T) {
			s := containerTask(t, "trap 'exit 143' TERM; while :; do sleep 0.02; done")
			s.Kill.Grace = muster.Duration(time.Second) // a signal before the trap is ignored
			s.Lease = time.Millisecond
			p, _ := startTask(t, c, s)
			if x := waitTask(t, p); x.Stopped == nil || x.Stopped.Reason != muster.WorkerLost {
				t.Errorf("%+v", x)
			}
		})
		t.Run("a freeze", func(t *testing.T) {
			s := containerTask(t, "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.02; done")
			p, _ := startTask(t, c, s)
			waitReady(t, dir, s)
			if err := c.Freeze(s.Attempt, true); err != nil {
				t.Fatal(err)
			}
			p.Stop(why, muster.Kill{})
			if x := waitTask(t, p); x.Code != 0 || printed(t, dir, s.Attempt, tasklog.Stdout) != "ready\nsaved\n" {
				t.Errorf("%+v", x)
			}
		})
		t.Run("a log that is cut", func(t *testing.T) {
			s := containerTask(t, "while echo a line of output; do :; done")
			s.LogCap = 10 << 10
			p, _ := startTask(t, c, s)
			testkit.Await(t, "the gap in the log", func() bool {
				return strings.Contains(printed(t, dir, s.Attempt, tasklog.Gap), "is left out")
			})
			p.Stop(why, muster.Kill{Grace: muster.Duration(time.Millisecond)})
			waitTask(t, p)
		})
		t.Run("no start", func(t *testing.T) {
			s := containerTask(t, "")
			s.Container.ID = "nosuchcontainer"
			_, err := c.Start(t.Context(), s, newFakeReporter())
			if f, ok := err.(*run.TaskError); !ok || f.Reason != muster.EngineFailed { //nolint:errorlint // the contract
				t.Errorf("%v", err)
			}
		})
	})
}

func TestContainerIsRecoveredAfterARestart(t *testing.T) {
	needShims(t)
	dir := t.TempDir()
	s := containerTask(t, "i=0; while [ ! -e /muster/go ]; do i=$((i+1)); echo line $i; sleep 0.01; done; exit 6")
	w := startWorker(t, dir)
	w.do(workerCommand{Start: s})
	w.kill()
	c := openDetached(t, dir)
	h := recoveredAttempt(t, c)
	if h.Start.Container == nil || h.Start.Container.ID != s.Container.ID {
		t.Errorf("recovered %+v", h.Start.Container)
	}
	p, k := adopt(t, c, h)
	_, before := k.last()
	testkit.Await(t, "its log to grow", func() bool { _, now := k.last(); return now > before })
	if err := os.WriteFile(filepath.Join(s.Dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if x := waitTask(t, p); x.Code != 6 || x.Stopped != nil {
		t.Errorf("%+v", x)
	}
	lines := strings.Split(strings.TrimSuffix(printed(t, dir, s.Attempt, tasklog.Stdout), "\n"), "\n")
	for i, line := range lines {
		if line != fmt.Sprintf("line %d", i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}
}

func TestContainerFailsWithItsShim(t *testing.T) {
	dir := t.TempDir()
	c := openDetached(t, dir)
	s := containerTask(t, "echo ready; while :; do sleep 0.02; done")
	p, _ := startTask(t, c, s)
	waitReady(t, dir, s)
	homes, err := listStateDirs(dir)
	if err != nil || len(homes) != 1 {
		t.Fatal(homes, err)
	}
	if err := syscall.Kill(homes[0].pid().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// The worker removes the container then.
	if x := waitTask(t, p); x.Stopped == nil || x.Stopped.Reason != muster.WorkerInternal {
		t.Errorf("%+v", x)
	}
}
