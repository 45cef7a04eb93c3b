//go:build unix

package kinds

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/process"
)

// limitedModels returns the folders of a worker with a limit of 10 MiB, and what they log.
func limitedModels(t *testing.T) (*modelFolders, *bytes.Buffer) {
	t.Helper()
	var lines bytes.Buffer
	return newModelFolders(&Config{
		ModelDisk: 10 << 20, Deps: &process.Deps{Deps: run.Deps{Dir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&lines, nil))}},
	}), &lines
}

// store makes a model of some MiB that was last used hours ago, with a lock or without.
func (m *modelFolders) store(t *testing.T, project, path string, size, hours int, locked bool) string {
	t.Helper()
	dir := filepath.Join(m.projects, run.ProjectFolder(project))
	blobs := filepath.Join(dir, path, "blobs")
	lock := filepath.Join(dir, lockFolder, filepath.Base(path))
	used := filepath.Join(dir, path)
	var err error
	for _, folder := range []string{blobs, filepath.Dir(lock)} {
		if err == nil {
			err = os.MkdirAll(folder, 0o700)
		}
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(blobs, "weights"), bytes.Repeat([]byte("w"), size<<20), 0o600)
	}
	if err == nil && locked {
		used, err = lock, os.WriteFile(lock, nil, 0o600)
	}
	if err == nil {
		then := time.Now().Add(-time.Duration(hours) * time.Hour)
		err = os.Chtimes(used, then, then)
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, path)
}

// wantModels fails the test unless exactly some of all models are there.
func wantModels(t *testing.T, all map[string]string, want ...string) {
	t.Helper()
	var got []string
	for name, dir := range all {
		if _, err := os.Stat(filepath.Join(dir, "blobs", "weights")); err == nil {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("there are %q, want %q", got, want)
	}
}

// TestModelsStayWithinTheirLimit checks that the models of all projects that were used longest ago are removed when a task starts or ends, and
// none before the limit is exceeded.
func TestModelsStayWithinTheirLimit(t *testing.T) {
	m, _ := limitedModels(t)
	all := map[string]string{
		"old":    m.store(t, "one", "hf/hub/models--org--old", 4, 30, true),
		"data":   m.store(t, "two", "datasets/mnist", 3, 20, true),
		"recent": m.store(t, "two", "hf/hub/models--org--recent", 2, 10, true),
	}
	_, release, err := m.use("three")
	if err != nil {
		t.Fatal(err)
	}
	wantModels(t, all, "old", "data", "recent")
	all["new"] = m.store(t, "three", "hf/hub/models--org--new", 2, 0, true)
	release()
	wantModels(t, all, "data", "recent", "new")
	all["own"] = m.store(t, "three", "own", 5, 5, false)
	if _, release, err = m.use("three"); err != nil {
		t.Fatal(err)
	}
	defer release()
	wantModels(t, all, "own", "recent", "new")
}

// TestModelsInUseAreKept checks that a limit takes no model from a task: none that a process has a lock on, and none without a lock of a project
// with running tasks.
func TestModelsInUseAreKept(t *testing.T) {
	m, lines := limitedModels(t)
	_, release, err := m.use("one")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{
		"locked":  m.store(t, "two", "hf/hub/models--org--locked", 6, 40, true),
		"unknown": m.store(t, "one", "custom", 6, 30, false),
		"free":    m.store(t, "one", "hf/hub/models--org--free", 2, 1, true),
	}
	user, err := os.Open(filepath.Join(m.projects, run.ProjectFolder("two"), lockFolder, "models--org--locked"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(user.Fd()), syscall.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	m.enforceLimit()
	wantModels(t, all, "locked", "unknown")
	if !bytes.Contains(lines.Bytes(), []byte("all are in use")) {
		t.Errorf("the log does not mention that the limit is exceeded:\n%s", lines)
	}
	if err := user.Close(); err != nil {
		t.Fatal(err)
	}
	m.enforceLimit()
	wantModels(t, all, "unknown")
	all["last"] = m.store(t, "two", "hf/hub/models--org--last", 6, 1, true)
	release()
	wantModels(t, all, "last")
}

// TestTheLimitOfModelsFollowsNoLinks checks that a task cannot make the worker remove what is not its project's, nor keep its own models by a link
// in place of locks.
func TestTheLimitOfModelsFollowsNoLinks(t *testing.T) {
	m, _ := limitedModels(t)
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "file"), bytes.Repeat([]byte("w"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{
		"big":   m.store(t, "one", "big", 11, 50, false),
		"other": m.store(t, "two", "hf/hub/models--org--other", 4, 40, true),
	}
	dir := filepath.Join(m.projects, run.ProjectFolder("one"))
	for link, to := range map[string]string{
		"hf": filepath.Join(m.projects, run.ProjectFolder("two"), "hf"), "datasets": outside, "link": outside, filepath.Join("big", "out"): outside,
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	age(t, all["big"]) // the link changed it
	locks := filepath.Join(dir, lockFolder)
	if err := os.RemoveAll(locks); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, locks); err != nil {
		t.Fatal(err)
	}
	m.enforceLimit()
	wantModels(t, all, "other")
	if _, err := os.Stat(filepath.Join(outside, "file")); err != nil {
		t.Error(err)
	}
}

// TestOddModelsAreRemovedFirst checks that a folder that cannot be measured is removed before those of other projects, and that a hole in a file does
// not count.
func TestOddModelsAreRemovedFirst(t *testing.T) {
	m, _ := limitedModels(t)
	all := map[string]string{
		"old":  m.store(t, "one", "hf/hub/models--org--old", 6, 50, true),
		"deep": m.store(t, "two", "deep", 5, 0, false),
	}
	path := all["deep"]
	for range maxModelDepth + 1 {
		path = filepath.Join(path, "d")
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	m.enforceLimit()
	wantModels(t, all, "old")
	sparse := m.store(t, "two", "sparse", 0, 0, false)
	if err := os.Truncate(filepath.Join(sparse, "blobs", "weights"), 1<<40); err != nil {
		t.Fatal(err)
	}
	m.enforceLimit()
	wantModels(t, all, "old")
}

// TestModelsMakeRoomOnAFullDisk checks that a worker with a nearly full disk removes what was used longest ago, without a limit too.
func TestModelsMakeRoomOnAFullDisk(t *testing.T) {
	m, _ := limitedModels(t)
	m.limit = 0
	all := map[string]string{
		"old":    m.store(t, "one", "hf/hub/models--org--old", 2, 30, true),
		"older":  m.store(t, "two", "datasets/mnist", 2, 40, true),
		"recent": m.store(t, "two", "hf/hub/models--org--recent", 2, 10, true),
	}
	m.enforceLimit()
	wantModels(t, all, "old", "older", "recent")
	m.missing = func() muster.Size { return 3 << 20 }
	_, release, err := m.use("three")
	if err != nil {
		t.Fatal(err)
	}
	wantModels(t, all, "recent")
	m.missing = func() muster.Size { return 0 }
	release()
	wantModels(t, all, "recent")
}
