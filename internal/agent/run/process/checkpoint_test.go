package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

func TestCheckpointFolderOfATask(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("symbolic links require privileges on this system")
	}
	for _, test := range []struct {
		name     string
		path     string
		existing string // a file in the task's folder
		folder   string // an empty folder there
		want     string // part of the error, "" for none
	}{
		{name: "it is made", path: "ckpt"},
		{name: "with a slash", path: "ckpt/"},
		{name: "in folders that are made", path: "a/b/ckpt"},
		{name: "in place of an empty one", path: "ckpt", folder: "ckpt"},
		{name: "not in place of one with files", path: "ckpt", existing: "ckpt/old.pt", want: "already exists among the task's files"},
		{name: "not below a file", path: "ckpt/x", existing: "ckpt", want: "create the parent of checkpoint folder"},
		{name: "not outside", path: "../ckpt", want: "outside the task's folder"},
		{name: "not as the task's folder", path: "./", want: "outside the task's folder"},
	} {
		t.Run(test.name, func(t *testing.T) {
			spec := &muster.TaskSpec{Checkpoint: &muster.Checkpoint{Path: test.path}}
			a := &Attempt{Task: &run.Task{Spec: spec}, executor: &Executor{deps: &Deps{}}, Dir: t.TempDir(), checkpoint: t.TempDir()}
			if test.folder != "" && os.MkdirAll(filepath.Join(a.Dir, test.folder), 0o700) != nil {
				t.Fatal("the folder cannot be made")
			}
			if test.existing != "" {
				path := filepath.Join(a.Dir, filepath.FromSlash(test.existing))
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			err := a.linkCheckpoint(t.Context())
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("%v, want %q", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(a.Dir, test.path, "n"), []byte("1"), 0o600); err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(filepath.Join(a.checkpoint, "n")); err != nil || string(b) != "1" {
				t.Fatalf("what is written there is not in the checkpoint: %v", err)
			}
		})
	}
}

func TestLastSave(t *testing.T) {
	stopped := func(outcome muster.Outcome, reason muster.Reason) *run.Exit {
		return &run.Exit{Code: 143, Stopped: &run.Stopped{Outcome: outcome, Reason: reason}}
	}
	for _, test := range []struct {
		name string
		exit *run.Exit
		want time.Duration
	}{
		{"it keeps running", nil, 0},
		{"it succeeded", &run.Exit{}, 0},
		{"it failed", &run.Exit{Code: 1}, saveTimeout},
		{"it was preempted", stopped(muster.AttemptFailed, muster.Preempted), saveTimeout},
		{"it was preempted and succeeded", &run.Exit{Stopped: &run.Stopped{Outcome: muster.AttemptFailed, Reason: muster.Preempted}}, saveTimeout},
		{"it timed out", stopped(muster.AttemptTimedOut, muster.Timeout), saveTimeout},
		{"the worker shuts down", stopped(muster.AttemptLost, muster.WorkerShutdown), saveTimeoutShutdown},
		{"it was cancelled", stopped(muster.AttemptCancelled, muster.CancelledByUser), saveTimeoutCancelled},
		{"the server gave it up", stopped(muster.AttemptLost, muster.WorkerLost), 0},
	} {
		a := &Attempt{exit: test.exit}
		if got := a.lastSaveTimeout(); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// fakeStore is checkpoints that remember what they were asked.
type fakeStore struct{ forgotten []string }

func (k *fakeStore) Load(context.Context, *run.Task, string) error { return nil }
func (k *fakeStore) Watch(*run.Task, string, func(string), func()) func(last time.Duration) {
	return func(time.Duration) {}
}
func (k *fakeStore) Forget(dir string) { k.forgotten = append(k.forgotten, filepath.Base(dir)) }

// The store forgets a folder when it is removed, by any process.
func TestOldCheckpointsAreRemoved(t *testing.T) {
	k := &fakeStore{}
	dir := t.TempDir()
	c := checkpointDirs{dir: dir, pool: folderPool{dir: t.TempDir(), name: "spare"}, store: k}
	id := checkpointName(&run.Task{Job: "jx", Attempt: muster.AttemptID{Task: muster.TaskID{Job: 1, Num: 1}}})
	use := func(file bool) {
		t.Helper()
		path, err := c.acquire(id, false)
		if err != nil {
			t.Fatal(err)
		}
		c.markStored(id)
		if file && os.WriteFile(filepath.Join(path, "n"), nil, 0o600) != nil {
			t.Fatal("the folder cannot be written")
		}
		c.release(id, false, time.Now())
	}
	use(true) // created
	use(true)
	if len(k.forgotten) != 1 {
		t.Fatalf("removed %q", k.forgotten)
	}
	if err := os.RemoveAll(filepath.Join(dir, "job-jx.1")); err != nil {
		t.Fatal(err)
	}
	use(false) // created, and removed because it is empty
	if len(k.forgotten) != 3 {
		t.Fatalf("removed %q", k.forgotten)
	}
}

// A checkpoint folder is of one task of one job, and is removed once that has succeeded.
func TestCheckpointBelongsToOneTask(t *testing.T) {
	k := &fakeStore{}
	dir := t.TempDir()
	c := checkpointDirs{dir: dir, pool: folderPool{dir: t.TempDir(), name: "spare"}, store: k}
	name := func(job string, num int) string {
		return checkpointName(&run.Task{Job: job, Attempt: muster.AttemptID{Task: muster.TaskID{Job: 1, Num: num}}})
	}
	use := func(name string, done bool) (files int) {
		t.Helper()
		path, err := c.acquire(name, false)
		if err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(path)
		if err := errors.Join(err, os.WriteFile(filepath.Join(path, "state"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		c.release(name, done, time.Now())
		return len(entries)
	}
	for i, step := range []struct {
		name string
		done bool
		want int
	}{
		{name("ja", 0), false, 0}, {name("ja", 0), false, 1}, {name("ja", 1), false, 0}, {name("jb", 0), false, 0},
		{name("ja", 0), true, 1}, {name("ja", 0), false, 0},
	} {
		if got := use(step.name, step.done); got != step.want {
			t.Errorf("step %d: %s begins with %d files, want %d", i, step.name, got, step.want)
		}
	}
	for _, name := range []string{name("ja", 0), name("ja", 1), name("jb", 0)} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("the folder of a running task is removed: %v", err)
		}
	}
}

// A fresh folder begins empty, whatever an earlier attempt left there, and is of one attempt at a time.
func TestFreshCheckpointsBeginEmpty(t *testing.T) {
	k := &fakeStore{}
	c := checkpointDirs{dir: t.TempDir(), pool: folderPool{dir: t.TempDir(), name: "spare"}, store: k}
	name := checkpointName(&run.Task{Job: "ja"})
	plant := func(fresh bool) (before int) {
		t.Helper()
		path, err := c.acquire(name, fresh)
		if err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(path)
		if err := errors.Join(err, os.WriteFile(filepath.Join(path, "state"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	plant(false)
	if _, err := c.acquire(name, true); err == nil {
		t.Error("a fresh folder is one that another attempt uses")
	}
	c.release(name, false, time.Now())
	if n := plant(true); n != 0 {
		t.Errorf("it begins with %d files", n)
	}
	c.markStored(name)
	if len(k.forgotten) != 1 {
		t.Errorf("the store knows of a folder that was removed: it forgot %q", k.forgotten)
	}
}
