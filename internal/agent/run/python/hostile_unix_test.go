//go:build unix

package python

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/agent/run"
)

// TestAListOfFilesHoldsUpNobody holds that what a package leaves in place of its list of files neither blocks the
// worker nor fills its memory.
func TestAListOfFilesHoldsUpNobody(t *testing.T) {
	for what, plant := range map[string]func(path string) error{
		"a pipe":                   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a link to a device":       func(path string) error { return os.Symlink("/dev/zero", path) },
		"a file that is too large": func(path string) error { return createSparse(path, 4<<30) },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			info := filepath.Join(dir, "lib", "evil-1.dist-info")
			if err := os.MkdirAll(info, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "bin", "python"), nil, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := plant(filepath.Join(info, "RECORD")); err != nil {
				t.Fatal(err)
			}
			in := Installed{Python: "lib", Packages: []string{"evil-1.dist-info"}}
			found := make(chan error, 1)
			go func() { found <- in.Check(t.Context(), dir) }()
			select {
			case err := <-found:
				if err == nil {
					t.Error("the package counts as whole")
				}
			case <-time.After(time.Minute):
				t.Fatal("the check does not end")
			}
		})
	}
}

func createSparse(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Truncate(size)
}

// TestABuildLeadsItsWorkerNowhere holds that links which packages leave where the worker writes next change no other file.
func TestABuildLeadsItsWorkerNowhere(t *testing.T) {
	outside := t.TempDir()
	victim := filepath.Join(outside, "victim")
	if err := os.WriteFile(victim, []byte("root's"), 0o600); err != nil {
		t.Fatal(err)
	}
	untouched := func() {
		t.Helper()
		if b, err := os.ReadFile(victim); err != nil || string(b) != "root's" {
			t.Errorf("the file outside is %q (%v)", b, err)
		}
		if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
			t.Errorf("the folder outside has %v (%v)", entries, err)
		}
	}
	finish := func(string, Installed) (string, []byte, error) { return marker, []byte("{}"), nil }

	tmp := t.TempDir()
	built := filepath.Join(tmp, "env")
	if err := os.Mkdir(built, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, filepath.Join(built, marker)); err != nil {
		t.Fatal(err)
	}
	if err := mark(tmp, built, Installed{}, finish); err != nil {
		t.Errorf("an environment with a link for its mark is not marked: %v", err)
	}
	untouched()
	if b, err := os.ReadFile(filepath.Join(built, marker)); err != nil || string(b) != "{}\n" {
		t.Errorf("the mark is %q (%v)", b, err)
	}

	tmp = t.TempDir()
	built = filepath.Join(tmp, "env")
	if err := os.Symlink(outside, built); err != nil {
		t.Fatal(err)
	}
	if err := mark(tmp, built, Installed{}, finish); err == nil {
		t.Error("a link in place of an environment is marked")
	}
	untouched()

	folder, err := os.OpenRoot(tmp)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if err := os.Symlink(victim, filepath.Join(tmp, "requirements.txt")); err != nil {
		t.Fatal(err)
	}
	if err := run.WriteIn(folder, "requirements.txt", []byte("whatever the job says")); err != nil {
		t.Errorf("a file is not written in place of a link: %v", err)
	}
	untouched()
}
