//go:build unix

package client_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
)

// Whatever someone prepared in the directory of a download, nothing outside it is written or read, and nothing in it is replaced that
// the caller did not name.
func TestPreparedDirectories(t *testing.T) {
	s, c, _ := start(t)
	task, a, content := artifact(t, s, c, "d/file", 5_000)
	part := client.PartName("file", a.SHA256)
	const old = "the user's file"
	for name, tc := range map[string]struct {
		prepare func(dir, outside string) error // secret is a file outside
		replace bool
		code    muster.Code // "" if the download succeeds
		message string
	}{
		"nothing": {prepare: func(string, string) error { return nil }},
		"a link at the target": {code: muster.Conflict, message: "file", prepare: func(dir, outside string) error {
			return os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "d/file"))
		}},
		"a dangling link at the target": {code: muster.Conflict, message: "file", prepare: func(dir, outside string) error {
			return os.Symlink(filepath.Join(outside, "new"), filepath.Join(dir, "d/file"))
		}},
		"a link at the target, which may be replaced": {replace: true, prepare: func(dir, outside string) error {
			return os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "d/file"))
		}},
		"a second name of a file at the target, which may be replaced": {replace: true, prepare: func(dir, outside string) error {
			return os.Link(filepath.Join(outside, "secret"), filepath.Join(dir, "d/file"))
		}},
		"a directory at the target": {replace: true, code: muster.Invalid, message: "it is a directory", prepare: func(dir, _ string) error {
			return os.Mkdir(filepath.Join(dir, "d/file"), 0o700)
		}},
		"a pipe at the target": {replace: true, code: muster.Invalid, message: "it is a named pipe", prepare: func(dir, _ string) error {
			return syscall.Mkfifo(filepath.Join(dir, "d/file"), 0o600)
		}},
		"a link for the directory": {replace: true, code: muster.Invalid, message: "it is a symbolic link", prepare: func(dir, outside string) error {
			if err := os.Remove(filepath.Join(dir, "d")); err != nil {
				return err
			}
			return os.Symlink(outside, filepath.Join(dir, "d"))
		}},
		"a link for the directory that stays inside": {replace: true, code: muster.Invalid, message: "it is a symbolic link", prepare: func(dir, _ string) error {
			if err := os.Rename(filepath.Join(dir, "d"), filepath.Join(dir, ".ssh")); err != nil {
				return err
			}
			return os.Symlink(".ssh", filepath.Join(dir, "d"))
		}},
		"a file for the directory": {replace: true, code: muster.Invalid, message: "it is a file", prepare: func(dir, _ string) error {
			if err := os.Remove(filepath.Join(dir, "d")); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "d"), nil, 0o600)
		}},
		"a link for the partial download": {prepare: func(dir, outside string) error {
			return os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "d", part))
		}},
		"a dangling link for the partial download": {prepare: func(dir, outside string) error {
			return os.Symlink(filepath.Join(outside, "new"), filepath.Join(dir, "d", part))
		}},
		"a link NAME.part": {prepare: func(dir, outside string) error {
			return os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "d/file.part"))
		}},
		"a second name of a file for the partial download": {prepare: func(dir, outside string) error {
			return os.Link(filepath.Join(outside, "secret"), filepath.Join(dir, "d", part))
		}},
		"a pipe for the partial download": {prepare: func(dir, _ string) error {
			return syscall.Mkfifo(filepath.Join(dir, "d", part), 0o600)
		}},
		"a directory for the partial download": {code: muster.Invalid, message: "cannot write", prepare: func(dir, _ string) error {
			return os.Mkdir(filepath.Join(dir, "d", part), 0o700)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			dir, outside := filepath.Join(base, "dir"), filepath.Join(base, "outside")
			for _, d := range []string{dir, outside, filepath.Join(dir, "d")} {
				if err := os.Mkdir(d, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(outside, "secret"), []byte(old), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := tc.prepare(dir, outside); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = root.Close() }()
			to := client.Target{Root: root, Name: "d/file", Replace: tc.replace}
			_, same, statErr := to.Stat(t.Context(), a)
			if same {
				t.Error("it is taken for the artifact")
			}
			err = c.DownloadArtifact(t.Context(), task, a, to, nil)
			if tc.code == "" && (err != nil || statErr != nil) || tc.code != "" && (muster.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.message)) {
				t.Errorf("error %v and of Stat %v, want %q", err, statErr, tc.code)
			}
			if tc.code == "" {
				if got, err := os.ReadFile(filepath.Join(dir, "d/file")); err != nil || string(got) != string(content) {
					t.Errorf("it is %d bytes, %v", len(got), err)
				}
				if info, err := os.Lstat(filepath.Join(dir, "d/file")); err != nil || !info.Mode().IsRegular() || info.Sys().(*syscall.Stat_t).Nlink != 1 {
					t.Errorf("it is not a file of its own: %v, %v", info, err)
				}
				if _, same, err := to.Stat(t.Context(), a); err != nil || !same {
					t.Errorf("afterwards it is not the artifact: %v", err)
				}
			}
			entries, err := os.ReadDir(outside)
			if got, _ := os.ReadFile(filepath.Join(outside, "secret")); err != nil || len(entries) != 1 || string(got) != old {
				t.Errorf("outside are %v with %q, %v", entries, got, err)
			}
		})
	}
}

// A file that something creates during the download, or that has another spelling of the same name, is not replaced.
func TestFileThatAppearsDuringTheDownload(t *testing.T) {
	s, c, _ := start(t)
	task, a, content := artifact(t, s, c, "file", 5_000)
	to := target(t, "file")
	err := c.DownloadArtifact(t.Context(), task, a, to, func(int64) {
		if err := to.Root.WriteFile("file", []byte("new"), 0o600); err != nil {
			t.Error(err)
		}
	})
	if got, _ := to.Root.ReadFile("file"); muster.CodeOf(err) != muster.Conflict || string(got) != "new" {
		t.Fatalf("%v, the file has %.10q", err, got)
	}
	to.Replace = true
	if err := c.DownloadArtifact(t.Context(), task, a, to, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := to.Root.ReadFile("file"); err != nil || string(got) != string(content) {
		t.Errorf("it has %d bytes, %v", len(got), err)
	}
	if entries, err := os.ReadDir(to.Root.Name()); err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
}
