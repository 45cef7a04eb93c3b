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

// taken is where uploads go.
type taken struct {
	run.Transfer

	all []string
}

func (u *taken) UploadFile(_ context.Context, f *os.File) (string, int64, error) {
	b, err := io.ReadAll(f)
	u.all = append(u.all, string(b))
	return "sha", int64(len(b)), err
}

// A process that got away from its attempt changes the files while they are taken: the
// worker reads what lies in the task's folder, and nothing of its own.
func TestNothingIsTakenThroughALinkThatComesLate(t *testing.T) {
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
			secrets, up := t.TempDir(), &taken{}
			a := &Attempt{base: t.TempDir(), Task: &run.Task{Spec: &muster.TaskSpec{}}, e: &Executor{env: &run.Env{Transfer: up}}}
			a.Dir = filepath.Join(a.base, "work")
			mkdir(t, a.Dir)
			mkdir(t, a.out())
			write(t, filepath.Join(secrets, "model"), "a secret")
			write(t, filepath.Join(a.out(), "model"), "its own")
			all, err := a.collect(true)
			if err != nil || len(all) != 1 {
				t.Fatalf("%v, %v", all, err)
			}
			if err := a.upload(t.Context(), all); err != nil || len(up.all) != 1 || up.all[0] != "its own" {
				t.Fatalf("%q, %v", up.all, err)
			}
			if err := os.Remove(filepath.Join(a.out(), "model")); err != nil {
				t.Fatal(err)
			}
			if err := change(a.out(), secrets); err != nil {
				t.Fatal(err)
			}
			if err := a.upload(t.Context(), all); err == nil || len(up.all) != 1 {
				t.Errorf("%q is taken, %v", up.all, err)
			}
		})
	}
}

func TestNoResultIsReadFromOutside(t *testing.T) {
	secrets := t.TempDir()
	write(t, filepath.Join(secrets, resultName), `{"key": 1}`)
	a := &Attempt{base: t.TempDir()}
	if err := a.readResult(); err != nil {
		t.Errorf("without a folder: %v", err)
	}
	if err := os.Symlink(secrets, a.out()); err != nil {
		t.Fatal(err)
	}
	if err := a.readResult(); err == nil || a.result != nil || strings.Contains(err.Error(), secrets) {
		t.Errorf("through a folder: %s, %v", a.result, err)
	}
	if err := os.Remove(a.out()); err != nil {
		t.Fatal(err)
	}
	mkdir(t, a.out())
	if err := os.Symlink(filepath.Join(secrets, resultName), filepath.Join(a.out(), resultName)); err != nil {
		t.Fatal(err)
	}
	if err := a.readResult(); err == nil || a.result != nil {
		t.Errorf("through a link: %s, %v", a.result, err)
	}
}

// reads counts how often folders are read.
type reads struct {
	fs.FS

	n int
}

func (r *reads) ReadDir(name string) ([]fs.DirEntry, error) {
	r.n++
	return []fs.DirEntry{entry{}}, nil // a folder in each
}

func (r *reads) Stat(string) (fs.FileInfo, error) { return entry{}, nil }

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
func TestFoldersWithoutEnd(t *testing.T) {
	endless := &reads{}
	if found, err := doublestar.Glob(shallow{endless}, "**/model", doublestar.WithNoFollow()); err != nil || len(found) > maxName {
		t.Errorf("%d are found, %v", len(found), err)
	}
	if endless.n > 2*maxName {
		t.Errorf("%d folders are read", endless.n)
	}

	var words bytes.Buffer
	a := &Attempt{base: t.TempDir(), Task: &run.Task{Spec: &muster.TaskSpec{}}, log: &attemptLog{grew: func(int64) {}}}
	a.log.store = func(_ int64, data []byte) (int64, error) {
		words.Write(data)
		return int64(words.Len()), nil
	}
	mkdir(t, a.out())
	root, err := os.OpenRoot(a.out())
	if err != nil {
		t.Fatal(err)
	}
	const deep = maxName/2 + 2
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
	if all, err := a.collect(true); err != nil || len(all) != 0 || !strings.Contains(words.String(), "longer than") {
		t.Errorf("%v, %v, and it says %q", all, err, words.String())
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
