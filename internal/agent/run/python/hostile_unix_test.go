//go:build unix

package python

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/agent/run"
)

// TestAListOfFilesHoldsUpNobody holds that what a package leaves in place of its list of files neither blocks the
// worker nor fills its memory.
func TestAListOfFilesHoldsUpNobody(t *testing.T) {
	for what, plant := range map[string]func(path string) error{
		"a pipe":             func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a link to a device": func(path string) error { return os.Symlink("/dev/zero", path) },
		"a file that is too large": func(path string) error {
			return os.WriteFile(path, bytes.Repeat([]byte("x,,\n"), maxRecord/4+1), 0o600) // up to the bound it is a list
		},
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
			in := record{Lib: "lib", Packages: []string{"evil-1.dist-info"}}
			found := make(chan error, 1)
			go func() { found <- in.checkFiles(t.Context(), dir) }()
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
	tmp := t.TempDir()
	built := filepath.Join(tmp, "env")
	if err := errors.Join(os.Mkdir(built, 0o700), os.Chmod(tmp, 0o777)); err != nil { // as the user of builds may have left it
		t.Fatal(err)
	}
	if err := os.Symlink(victim, filepath.Join(built, markerFile)); err != nil {
		t.Fatal(err)
	}
	if err := writeMarker(tmp, built, &record{Lib: "lib"}); err != nil {
		t.Errorf("an environment with a link for its mark is not marked: %v", err)
	}
	untouched()
	if st, err := os.Stat(tmp); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("others can still change the marked environment: its folder has mode %v (%v)", st.Mode(), err)
	}
	if b, err := os.ReadFile(filepath.Join(built, markerFile)); err != nil || !strings.Contains(string(b), `"lib"`) {
		t.Errorf("the mark is %q (%v)", b, err)
	}

	tmp = t.TempDir()
	built = filepath.Join(tmp, "env")
	if err := os.Symlink(outside, built); err != nil {
		t.Fatal(err)
	}
	rec := &record{}
	if err := writeMarker(tmp, built, rec); err == nil || rec.Size > 0 {
		t.Errorf("a link in place of an environment is looked into (%s) or marked (%v)", rec.Size, err)
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
	if err := run.ReplaceFile(folder, "requirements.txt", []byte("whatever the job says")); err != nil {
		t.Errorf("a file is not written in place of a link: %v", err)
	}
	untouched()
}

// TestABuildThatIsRepeatedStartsClosed holds that a build which is repeated, because cached packages are damaged, begins in
// a folder that only the worker may change, and that no link which the first one left leads it out.
func TestABuildThatIsRepeatedStartsClosed(t *testing.T) {
	top := t.TempDir()
	victim, modes, uv, tmp := filepath.Join(top, "victim"), filepath.Join(top, "modes"), filepath.Join(top, "uv"), filepath.Join(top, "tmp")
	text := fmt.Sprintf(`#!/bin/sh
case "$*" in
venv*) ls -ld . | cut -c1-10 >>%s; mkdir -p env/bin env/lib/python3/site-packages/evil-1.dist-info; : >env/bin/python ;;
*--no-cache*) : >env/lib/python3/site-packages/evil-1.dist-info/RECORD ;;
pip*) rm requirements.txt; ln -s %s requirements.txt; chmod 777 . ;;
esac
`, modes, victim)
	if err := errors.Join(os.WriteFile(uv, []byte(text), 0o700), os.WriteFile(victim, []byte("root's"), 0o600), os.Mkdir(tmp, 0o700)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("UV_CACHE_DIR", filepath.Join(top, "cache"))
	e := &Envs{log: slog.New(slog.DiscardHandler), tool: tool{deps: &run.Deps{UV: uv, Dir: top}, lock: make(chan struct{}, 1)}}
	observer := run.Observer{Step: func(string) {}, LogLine: func(line string) { t.Log(line) }}
	b := &build{Envs: e, title: "x", uv: uv, interpreter: "/bin/sh", spec: &Spec{Requirements: []string{"evil"}}, observer: observer, tmp: tmp}
	if _, err := b.runWithRetry(t.Context(), filepath.Join(tmp, "env")); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(modes); err != nil || string(b) != "drwx------\ndrwx------\n" {
		t.Errorf("the two builds begin in a folder with the modes %q (%v)", b, err)
	}
	if b, err := os.ReadFile(victim); err != nil || string(b) != "root's" {
		t.Errorf("the file outside is %q (%v)", b, err)
	}
}
