package process

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
