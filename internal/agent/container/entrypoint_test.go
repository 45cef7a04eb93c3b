package container

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// newAllowlistEnv is one whose owner allows the worker's network or not, and whose program is a static one.
func newAllowlistEnv(t *testing.T, hostNetwork bool) *testEnv {
	t.Helper()
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("only root on Linux can give containers an allowlist")
	}
	w := newTestEnv(t, func(c *Config) { c.Allow = &muster.Allow{HostNetwork: hostNetwork} })
	w.program.self = "/bin/busybox" // the image contains it, so it exists and is static
	return w
}

// allowlistSpec is a box with an allowlist.
func allowlistSpec(image string, hosts []string, argv ...string) *run.ContainerSpec {
	b := newSpec(image, argv...)
	b.Task.Spec.Network, b.Task.Spec.AllowHosts = muster.NetworkAllowlist, hosts
	return b
}

// TestAllowlistWrapsTheEntrypoint checks that whatever a container executes, the gate does it, in a
// network without a way out.
func TestAllowlistWrapsTheEntrypoint(t *testing.T) {
	w := newAllowlistEnv(t, false)
	build := containertest.ShellImage(t)
	build.Entrypoint, build.Cmd = []string{"/bin/echo", "entry"}, []string{"command"}
	image := containertest.LoadImage(t, w.host, "e-gated", build)
	shell := allowlistSpec(image, []string{"pypi.org"}, "sh", "-c", "true")
	shell.HasInterpreter = true
	other := allowlistSpec(image, []string{"pypi.org"})
	other.Task.Spec.Container = &muster.Container{Entrypoint: []string{"/bin/ls"}}
	for name, c := range map[string]struct {
		box  *run.ContainerSpec
		want string
	}{
		"the image's own":          {allowlistSpec(image, []string{"pypi.org"}), "/bin/echo entry command"},
		"a command":                {allowlistSpec(image, []string{"pypi.org"}, "mine"), "/bin/echo entry mine"},
		"a shell":                  {shell, "sh -c true"},
		"another entrypoint alone": {other, "/bin/ls"},
	} {
		made := w.mustCreate(c.box)
		if !slices.Equal(made.AllowHosts, []string{"pypi.org"}) {
			t.Errorf("%s: it may reach %q", name, made.AllowHosts)
		}
		inspected, err := w.api.ContainerInspect(t.Context(), made.ID, client.ContainerInspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := slices.Concat(inspected.Container.Config.Entrypoint, inspected.Container.Config.Cmd)
		if want := entrypointPath + " gate proxy  " + c.want; strings.Join(got, " ") != want {
			t.Errorf("%s: it executes %q, want %q", name, got, want)
		}
		if mode := inspected.Container.HostConfig.NetworkMode; mode != "none" {
			t.Errorf("%s: its network is %s", name, mode)
		}
	}
	if made := w.mustCreate(newSpec(image, "mine")); made.AllowHosts != nil {
		t.Errorf("without an allowlist it may reach %q", made.AllowHosts)
	}
}

// TestUnsupportedAllowlist checks the error for an unsupported allowlist, with a reason that is not tried
// again, and that nothing is pulled or made.
func TestUnsupportedAllowlist(t *testing.T) {
	w := newAllowlistEnv(t, false)
	image := w.shell()
	_, err := w.create(allowlistSpec(image, []string{"http://pypi.org"}))
	wantTaskError(t, err, muster.TaskInvalid, "allow_hosts", "http://pypi.org")
	_, err = w.create(allowlistSpec(image, []string{"127.0.0.1:2375"}))
	wantTaskError(t, err, muster.Dependency, "owner does not allow", "loopback")
	_, err = newAllowlistEnv(t, true).create(allowlistSpec(image, []string{"127.0.0.1:2375"}))
	if err != nil {
		t.Errorf("allowed by the owner: %v", err)
	}
	if muster.Dependency.FleetFault() {
		t.Error("a permanent failure of a worker would be retried repeatedly")
	}
	if cause := w.AllowlistUnavailable(); cause != nil {
		t.Errorf("unexpected reason against a supported allowlist: %v", cause)
	}
	w.program.self = "/bin/bash"
	if _, err := os.Stat(w.program.self); err == nil {
		_, err = w.create(allowlistSpec(image, []string{"pypi.org"}))
		wantTaskError(t, err, muster.Dependency, "needs shared libraries")
		_, err = w.create(allowlistSpec("127.0.0.1:1/acme/nothere:1", []string{"pypi.org"}))
		wantTaskError(t, err, muster.Dependency, "needs shared libraries") // before anything is pulled
		if cause := w.AllowlistUnavailable(); cause == nil {
			t.Error("the worker does not report its missing features")
		}
	}
	w.program.self = filepath.Join(t.TempDir(), "nothing")
	_, err = w.create(allowlistSpec(image, []string{"pypi.org"}))
	wantTaskError(t, err, muster.Dependency, "its own program cannot be read")
	remote, err := docker.Open("tcp://192.0.2.1:2375")
	if err != nil {
		t.Fatal(err)
	}
	defer remote.Close()
	remoteCtrs := &Containers{cfg: Config{Engine: remote, Log: w.cfg.Log}}
	_, err = remoteCtrs.addEntrypoint(&docker.ContainerSpec{}, allowlistSpec(image, []string{"pypi.org"}), &docker.Image{}, w.About())
	wantTaskError(t, err, muster.Dependency, "not on the worker's own machine")
}

// TestProgramCopy checks that a copy of the program is made once for a build, and replaces
// that of an earlier one.
func TestProgramCopy(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("containers are of Linux")
	}
	dir := t.TempDir()
	static := "/bin/busybox"
	if _, err := os.Stat(static); err != nil {
		t.Skip("no static /bin/busybox on this machine")
	}
	g := &ProgramCopy{self: static}
	path, err := g.Copy(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Fatalf("%v %v", info.Mode(), err)
	}
	again, err := (&ProgramCopy{self: static}).Copy(dir, true)
	if err != nil || again != path {
		t.Errorf("another incarnation creates %s: %v", again, err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(info, after) {
		t.Errorf("it was created again: %v", err)
	}
	b, err := os.ReadFile(static)
	if err != nil {
		t.Fatal(err)
	}
	build := filepath.Join(t.TempDir(), "build")
	if err := os.WriteFile(build, append(b, 0), 0o600); err != nil {
		t.Fatal(err)
	}
	other, err := (&ProgramCopy{self: build}).Copy(dir, true)
	if err != nil || other == path {
		t.Errorf("another build makes %s: %v", other, err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("there are %v: %v", list, err)
	}
	if err := os.Remove(path); err == nil {
		t.Error("the one of the earlier build exists")
	}
	if path, err = g.Copy(dir, true); err != nil || path == other {
		t.Errorf("a removed one is not created again: %v", err)
	}
}
