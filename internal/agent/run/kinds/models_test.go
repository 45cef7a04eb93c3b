//go:build unix

package kinds

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/process"
)

func modelFoldersOf(data string) *modelFolders {
	return newModelFolders(&Config{Deps: &process.Deps{Deps: run.Deps{Dir: data, Log: slog.New(slog.DiscardHandler)}}})
}

// age makes a folder one that was last used before maxIdle.
func age(t *testing.T, dir string) {
	t.Helper()
	old := time.Now().Add(-maxIdle - time.Hour)
	if err := os.Chtimes(dir, old, old); err != nil {
		t.Fatal(err)
	}
}

func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// TestUnusedModelsAreEvicted checks that the folder of a project is removed once no task used it for maxIdle, and not while one does.
func TestUnusedModelsAreEvicted(t *testing.T) {
	m := modelFoldersOf(t.TempDir())
	one, release, err := m.use("one")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(one, "weights"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	use := func(project string) {
		t.Helper()
		_, release, err := m.use(project)
		if err != nil {
			t.Fatal(err)
		}
		release()
	}
	age(t, one)
	if use("two"); !slices.Equal(names(t, one), []string{"weights"}) {
		t.Error("the folder of a running task was evicted")
	}
	release()
	if use("two"); !slices.Equal(names(t, one), []string{"weights"}) {
		t.Error("the folder of a task that has just ended was evicted")
	}
	age(t, one)
	if err := os.MkdirAll(filepath.Join(m.projects, evictedPrefix+"x", "hf"), 0o700); err != nil { // of a worker that was killed meanwhile
		t.Fatal(err)
	}
	if use("two"); !slices.Equal(names(t, m.projects), []string{run.ProjectFolder("two")}) {
		t.Errorf("there are %q", names(t, m.projects))
	}
	age(t, filepath.Join(m.projects, run.ProjectFolder("two")))
	if m.evict(); len(names(t, m.projects)) != 0 {
		t.Errorf("there are %q", names(t, m.projects))
	}
}

// TestModelsOfAnEarlierVersionAreNotUsed checks that no task gets what an earlier version downloaded for all projects, and that the models of
// the owner stay.
func TestModelsOfAnEarlierVersionAreNotUsed(t *testing.T) {
	data := t.TempDir()
	owner := filepath.Join(data, "models")
	if err := errors.Join(
		os.MkdirAll(filepath.Join(owner, "hf", "hub", "models--org--private"), 0o700), os.MkdirAll(filepath.Join(owner, "datasets", "mnist"), 0o700),
		os.MkdirAll(filepath.Join(owner, ".in-use"), 0o700), os.MkdirAll(filepath.Join(owner, "ours"), 0o700), os.Chmod(owner, 0o777),
	); err != nil {
		t.Fatal(err)
	}
	m := modelFoldersOf(data)
	dir, err := m.ownerFolder()
	if err != nil || dir != owner || !slices.Equal(names(t, owner), []string{"ours"}) {
		t.Errorf("the owner's folder is %s with %q: %v", dir, names(t, owner), err)
	}
	if info, err := os.Stat(owner); err != nil || info.Mode().Perm() != 0o775 {
		t.Errorf("its mode is %v: %v", info.Mode(), err)
	}
	earlier, err := filepath.Glob(filepath.Join(m.projects, earlierPrefix+"*"))
	if err != nil || len(earlier) != 1 || !slices.Equal(names(t, earlier[0]), []string{".in-use", "datasets", "hf"}) {
		t.Fatalf("the folders of earlier downloads are %q: %v", earlier, err)
	}
	age(t, earlier[0])
	if modelFoldersOf(data); len(names(t, m.projects)) != 0 {
		t.Errorf("there are %q", names(t, m.projects))
	}
}
