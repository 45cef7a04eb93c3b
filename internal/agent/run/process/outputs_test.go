package process

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// recordingTransfer records uploads.
type recordingTransfer struct {
	Transfer

	contents []string
}

func (u *recordingTransfer) UploadFile(_ context.Context, f *os.File) (string, int64, error) {
	b, err := io.ReadAll(f)
	u.contents = append(u.contents, string(b))
	return "sha", int64(len(b)), err
}

// A process that escaped from its attempt changes the files during the upload: the worker reads only files in the task's folder.
func TestLinksCreatedLateAreNotFollowed(t *testing.T) {
	for name, change := range map[string]func(out, secrets string) error{
		"a link for the file": func(out, secrets string) error {
			return os.Symlink(filepath.Join(secrets, "model"), filepath.Join(out, "model"))
		},
		"a link for the folder": func(out, secrets string) error {
			if err := os.Remove(out); err != nil {
				return err
			}
			return os.Symlink(secrets, out)
		},
		"a folder for the file": func(out, _ string) error { return os.Mkdir(filepath.Join(out, "model"), 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			secrets, up := t.TempDir(), &recordingTransfer{}
			a := &Attempt{base: t.TempDir(), Task: &run.Task{Spec: &muster.TaskSpec{}}, executor: &Executor{deps: &Deps{Transfer: up}}}
			a.Dir = filepath.Join(a.base, "work")
			mkdir(t, a.Dir)
			mkdir(t, a.outDir())
			write(t, filepath.Join(secrets, "model"), "a secret")
			write(t, filepath.Join(a.outDir(), "model"), "its own")
			all, err := a.findArtifacts(true)
			if err != nil || len(all) != 1 {
				t.Fatalf("%v, %v", all, err)
			}
			if err := a.upload(t.Context(), all); err != nil || len(up.contents) != 1 || up.contents[0] != "its own" {
				t.Fatalf("%q, %v", up.contents, err)
			}
			if err := os.Remove(filepath.Join(a.outDir(), "model")); err != nil {
				t.Fatal(err)
			}
			if err := change(a.outDir(), secrets); err != nil {
				t.Fatal(err)
			}
			if err := a.upload(t.Context(), all); err == nil || len(up.contents) != 1 {
				t.Errorf("%q is taken, %v", up.contents, err)
			}
		})
	}
}

func TestResultOutsideTheFolderIsNotRead(t *testing.T) {
	secrets := t.TempDir()
	write(t, filepath.Join(secrets, resultName), `{"key": 1}`)
	a := &Attempt{base: t.TempDir()}
	if err := a.readResult(); err != nil {
		t.Errorf("without a folder: %v", err)
	}
	if err := os.Symlink(secrets, a.outDir()); err != nil {
		t.Fatal(err)
	}
	if err := a.readResult(); err == nil || a.result != nil || strings.Contains(err.Error(), secrets) {
		t.Errorf("through a folder: %s, %v", a.result, err)
	}
	if err := os.Remove(a.outDir()); err != nil {
		t.Fatal(err)
	}
	mkdir(t, a.outDir())
	if err := os.Symlink(filepath.Join(secrets, resultName), filepath.Join(a.outDir(), resultName)); err != nil {
		t.Fatal(err)
	}
	if err := a.readResult(); err == nil || a.result != nil {
		t.Errorf("through a link: %s, %v", a.result, err)
	}
}

// endlessFS counts how often folders are read.
type endlessFS struct {
	fs.FS

	n int
}

func (r *endlessFS) ReadDir(name string) ([]fs.DirEntry, error) {
	r.n++
	return []fs.DirEntry{entry{}}, nil // a folder in each
}

func (r *endlessFS) Stat(string) (fs.FileInfo, error) { return entry{}, nil }

// entry is a folder of the name d.
type entry struct {
	fs.DirEntry
	fs.FileInfo
}

func (entry) Name() string      { return "d" }
func (entry) IsDir() bool       { return true }
func (entry) Mode() fs.FileMode { return fs.ModeDir }
func (entry) Type() fs.FileMode { return fs.ModeDir }

// A task may leave folders in folders without end: the worker does not go after them.
func TestEndlessFolders(t *testing.T) {
	endless := &endlessFS{}
	if found, err := doublestar.Glob(depthLimitedFS{endless}, "**/model", doublestar.WithNoFollow()); err != nil || len(found) > maxNameLen {
		t.Errorf("%d are found, %v", len(found), err)
	}
	if endless.n > 2*maxNameLen {
		t.Errorf("%d folders are read", endless.n)
	}

	var logged bytes.Buffer
	a := &Attempt{base: t.TempDir(), Task: &run.Task{Spec: &muster.TaskSpec{}}, log: &attemptLog{onGrow: func(int64) {}}}
	a.log.appendFunc = func(_ int64, data []byte) (int64, error) {
		logged.Write(data)
		return int64(logged.Len()), nil
	}
	mkdir(t, a.outDir())
	root, err := os.OpenRoot(a.outDir())
	if err != nil {
		t.Fatal(err)
	}
	const deep = maxNameLen/2 + 2
	for range deep {
		if err := root.Mkdir("d", 0o700); err != nil {
			t.Fatal(err)
		}
		inner, err := root.OpenRoot("d")
		if err != nil {
			t.Fatal(err)
		}
		if err := root.Close(); err != nil {
			t.Fatal(err)
		}
		root = inner
	}
	if err := root.WriteFile("model", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := root.Close(); err != nil {
		t.Fatal(err)
	}
	if all, err := a.findArtifacts(true); err != nil || len(all) != 0 || !strings.Contains(logged.String(), "longer than") {
		t.Errorf("%v, %v, and it logged %q", all, err, logged.String())
	}
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A file whose name the server would refuse, or that cannot be beside another artifact, is left out with a line in the log; the others are taken.
func TestNamesThatTheServerRefuses(t *testing.T) {
	var log bytes.Buffer
	a := &Attempt{base: t.TempDir(), Task: &run.Task{Spec: &muster.TaskSpec{Outputs: []string{"**"}}}, log: &attemptLog{
		appendFunc: func(offset int64, data []byte) (int64, error) {
			log.Write(data)
			return offset + int64(len(data)), nil
		},
		onGrow: func(int64) {},
	}}
	a.Dir = filepath.Join(a.base, "work")
	for _, name := range []string{"a", "dir/x", `c\d`, "\x1b]0;title\x07", "txt.\u202egnp", "C:", "same"} {
		mkdirAll(t, filepath.Dir(filepath.Join(a.outDir(), name)))
		write(t, filepath.Join(a.outDir(), name), "x")
	}
	for _, name := range []string{"a/b", "dir", "same", "other"} {
		mkdirAll(t, filepath.Dir(filepath.Join(a.Dir, name)))
		write(t, filepath.Join(a.Dir, name), "x")
	}
	files, err := a.findArtifacts(true)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.name)
	}
	if got, want := strings.Join(names, " "), "a dir/x same other"; got != want {
		t.Errorf("taken are %q, want %q", got, want)
	}
	for _, want := range []string{"has a backslash", "character U+001B", "character U+202E", "drive letter", `"a/b" is not taken`, `"dir" is not taken`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %q", want, &log)
		}
	}
	if strings.ContainsAny(log.String(), "\x1b\x07\u202e") {
		t.Errorf("the log has characters of names: %q", &log)
	}
}

func mkdirAll(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
}
