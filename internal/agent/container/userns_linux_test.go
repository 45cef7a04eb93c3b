package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/userns"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// ids are enough for ten containers at once.
const ids = "containers:1000000:655360"

// shellSpec is a task that runs a script in a container without network, with the folder base at /muster.
func (w *testEnv) shellSpec(base, script string, opts muster.Container) *run.ContainerSpec {
	w.t.Helper()
	b := specWith(w.shell(), opts, "sh", "-c", script)
	b.HasInterpreter, b.Task.Spec.Network = true, muster.NetworkNone
	b.Mounts = []run.Mount{{Source: base, Target: "/muster"}}
	return b
}

// privateDir returns a folder that only root may enter, with a file in.
func privateDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "private")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "in"), []byte("input\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// ownerOf returns the user and group of a file, such as 0:0.
func ownerOf(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t) //nolint:forcetypeassert // on Linux
	return fmt.Sprintf("%d:%d", st.Uid, st.Gid)
}

// TestOwnUserNamespaces checks that root in a container of Podman is no user of the machine and of no other container, that its files have on the
// disk the owners that they have in the container, and what a namespace could be in the way of.
func TestOwnUserNamespaces(t *testing.T) {
	if !containertest.WithSubordinateIDs(t, ids) {
		return
	}
	w := newTestEnvAt(t, containertest.StartPodman(t), func(c *Config) { c.Allow = &muster.Allow{HostNetwork: true} })
	if w.users.Mode != userns.Own {
		t.Fatalf("containers have %+v", w.users)
	}
	t.Run("files", func(t *testing.T) {
		base := privateDir(t)
		out, code := w.runContainer(w.shellSpec(base, "cat /muster/in; echo x >/muster/root; echo x >/muster/user; chown 1000:1001 /muster/user; chmod 4755 /muster/user; exit 3", muster.Container{}))
		if out != "input\n" || code != 3 {
			t.Errorf("it printed %q and exited with %d", out, code)
		}
		if root, user := ownerOf(t, filepath.Join(base, "root")), ownerOf(t, filepath.Join(base, "user")); root != "0:0" || user != "1000:1001" {
			t.Errorf("the files belong to %s and %s", root, user)
		}
	})
	t.Run("another user", func(t *testing.T) {
		base, opened := privateDir(t), false
		b := w.shellSpec(base, "id -u; id -g; echo x >/muster/out", muster.Container{User: "1000:1001"})
		b.OpenMounts = func() error { opened = true; return os.Chmod(base, 0o777) }
		if out, _ := w.runContainer(b); out != "1000\n1001\n" || !opened || ownerOf(t, filepath.Join(base, "out")) != "1000:1001" {
			t.Errorf("it printed %q, opened: %t", out, opened)
		}
	})
	t.Run("no user", func(t *testing.T) {
		_, err := w.create(w.shellSpec(privateDir(t), "true", muster.Container{User: "70000"}))
		wantTaskError(t, err, muster.StartFailed, "70000", "0 to 65535")
	})
	t.Run("the network of the machine", func(t *testing.T) {
		b := w.shellSpec(privateDir(t), "cat /sys/class/net/lo/mtu; cat /proc/self/uid_map; echo x >/sys/class/net/lo/mtu", muster.Container{})
		b.Task.Spec.Network = muster.NetworkHost
		if out, code := w.runContainer(b); code == 0 || !strings.HasPrefix(out, "65536\n") || strings.Contains(out, "4294967295") || !strings.Contains(out, "Read-only file system") {
			t.Errorf("it printed %q and exited with %d", out, code)
		}
	})
	t.Run("outside", func(t *testing.T) {
		seen := map[uint32]bool{}
		for range 2 {
			c := w.mustCreate(w.shellSpec(privateDir(t), "exec sleep 600", muster.Container{}))
			if err := w.cfg.Engine.Start(t.Context(), c.ID); err != nil {
				t.Fatal(err)
			}
			w.Started(c)
			state, err := w.cfg.Engine.State(t.Context(), c.ID)
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat("/proc/" + strconv.Itoa(state.PID))
			if err != nil {
				t.Fatal(err)
			}
			uid := info.Sys().(*syscall.Stat_t).Uid //nolint:forcetypeassert // on Linux
			if uid < 1000000 || uid >= 1000000+655360 || (uid-1000000)%userns.Size != 0 || seen[uid] {
				t.Errorf("root is user %d outside, after %v", uid, seen)
			}
			seen[uid] = true
			if err := w.cfg.Engine.Kill(t.Context(), c.ID, ""); err != nil {
				t.Error(err)
			}
		}
	})
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || len(w.staging.held) > 0 || strings.Contains(string(mounts), w.staging.dir) {
		t.Errorf("%v: something is still mounted below %s", err, w.staging.dir)
	}
}

// TestMountsThatCannotBeMapped checks that a file system without idmapped mounts is there with the permissions of others, and that the log says so.
func TestMountsThatCannotBeMapped(t *testing.T) {
	if !containertest.WithSubordinateIDs(t, ids) {
		return
	}
	dir := t.TempDir()
	if err := unix.Mount("muster", dir, "ramfs", 0, "mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "open"), []byte("open\n"), 0o644), os.WriteFile(filepath.Join(dir, "shut"), []byte("shut\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	w := newTestEnvAt(t, containertest.StartPodman(t), func(c *Config) { c.Allow = &muster.Allow{Mounts: []string{dir}} })
	b := w.shellSpec(privateDir(t), "cat /data/open /data/shut; echo x >/data/open; touch /data/new; chmod 777 /data/shut", muster.Container{Mounts: []muster.Mount{{Source: dir, Target: "/data"}}})
	out, code := w.runContainer(b)
	if code == 0 || !strings.Contains(out, "open\n") || strings.Contains(out, "shut\n") {
		t.Errorf("it printed %q and exited with %d", out, code)
	}
	if text, _ := os.ReadFile(filepath.Join(dir, "open")); string(text) != "open\n" {
		t.Errorf("the file is %q", text)
	}
	if !strings.Contains(w.lines.String(), "/data: its file system does not support user namespaces") {
		t.Errorf("the log is %s", &w.lines)
	}
}

// TestEngineWithOtherMounts checks that an engine gets mounts that it does not see, those of specs as well, as if the worker runs with ProtectSystem of systemd.
func TestEngineWithOtherMounts(t *testing.T) {
	if !containertest.WithSubordinateIDs(t, ids) {
		return
	}
	for _, mode := range []userns.Mode{userns.Own, userns.None} {
		allowed, base := privateDir(t), privateDir(t)
		w := newTestEnvAt(t, containertest.StartPodman(t, "unshare", "--mount", "--propagation", "private"), func(c *Config) { c.Allow = &muster.Allow{Mounts: []string{allowed}} })
		if w.users.Mode != userns.Own || !w.staging.engine.HasOtherMounts() {
			t.Fatalf("containers have %+v", w.users)
		}
		w.users.Mode, w.users.Mount = mode, mode == userns.Own
		if err := unix.Mount("muster", base, "tmpfs", 0, "mode=0700"); err != nil { // of this process only
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(base, unix.MNT_DETACH) })
		if err := os.WriteFile(filepath.Join(base, "in"), []byte("mounted\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		b := w.shellSpec(base, "cat /data/in /muster/in; echo x >/data/out", muster.Container{Mounts: []muster.Mount{{Source: allowed, Target: "/data"}}})
		want := "input\nmounted\n"
		if mode == userns.None { // the task's own folder is bound by its path
			want = "input\n"
			b.Mounts[0].Source = privateDir(t)
			b.Argv[len(b.Argv)-1] = "cat /data/in; echo x >/data/out"
		}
		if out, code := w.runContainer(b); out != want || code != 0 {
			t.Errorf("%s: it printed %q and exited with %d", mode, out, code)
		}
		if owner := ownerOf(t, filepath.Join(allowed, "out")); owner != "0:0" {
			t.Errorf("%s: the file belongs to %s", mode, owner)
		}
		if len(w.staging.held) > 0 {
			t.Errorf("%s: %v is still mounted", mode, w.staging.held)
		}
	}
}

// TestNoSubordinateIDsLeft checks what happens when all ids are in use.
func TestNoSubordinateIDsLeft(t *testing.T) {
	if !containertest.WithSubordinateIDs(t, "containers:1000000:65536") {
		return
	}
	w := newTestEnvAt(t, containertest.StartPodman(t), nil)
	first := w.mustCreate(w.shellSpec(privateDir(t), "true", muster.Container{}))
	_, err := w.create(w.shellSpec(privateDir(t), "true", muster.Container{}))
	wantTaskError(t, err, muster.EngineFailed, "/etc/subuid")
	if err := w.Remove(t.Context(), first); err != nil {
		t.Error(err)
	}
	w.mustCreate(w.shellSpec(privateDir(t), "true", muster.Container{}))
}

// TestNoSubordinateIDs checks that containers are as before on machines without ids for them.
func TestNoSubordinateIDs(t *testing.T) {
	if !containertest.WithSubordinateIDs(t, "other:1000000:65536") {
		return
	}
	w := newTestEnvAt(t, containertest.StartPodman(t), nil)
	if w.users.Mode != userns.None || !strings.Contains(w.users.Why, "/etc/subuid") {
		t.Errorf("containers have %+v", w.users)
	}
	base := privateDir(t)
	if out, code := w.runContainer(w.shellSpec(base, "cat /muster/in /proc/self/uid_map; echo x >/muster/out", muster.Container{})); code != 0 || !strings.Contains(out, "4294967295") {
		t.Errorf("it printed %q and exited with %d", out, code)
	}
}

// TestRemappingEngine checks that containers of Docker with userns-remap use the folders of a worker of root as they are.
func TestRemappingEngine(t *testing.T) {
	if !containertest.WithSubordinateIDs(t, "nobody:3000000:65536") {
		return
	}
	d := containertest.StartDaemon(t, "--userns-remap", "65534:65534") // which is nobody
	w := newTestEnvAt(t, d.Host(), nil)
	if w.users.Mode != userns.Shared || !w.users.Mount || w.About().RemappedTo != 3000000 {
		t.Fatalf("containers have %+v of %+v", w.users, w.About())
	}
	base := privateDir(t)
	b := w.shellSpec(base, "cat /muster/in /proc/self/uid_map; echo x >/muster/out", muster.Container{})
	b.OpenMounts = func() error { t.Error("the folder was opened to all users"); return nil }
	out, code := w.runContainer(b)
	if code != 0 || !strings.HasPrefix(out, "input\n") || strings.Fields(out)[2] != "3000000" {
		t.Errorf("it printed %q and exited with %d", out, code)
	}
	if owner := ownerOf(t, filepath.Join(base, "out")); owner != "0:0" {
		t.Errorf("the file belongs to %s", owner)
	}
}
