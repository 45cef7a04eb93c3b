package shim

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/testkit"
)

// A shim whose directory is deleted ends its tasks once no worker is connected, since the next one would not find it, and then exits.
func TestShimWithoutItsStateDirExits(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(h *stateDir) error{
		"the folder":   func(h *stateDir) error { return os.RemoveAll(h.path) },
		"the socket":   func(h *stateDir) error { return os.Remove(filepath.Join(h.path, sockFile)) },
		"the data dir": func(h *stateDir) error { return os.RemoveAll(h.data) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			w := startWorker(t, dir)
			stays, ended := shellTask(t, "trap '' TERM; setsid sleep 1000 & sleep 1000"), shellTask(t, "exit 0")
			w.do(workerCommand{Start: stays})
			w.do(workerCommand{Start: ended})
			h := stateDirOf(t, dir)
			pid := h.pid()
			w.kill()
			if err := remove(h); err != nil {
				t.Fatal(err)
			}
			testkit.Await(t, "the end of its task", func() bool { return len(taggedPIDs(stays.EnvTag)) == 0 })
			testkit.Await(t, "the end of the shim", func() bool { return !isRunning(pid) })
		})
	}
}

// While a worker is connected the tasks continue, and new ones start in another shim.
func TestShimWithoutItsStateDirServesItsWorker(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := openDetached(t, dir)
	s := shellTask(t, "while [ ! -e go ]; do sleep 0.02; done; echo done; exit 4")
	p, _ := startTask(t, c, s)
	h := stateDirOf(t, dir)
	pid := h.pid()
	if err := os.RemoveAll(h.path); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "a new task in another shim", func() bool {
		other := shellTask(t, "exit 5")
		q, _ := startTask(t, c, other)
		if x := waitTask(t, q); x.Code != 5 {
			t.Fatalf("%+v", x)
		}
		c.Forget(other.Attempt)
		homes, err := listStateDirs(dir)
		return err == nil && len(homes) == 1 && homes[0].pid().PID > 0 && homes[0].pid() != pid
	})
	if !isRunning(pid) {
		t.Fatal("the shim ended with a task and a worker")
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if x := waitTask(t, p); x.Code != 4 || x.Stopped != nil {
		t.Errorf("%+v", x)
	}
	if got := printed(t, dir, s.Attempt, tasklog.Stdout); got != "done\n" {
		t.Errorf("the output is %q", got)
	}
	c.Forget(s.Attempt)
	testkit.Await(t, "the shim to exit after its last task", func() bool { return !isRunning(pid) })
}

// A moved directory does not count as deleted.
func TestMovedStateDirIsFound(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	dir, moved := filepath.Join(top, "data"), filepath.Join(top, "moved")
	w := startWorker(t, dir)
	s := shellTask(t, "while [ ! -e go ]; do sleep 0.02; done; exit 6")
	w.do(workerCommand{Start: s})
	pid := stateDirOf(t, dir).pid()
	w.kill()
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	c := openDetached(t, moved)
	p, _ := adopt(t, c, recoveredAttempt(t, c))
	if err := os.WriteFile(filepath.Join(s.Dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if x := waitTask(t, p); x.Code != 6 || !isRunning(pid) {
		t.Errorf("%+v", x)
	}
}

// A worker on a copy of a data dir does not start, and the shim of the original and its tasks continue.
func TestCopiedStateDirTouchesNothing(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	dir, copied := filepath.Join(top, "data"), filepath.Join(top, "copy")
	c := openDetached(t, dir)
	s := shellTask(t, "while [ ! -e go ]; do sleep 0.02; done; exit 7")
	p, _ := startTask(t, c, s)
	if out, err := exec.Command("cp", "-a", dir, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	h := stateDirOf(t, copied)
	if looked, err := Inspect(copied); err != nil || len(looked) != 1 || !looked[0].Stale || looked[0].PID != 0 {
		t.Errorf("Inspect returns %+v: %v", looked, err)
	}
	_, err := Open(t.Context(), Config{Dir: copied, Command: shimCommand(), Build: "test", Log: c.cfg.Log})
	if muster.CodeOf(err) != muster.Conflict || !strings.Contains(err.Error(), "is a copy of one that is in use") {
		t.Errorf("a worker on the copy starts: %v", err)
	}
	h.killAndRemove(run.Pid{}, c.cfg.Log)
	if err := os.WriteFile(filepath.Join(s.Dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if x := waitTask(t, p); x.Code != 7 || x.Stopped != nil {
		t.Errorf("the task ended with %+v", x)
	}
	if err := os.RemoveAll(filepath.Join(copied, "shim")); err != nil {
		t.Fatal(err)
	}
	q, _ := startTask(t, openDetached(t, copied), shellTask(t, "exit 8"))
	if x := waitTask(t, q); x.Code != 8 {
		t.Errorf("%+v", x)
	}
}

// A data dir that was moved to another disk is a copy whose original was removed: its worker starts when the shim of the original has exited.
func TestCopyWithoutItsOriginalStarts(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	dir, copied := filepath.Join(top, "data"), filepath.Join(top, "copy")
	w := startWorker(t, dir)
	s := shellTask(t, "sleep 1000")
	w.do(workerCommand{Start: s})
	w.kill()
	if out, err := exec.Command("cp", "-a", dir, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the end of its task", func() bool { return len(taggedPIDs(s.EnvTag)) == 0 })
	c := openDetached(t, copied)
	if n := len(c.Recovered()); n != 0 {
		t.Errorf("%d attempts, want others", n)
	}
	q, _ := startTask(t, c, shellTask(t, "exit 9"))
	if x := waitTask(t, q); x.Code != 9 {
		t.Errorf("%+v", x)
	}
}
