package deploy_test

import (
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/internal/testkit"
)

// script runs a script of the repository with variables of the form NAME=VALUE, and returns what it prints.
func script(t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", args...)
	cmd.Dir, cmd.Env = "..", append(os.Environ(), env...)
	b, err := cmd.CombinedOutput()
	return string(b), err
}

// list lists the files below a folder, with their modes.
func list(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		files = append(files, info.Mode().String()+" "+strings.TrimPrefix(path, dir))
		return err
	})
	testkit.NoError(t, err)
	return files
}

// TestInstall checks what make install and make uninstall change, for both systems.
func TestInstall(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	dest, share, program := filepath.Join(dir, "dest"), filepath.Join(dir, "share"), filepath.Join(dir, "program")
	for _, name := range []string{"man/man1/muster.1", "man/man1/muster-run.1", "man/man7/muster-states.7", "bash-completion/completions/muster", "zsh/site-functions/_muster", "fish/vendor_completions.d/muster.fish"} {
		testkit.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(share, name)), 0o755))
		testkit.NoError(t, os.WriteFile(filepath.Join(share, name), []byte(name), 0o600))
	}
	testkit.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o600))
	env := []string{"DESTDIR=" + dest, "PREFIX=/opt/muster", "PROGRAM=" + program, "SHARE=" + share, "TARGET=linux"}
	other := filepath.Join(dest, "opt/muster/share/man/man1/musterd.1")
	testkit.NoError(t, os.MkdirAll(filepath.Dir(other), 0o755))
	testkit.NoError(t, os.WriteFile(other, nil, 0o600))
	before := list(t, dest)
	for range 2 { // again over what is there
		if out, err := script(t, env, "scripts/install"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	want := []string{
		"-rwxr-xr-x /opt/muster/bin/muster",
		"-rw-r--r-- /opt/muster/lib/systemd/system/muster-server.service",
		"-rw-r--r-- /opt/muster/lib/systemd/system/muster-worker.service",
		"-rw-r--r-- /opt/muster/lib/systemd/user/muster-worker.service",
		"-rw-r--r-- /opt/muster/share/bash-completion/completions/muster",
		"-rw-r--r-- /opt/muster/share/fish/vendor_completions.d/muster.fish",
		"-rw-r--r-- /opt/muster/share/man/man1/muster-run.1",
		"-rw-r--r-- /opt/muster/share/man/man1/muster.1",
		"-rw------- /opt/muster/share/man/man1/musterd.1",
		"-rw-r--r-- /opt/muster/share/man/man7/muster-states.7",
		"-rwxr-xr-x /opt/muster/share/muster/postinstall.sh",
		"-rw-r--r-- /opt/muster/share/zsh/site-functions/_muster",
	}
	if got := list(t, dest); !slices.Equal(got, want) {
		t.Errorf("installed:\n%s", strings.Join(got, "\n"))
	}
	for _, unit := range []string{"system/muster-server", "system/muster-worker", "user/muster-worker"} {
		b, err := os.ReadFile(filepath.Join(dest, "opt/muster/lib/systemd", unit+".service"))
		testkit.NoError(t, err)
		if !strings.Contains(string(b), "\nExecStart=/opt/muster/bin/muster ") || strings.Contains(string(b), "/usr/bin/muster") {
			t.Errorf("%s starts another program: %s", unit, b)
		}
	}
	if out, err := script(t, env, "scripts/install", "--uninstall"); err != nil || !slices.Equal(list(t, dest), before) {
		t.Errorf("after uninstall (%v, %s):\n%s", err, out, strings.Join(list(t, dest), "\n"))
	}

	if out, err := script(t, append(env, "TARGET=darwin"), "scripts/install"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"server", "worker"} {
		b, err := os.ReadFile(filepath.Join(dest, "opt/muster/share/muster/launchd/dev.muster."+name+".plist"))
		if err != nil || !strings.Contains(string(b), "<string>/opt/muster/bin/muster</string>") {
			t.Errorf("%s: %v, %s", name, err, b)
		}
	}
	if out, err := script(t, env, "scripts/install", "--uninstall"); err != nil || !slices.Equal(list(t, dest), before) {
		t.Errorf("after uninstall (%v, %s):\n%s", err, out, strings.Join(list(t, dest), "\n"))
	}
	if out, err := script(t, append(env, "PREFIX=usr"), "scripts/install"); err == nil || !strings.Contains(out, "absolute path") {
		t.Errorf("a relative prefix: %v, %s", err, out)
	}
}

// TestVersions checks the versions of packages: package managers compare them.
func TestVersions(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3": "1.2.3", "1.2.3": "1.2.3", "v1.2.3-4-g0ffed3ba": "1.2.3+4.g0ffed3ba", "v1.2.3-4-g0ffed3ba-dirty": "1.2.3+4.g0ffed3ba.dirty", "v2.0.0-rc.1": "2.0.0~rc.1",
		"v2.0.0-rc.1-4-g0ffed3ba": "2.0.0~rc.1+4.g0ffed3ba", "0ffed3ba": "0.0.0+git20010909014640.0ffed3ba", "0ffed3ba-dirty": "0.0.0+git20010909014640.0ffed3ba.dirty",
		"12345678": "0.0.0+git20010909014640.12345678", "dev": "0.0.0+git20010909014640.dev",
	} {
		out, err := script(t, []string{"VERSION=" + version, "SOURCE_DATE_EPOCH=1000000000"}, "scripts/package", "--version")
		if err != nil || out != want+"\n" {
			t.Errorf("%s is %s(%v), not %s", version, out, err, want)
		}
	}
}

// TestPropertyLists checks that the files for launchd are XML.
func TestPropertyLists(t *testing.T) {
	names, err := fs.Glob(deploy.Files, "launchd/*.plist")
	if err != nil || len(names) != 2 {
		t.Fatalf("property lists: %v (%v)", names, err)
	}
	for _, name := range names {
		f, err := deploy.Files.Open(name)
		testkit.NoError(t, err)
		decoder := xml.NewDecoder(f)
		for err == nil {
			_, err = decoder.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
		testkit.NoError(t, f.Close())
	}
}
