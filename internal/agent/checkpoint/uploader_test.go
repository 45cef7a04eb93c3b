package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// memBlobs is blobs in memory, with knobs.
type memBlobs struct {
	mu      sync.Mutex
	blobs   map[string][]byte
	read    []string              // names of the files that were read
	onRead  func(name string)     // is called while a file is read
	fail    error                 // of all that follows
	onFetch func(files int) error // fails a fetch after this many files
}

func newMemBlobs() *memBlobs { return &memBlobs{blobs: map[string][]byte{}} }

func (b *memBlobs) put(data []byte) string {
	sum := sha256.Sum256(data)
	sha := hex.EncodeToString(sum[:])
	b.blobs[sha] = data
	return sha
}

func (b *memBlobs) UploadFile(_ context.Context, f *os.File) (string, int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	data, err := io.ReadAll(f)
	if err != nil {
		return "", 0, err
	}
	name := filepath.Base(f.Name())
	if b.onRead != nil {
		b.onRead(name)
	}
	if b.fail != nil {
		return "", 0, run.Failf(muster.UploadFailed, "the file could not be uploaded: %w", b.fail)
	}
	b.read = append(b.read, name)
	return b.put(data), int64(len(data)), nil
}

func (b *memBlobs) FetchTree(_ context.Context, sha, dir string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return b.fail
	}
	for i, f := range b.tree(sha).Files {
		if b.onFetch != nil {
			if err := b.onFetch(i); err != nil {
				return err
			}
		}
		path := filepath.Join(dir, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if f.Link != "" {
			if err := os.Symlink(f.Link, path); err != nil {
				return err
			}
			continue
		}
		mode := fs.FileMode(0o600)
		if f.Exec {
			mode = 0o700
		}
		if err := os.WriteFile(path, b.blobs[f.SHA256], mode); err != nil {
			return err
		}
	}
	return nil
}

// tree decodes a tree that must be there with all its files.
func (b *memBlobs) tree(sha string) muster.Tree {
	var t muster.Tree
	if err := json.Unmarshal(b.blobs[sha], &t); err != nil {
		panic(fmt.Sprintf("tree %q: %v", sha, err))
	}
	for _, f := range t.Files {
		if data, ok := b.blobs[f.SHA256]; f.Link == "" && (!ok || int64(len(data)) != f.Size) {
			panic(f.Path + " is listed but not there")
		}
	}
	return t
}

// reads returns which files were read since it was last called, without lists.
func (b *memBlobs) reads() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	names := slices.DeleteFunc(b.read, func(name string) bool { return strings.HasSuffix(name, listSuffix) })
	slices.Sort(names)
	b.read = nil
	return names
}

// testEnv is a folder that is saved.
type testEnv struct {
	testing.TB

	blobs    *memBlobs
	uploader *Uploader
	dir      string
	task     *run.Task
	log      []string

	mu        sync.Mutex
	published []string // trees
}

func (b *testEnv) trees() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.published)
}

func (b *testEnv) onSaved(_ muster.AttemptID, tree string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.published = append(b.published, tree)
}

func newTestEnv(tb testing.TB) *testEnv {
	tb.Helper()
	b := &testEnv{TB: tb, blobs: newMemBlobs(), dir: filepath.Join(tb.TempDir(), "1.1")}
	b.uploader = &Uploader{Blobs: b.blobs, OnSaved: b.onSaved, Log: slog.New(slog.DiscardHandler)}
	b.task = &run.Task{Spec: &muster.TaskSpec{Checkpoint: &muster.Checkpoint{}}}
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		tb.Fatal(err)
	}
	return b
}

func (b *testEnv) newWatcher() *watcher {
	return &watcher{
		Uploader: b.uploader, task: b.task, dir: b.dir, manifest: readManifest(b.dir), published: b.task.Checkpoint, logged: map[string]bool{},
		logLine: func(line string) { b.log = append(b.log, line) }, onSaved: func() {},
	}
}

// write writes a file whose time is long past, so that it does not count as fresh.
func (b *testEnv) write(name, text string, age time.Duration) {
	b.Helper()
	path := filepath.Join(b.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	if at := time.Now().Add(-age); os.Chtimes(path, at, at) != nil {
		b.Fatal("chtimes")
	}
}

func (b *testEnv) scan(f *watcher) {
	b.Helper()
	if err := f.scan(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// load loads the last published tree into a folder of another worker and returns its files.
func (b *testEnv) loadElsewhere() map[string]string {
	b.Helper()
	dir := filepath.Join(b.TempDir(), "1.1")
	if err := b.uploader.Load(b.Context(), &run.Task{Checkpoint: b.published[len(b.published)-1]}, dir); err != nil {
		b.Fatal(err)
	}
	return files(b, dir)
}

func files(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		all[filepath.ToSlash(name)] = string(data)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

func want(tb testing.TB, got, want map[string]string) {
	tb.Helper()
	if !maps.Equal(got, want) {
		tb.Fatalf("the folder has %v, want %v", got, want)
	}
}

func TestOnlyChangedFilesAreRead(t *testing.T) {
	b := newTestEnv(t)
	f := b.newWatcher()
	b.scan(f)
	if b.published != nil {
		t.Fatal("an empty folder was saved")
	}
	b.write("model/weights", "1", time.Hour)
	b.write("step", "1", time.Hour)
	b.scan(f)
	if got := b.blobs.reads(); !slices.Equal(got, []string{"step", "weights"}) || len(b.published) != 1 {
		t.Fatalf("read %q, published %d", got, len(b.published))
	}
	b.scan(f)
	if got := b.blobs.reads(); len(got) != 0 || len(b.published) != 1 {
		t.Fatalf("nothing changed: read %q, published %d", got, len(b.published))
	}
	b.write("step", "2", time.Minute)
	b.scan(f)
	if got := b.blobs.reads(); !slices.Equal(got, []string{"step"}) || len(b.published) != 2 {
		t.Fatalf("read %q, published %d", got, len(b.published))
	}
	want(t, b.loadElsewhere(), map[string]string{"model/weights": "1", "step": "2"})
	// The next incarnation of the worker continues where this one stopped.
	f = b.newWatcher()
	b.scan(f)
	if got := b.blobs.reads(); len(got) != 0 || len(b.published) != 3 || b.published[2] != b.published[1] {
		t.Fatalf("after a restart: read %q, published %q", got, b.published)
	}
	if err := os.RemoveAll(filepath.Join(b.dir, "model")); err != nil {
		t.Fatal(err)
	}
	b.scan(f)
	want(t, b.loadElsewhere(), map[string]string{"step": "2"})
}

// A file may be changed again within the time that its file system takes for one
// moment: such a change shows nowhere.
func TestRecentFilesAreReadAgain(t *testing.T) {
	b := newTestEnv(t)
	f := b.newWatcher()
	b.write("step", "1", -time.Hour) // whenever the look comes, the file is as new
	b.scan(f)
	path := filepath.Join(b.dir, "step")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("2"), 0o600); err != nil || os.Chtimes(path, info.ModTime(), info.ModTime()) != nil {
		t.Fatal("the file cannot be changed unseen")
	}
	b.scan(f)
	want(t, b.loadElsewhere(), map[string]string{"step": "2"})
}

func TestFilesBeingWrittenAreSavedLater(t *testing.T) {
	b := newTestEnv(t)
	f := b.newWatcher()
	b.write("a", "1", time.Hour)
	b.write("b", "1", time.Hour)
	b.scan(f)
	b.write("a", "2", time.Minute)
	b.write("b", "2", time.Minute)
	b.write("c", "2", time.Minute)
	b.blobs.onRead = func(name string) {
		if name == "b" || name == "c" {
			b.write(name, "half of 3", 0)
		}
	}
	b.scan(f)
	want(t, b.loadElsewhere(), map[string]string{"a": "2", "b": "1"})
	b.blobs.onRead = nil
	b.scan(f)
	want(t, b.loadElsewhere(), map[string]string{"a": "2", "b": "half of 3", "c": "half of 3"})
}

func TestMissingFilesAreNotReported(t *testing.T) {
	b := newTestEnv(t)
	f := b.newWatcher()
	b.write("step", "1", time.Hour)
	b.blobs.fail = errors.New("the server is away")
	if err := f.scan(t.Context()); err == nil || b.published != nil {
		t.Fatalf("%v, published %q", err, b.published)
	}
	b.blobs.fail = nil
	b.scan(f)
	want(t, b.loadElsewhere(), map[string]string{"step": "1"})
}

func TestLinksAndSpecialFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("symbolic links require privileges on this system")
	}
	b := newTestEnv(t)
	secret := filepath.Join(t.TempDir(), "identity.json")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.write("steps/1", "1", time.Hour)
	for name, target := range map[string]string{"latest": "steps/1", "out": secret, "up": "../x", "steps/back": "../steps/1"} {
		if err := os.Symlink(target, filepath.Join(b.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	f := b.newWatcher()
	b.scan(f)
	b.scan(f)
	want(t, b.loadElsewhere(), map[string]string{"steps/1": "1", "latest": "1", "steps/back": "1"})
	if len(b.log) != 2 || !strings.Contains(strings.Join(b.log, "\n"), "out is not saved with the checkpoint: it is a link that points outside the folder") {
		t.Fatalf("the log is %q", b.log)
	}
}

// A task may put a link in the place of a file, or of a folder above it, at any
// moment.
func TestLinksAreNotFollowed(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("symbolic links require privileges on this system")
	}
	b := newTestEnv(t)
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "f"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.write("d/f", "1", time.Hour)
	f := b.newWatcher()
	root, err := os.OpenRoot(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := errors.Join(os.RemoveAll(filepath.Join(b.dir, "d")), os.Symlink(outside, filepath.Join(b.dir, "d")), os.Symlink(filepath.Join(outside, "f"), filepath.Join(b.dir, "g"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"d/f", "g"} {
		if s, err := f.upload(t.Context(), root, name); err == nil {
			t.Errorf("%s was read: %+v", name, s)
		}
	}
	if got := b.blobs.reads(); len(got) != 0 {
		t.Errorf("read %q", got)
	}
}

// A task may make folders in folders without end: the worker does not go after them.
func TestEndlessFolders(t *testing.T) {
	b := newTestEnv(t)
	b.write("model", "1", time.Hour)
	root, err := os.OpenRoot(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	for range maxPath/2 + 2 {
		err := root.Mkdir("d", 0o700)
		if err != nil {
			t.Fatal(err)
		}
		inner, err := root.OpenRoot("d")
		if err := errors.Join(err, root.Close()); err != nil {
			t.Fatal(err)
		}
		root = inner
	}
	if err := errors.Join(root.WriteFile("deep", nil, 0o600), root.Close()); err != nil {
		t.Fatal(err)
	}
	b.scan(b.newWatcher())
	if tree := b.blobs.tree(b.trees()[0]); len(tree.Files) != 1 || tree.Files[0].Path != "model" {
		t.Errorf("saved %+v", tree.Files)
	}
}

func TestTooLargeIsReportedOnce(t *testing.T) {
	b := newTestEnv(t)
	f := b.newWatcher()
	b.write("big", "", time.Hour)
	if err := os.Truncate(filepath.Join(b.dir, "big"), int64(maxSize)+1); err != nil {
		t.Skip("no sparse files here: ", err)
	}
	for range 2 {
		f.logFailure(f.scan(t.Context()))
	}
	if len(b.log) != 1 || b.log[0] != "saving the checkpoint to the server failed: it is larger than 64GiB" {
		t.Fatalf("the log is %q", b.log)
	}
}

func TestLoad(t *testing.T) {
	b := newTestEnv(t)
	b.write("step", "1", time.Hour)
	f := b.newWatcher()
	b.scan(f)
	b.write("step", "2", time.Hour)
	b.scan(f)
	b.write("step", "2 and more", time.Hour) // not saved
	first, second := b.published[0], b.published[1]
	other := b.blobs.put([]byte(`{"files":[{"path":"step","size":5,"sha256":"` + b.blobs.put([]byte("other")) + `"}]}`))
	load := func(tree string) map[string]string {
		t.Helper()
		if err := b.uploader.Load(t.Context(), &run.Task{Checkpoint: tree}, b.dir); err != nil {
			t.Fatal(err)
		}
		return files(t, b.dir)
	}
	for _, tree := range []string{"", second, first} { // what it was, and what was made of it since
		want(t, load(tree), map[string]string{"step": "2 and more"})
	}
	want(t, load(other), map[string]string{"step": "other"})
	if err := os.WriteFile(filepath.Join(b.dir, "step"), []byte("other and more"), 0o600); err != nil {
		t.Fatal(err)
	}
	want(t, load(other), map[string]string{"step": "other and more"})
	want(t, load(second), map[string]string{"step": "2"})
	// After a start of the machine files may be without their bytes.
	if err := os.WriteFile(filepath.Join(b.dir, "step"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n := readManifest(b.dir)
	n.Boot = "another"
	data, err := json.Marshal(n)
	if err != nil || os.WriteFile(b.dir+manifestSuffix, data, 0o600) != nil {
		t.Fatal("the note cannot be written")
	}
	want(t, load(second), map[string]string{"step": "2"})
	beside := func() int {
		left, err := os.ReadDir(filepath.Dir(b.dir))
		if err != nil {
			t.Fatal(err)
		}
		return len(left)
	}
	if n := beside(); n != 2 {
		t.Fatalf("got %d entries, want a folder and its note", n)
	}
	b.uploader.Forget(b.dir)
	if n := beside(); n != 1 || len(readManifest(b.dir).Trees) != 0 {
		t.Fatalf("%d things are left, and what the folder was is remembered", n)
	}
}

// Whenever a load breaks off, the folder is the old one, or the next load makes it
// the new one.
func TestInterruptedLoadKeepsTheOldFolder(t *testing.T) {
	b := newTestEnv(t)
	b.write("a", "1", time.Hour)
	f := b.newWatcher()
	b.scan(f)
	old := map[string]string{"a": "1"}
	tree := b.blobs.put([]byte(`{"files":[{"path":"a","size":1,"sha256":"` + b.blobs.put([]byte("2")) + `"},{"path":"b","size":1,"sha256":"` + b.blobs.put([]byte("3")) + `"}]}`))
	b.blobs.onFetch = func(files int) error {
		if files == 1 {
			return errors.New("cut")
		}
		return nil
	}
	task := &run.Task{Checkpoint: tree}
	err := b.uploader.Load(t.Context(), task, b.dir)
	if failure, ok := errors.AsType[*run.TaskError](err); !ok || failure.Reason != muster.FetchFailed {
		t.Fatal(err)
	}
	want(t, files(t, b.dir), old)
	b.blobs.onFetch = nil

	// The moments of a crash: each leaves what the steps before it left.
	for _, crash := range []func() error{
		func() error { return removeManifest(b.dir) },
		func() error { return errors.Join(removeManifest(b.dir), os.Rename(b.dir, b.dir+outgoingSuffix)) },
		func() error {
			return errors.Join(removeManifest(b.dir), os.Rename(b.dir, b.dir+outgoingSuffix), os.Rename(b.dir+incomingSuffix, b.dir))
		},
	} {
		if err := errors.Join(run.RemoveAll(b.dir), run.RemoveAll(b.dir+outgoingSuffix), run.RemoveAll(b.dir+incomingSuffix), os.Mkdir(b.dir, 0o700), os.Mkdir(b.dir+incomingSuffix, 0o700)); err != nil {
			t.Fatal(err)
		}
		b.write("a", "1", time.Hour)
		if err := crash(); err != nil {
			t.Fatal(err)
		}
		if err := b.uploader.Load(t.Context(), task, b.dir); err != nil {
			t.Fatal(err)
		}
		want(t, files(t, b.dir), map[string]string{"a": "2", "b": "3"})
	}
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestEnv(t)
		b.task.Spec.Checkpoint.Every = muster.Duration(10 * time.Second)
		saves := 0
		stop := b.uploader.Watch(b.task, b.dir, func(line string) { b.log = append(b.log, line) }, func() { saves++ })
		b.write("step", "1", time.Hour)
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if len(b.trees()) != 0 {
			t.Fatal("saved before it was time")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(b.trees()) != 1 {
			t.Fatal("not saved when it was time")
		}
		b.write("step", "2", time.Hour)
		stop(time.Minute)
		stop(time.Minute)
		if len(b.trees()) != 2 || len(b.log) != 0 || saves != 2 {
			t.Fatalf("published %q, log %q, saved %d times", b.trees(), b.log, saves)
		}
		want(t, b.loadElsewhere(), map[string]string{"step": "2"})

		stop = b.uploader.Watch(b.task, b.dir, func(string) {}, func() {})
		b.write("step", "3", time.Hour)
		stop(0)
		if len(b.trees()) != 2 {
			t.Fatal("saved without a request")
		}
	})
}

// Whatever a task does to its folder, the published tree is the folder as it was in one scan,
// and can be laid out elsewhere.
func TestSavesExistingFiles(t *testing.T) {
	b := newTestEnv(t)
	f := b.newWatcher()
	rapid.Check(t, func(t *rapid.T) {
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			name := rapid.SampledFrom([]string{"a", "b", "d/a", "d/e/b", "x-y"}).Draw(t, "name")
			if rapid.Bool().Draw(t, "remove") {
				if err := os.RemoveAll(filepath.Join(b.dir, name)); err != nil {
					t.Fatal(err)
				}
				continue
			}
			b.write(name, rapid.StringN(0, 8, 20).Draw(t, "text"), time.Duration(rapid.IntRange(0, 10).Draw(t, "age"))*time.Second)
		}
		if err := f.scan(b.Context()); err != nil {
			t.Fatal(err)
		}
		if len(b.published) == 0 {
			if here := files(b, b.dir); len(here) != 0 {
				t.Fatalf("%v is not saved", here)
			}
			return
		}
		if there, here := b.loadElsewhere(), files(b, b.dir); !maps.Equal(there, here) {
			t.Fatalf("saved %v, found %v", there, here)
		}
		paths := []string{}
		for _, e := range b.blobs.tree(f.published).Files {
			paths = append(paths, e.Path)
		}
		if !slices.IsSorted(paths) {
			t.Fatalf("the tree is not sorted: %q", paths)
		}
	})
}
