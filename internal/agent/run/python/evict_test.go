//go:build unix

package python

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/agent/run"
)

// TestUnusedEnvironmentsAreRemoved checks that environments that were not used for too long are removed, and the remains of killed builds,
// but nothing that is being built, or that a task uses whose command line does not name it.
func TestUnusedEnvironmentsAreRemoved(t *testing.T) {
	e := New(&run.Deps{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	put := func(name, file string, age time.Duration) {
		t.Helper()
		path := filepath.Join(e.Path(name), file)
		then := time.Now().Add(-age)
		if err := errors.Join(os.MkdirAll(e.Path(name), 0o700), os.WriteFile(path, []byte("{}"), 0o600), os.Chtimes(path, then, then), os.Chtimes(e.Path(name), then, then)); err != nil {
			t.Fatal(err)
		}
	}
	day := 24 * time.Hour
	put("old", markerFile, 31*day)
	put("used", markerFile, 29*day)
	put("damaged", "x", 31*day)
	put("active", markerFile, 31*day)
	task := exec.Command("sleep", "600")
	task.Env = append(os.Environ(), "VIRTUAL_ENV="+e.Path("active"), "PATH="+e.Path("active")+"/bin:"+os.Getenv("PATH"))
	if err := task.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = task.Process.Kill(), task.Wait() })
	put("new", "x", time.Hour)
	put(tempPrefix+"killed-1", "x", time.Hour)
	put(tempPrefix+"building-2", "x", time.Hour)
	put(tempPrefix+"held-3", "x", time.Hour)
	building, err := e.tryLock("building", true)
	if err != nil {
		t.Fatal(err)
	}
	held, err := e.tryLock("held", true)
	if err != nil {
		t.Fatal(err)
	}
	e.sweep("held")
	e.prune(t.Context())
	held.release()
	building.release()
	if got, want := names(t, e.Path("")), []string{tempPrefix + "building-2", "active", "new", "used"}; !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
	if got, want := names(t, filepath.Dir(e.lockPath("x"))), []string{"building", "held"}; !slices.Equal(got, want) {
		t.Errorf("the locks %q are left, want %q", got, want)
	}
}

// TestRemovedLocks checks that a process that waited for a lock that was removed does not acquire it beside another process.
func TestRemovedLocks(t *testing.T) {
	e := New(&run.Deps{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	first, err := e.tryLock("x", true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.tryLock("x", false); !errors.Is(err, errBusy) {
		t.Errorf("a held lock is acquired: %v", err)
	}
	waiting, err := os.Open(e.lockPath("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	first.remove()
	second, err := e.tryLock("x", true)
	if err != nil {
		t.Fatal(err)
	}
	defer second.release()
	if isFileAt(waiting, e.lockPath("x")) {
		t.Error("the removed lock passes for the new one")
	}
	steps := ""
	observer := second.publishSteps("runtime x", run.Observer{Step: func(s string) { steps += s }, Requester: "task 1.0"})
	observer.Step("runtime x: a longer step")
	observer.Step("runtime x: a step")
	if step, building := e.Building("x"); !building || step != "made for task 1.0: a step" || !strings.HasSuffix(steps, "runtime x: a step") {
		t.Errorf("%t, %q, %q", building, step, steps)
	}
}

func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, entry := range entries {
		list = append(list, entry.Name())
	}
	return list
}
