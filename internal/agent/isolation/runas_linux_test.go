package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/internal/agent/run"
)

// ids returns the user and the group of a task.
func (t *task) ids() (uid, gid int) {
	t.env.Helper()
	out, _ := t.shell("id -u; id -g").wait()
	if _, err := fmt.Sscan(out, &uid, &gid); err != nil {
		t.env.Fatalf("%q: %v", out, err)
	}
	return uid, gid
}

// TestEachTaskHasItsOwnUser checks that each task of a worker that runs as root has its own user, with and without a sandbox.
func TestEachTaskHasItsOwnUser(t *testing.T) {
	requireRoot(t)
	for _, mode := range []Mode{Auto, Off} {
		w := newEnv(t, func(c *Config) { c.Sandbox = mode })
		seen := map[int]bool{}
		for range 5 {
			task := w.task(nil)
			uid, gid := task.ids()
			if uid != gid || uid < firstNarrowUID || seen[uid] {
				t.Errorf("the task is user %d of group %d, the others are %v", uid, gid, seen)
			}
			seen[uid] = true
			task.expect("id -G; umask", strconv.Itoa(gid)+"\n0022", 0)
			task.expect("grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status | tr -d '\\n\\t 0'; grep NoNewPrivs /proc/self/status | tr -d '\\t'", "CapInh:CapPrm:CapEff:CapBnd:CapAmb:NoNewPrivs:1", 0)
			task.expectDenied("cat " + filepath.Join(w.data, "identity"))
			task.expect("echo x >../out/y && echo x >"+task.folders.Checkpoint+"/y && echo x >../tmp/y && cat ../out/y", "x", 0)
		}
	}
}

// TestSocketsOfRootAreInaccessible checks that tasks can neither connect to named sockets of root, nor capture the machine's traffic.
func TestSocketsOfRootAreInaccessible(t *testing.T) {
	requireRoot(t)
	python := requirePython(t)
	closed := t.TempDir()
	open, err := os.MkdirTemp("", "limit") //nolint:usetesting // where everybody comes to
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(open) })
	if err := errors.Join(os.Chmod(closed, 0o700), os.Chmod(open, 0o755)); err != nil {
		t.Fatal(err)
	}
	w := newEnv(t, nil)
	for _, dir := range []string{closed, open} {
		path := filepath.Join(dir, "x.sock")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		if err := os.Chmod(path, 0o660); err != nil {
			t.Fatal(err)
		}
		w.task(nil).expectDenied(python + ` -c 'import socket; socket.socket(socket.AF_UNIX).connect("` + path + `")'`)
	}
	for _, name := range []string{"", RootUser} {
		w := newEnv(t, func(c *Config) { c.TaskUser = name })
		w.task(nil).expectDenied(python + " -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)'")
		w.task(nil).expectDenied(python + " -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)'")
	}
}

func requirePython(t *testing.T) string {
	t.Helper()
	const python = "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		t.Skip("there is no " + python + " to make sockets with")
	}
	return python
}

// TestOtherProcessesAreHidden checks that a task sees only its own processes, for any user.
func TestOtherProcessesAreHidden(t *testing.T) {
	requireRoot(t)
	requireView(t)
	for _, name := range []string{"", "nobody", RootUser} {
		w := newEnv(t, func(c *Config) { c.TaskUser = name })
		if name != "" && w.limits.paths == nil {
			continue // the sandbox separates tasks of one user
		}
		other, task := w.task(nil), w.task(nil)
		p := other.shell("echo on; sleep 1000")
		p.readLine()
		for _, pid := range []int{1, os.Getpid(), p.pid} {
			task.expectDenied("cat /proc/" + strconv.Itoa(pid) + "/cmdline")
			task.expectDenied("ls /proc/" + strconv.Itoa(pid) + "/fd")
		}
		task.expect("set -- /proc/[0-9]*; echo $#", "1", 0) // the shell itself
		task.expect("sleep 1000 & until grep -q ^sleep /proc/$!/cmdline; do :; done; kill $!; echo found", "found", 0)
		task.expect("grep -c MemTotal /proc/meminfo; test -r /proc/cpuinfo && test -d /proc/sys/kernel && echo more", "1\nmore", 0)
	}
}

// TestCheckpointsMoveBetweenUsers checks that the next attempt may change the files of the previous one, including links, and that the owner
// of a file outside of the folder is not changed.
func TestCheckpointsMoveBetweenUsers(t *testing.T) {
	requireRoot(t)
	w := newEnv(t, nil)
	first := w.task(nil)
	deep := strings.Repeat("n/", 2*maxDepth)
	first.expect("cd "+first.folders.Checkpoint+" && mkdir -p "+deep+" && echo deep >"+deep+"f && mkdir -m 700 d && echo a >d/a && ln d/a b && ln -s /etc/passwd s && chmod 600 b", "", 0)
	w.limits.Release(first.spec)
	w.n--
	second := w.task(nil)
	if a, b := first.spec.User.UID, second.spec.User.UID; a == b {
		t.Errorf("both are user %d", a)
	}
	second.expect("cd "+second.folders.Checkpoint+" && echo er >>"+deep+"f && cat "+deep+"f && rm -r n", "deep\ner", 0)
	second.expect("cd "+second.folders.Checkpoint+" && echo more >>d/a && cat b && rm d/a && test -L s", "a\nmore", 0)
	if st, err := os.Stat("/etc/passwd"); err != nil {
		t.Error(err)
	} else if of, _ := fileStatOf(st); of.uid != 0 {
		t.Errorf("the owner of a file outside was changed to user %d through a link", of.uid)
	}
}

// TestUsersAreStored checks that the user of an attempt from before a restart is not assigned to another attempt, and is free after its end.
func TestUsersAreStored(t *testing.T) {
	requireRoot(t)
	w := newEnv(t, nil)
	a := w.limits.runAs.uids
	old := &run.IsolationSpec{User: &run.User{UID: a.first + reservedUIDs + 1, Dynamic: true}}
	if err := w.limits.Sweep(old); err != nil {
		t.Fatal(err)
	}
	a.count, a.next = reservedUIDs+3, 0
	one, two := w.task(nil), w.task(nil)
	if slices.Contains([]uint32{one.spec.User.UID, two.spec.User.UID}, old.User.UID) {
		t.Errorf("an attempt became user %d, which an earlier one is", old.User.UID)
	}
	if _, err := w.try(nil); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("one too many: %v", err)
	}
	w.limits.Release(old)
	if three := w.task(nil); three.spec.User.UID != old.User.UID {
		t.Errorf("an attempt is user %d, want %d, which was released", three.spec.User.UID, old.User.UID)
	}
}

// TestSharedFolders checks that all tasks can change what they share, whatever user created it, and nothing else.
func TestSharedFolders(t *testing.T) {
	requireRoot(t)
	w := newEnv(t, nil)
	dir := filepath.Join(w.data, "models")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "old"), 0o700), os.WriteFile(filepath.Join(dir, "old", "f"), []byte("of root\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	sharing := func() *task {
		w.sharing = dir
		defer func() { w.sharing = "" }()
		return w.task(nil)
	}
	one := sharing()
	one.expect("cd "+dir+" && echo one >>old/f && mkdir -p a/b && echo one >a/b/c && umask 077 && echo own >private", "", 0)
	two := sharing()
	two.expect("cd "+dir+" && cat old/f a/b/c private && echo two >>a/b/c && mv a/b/c a/d && mkdir a/b/e && rm private", "of root\none\none\nown", 0)
	w.task(nil).expectDenied("ls " + dir)
	if st, err := os.Stat(one.folders.Work); err != nil || st.Mode() != fs.ModeDir|0o700 {
		t.Errorf("the folder of a task has the mode %v: %v", st.Mode(), err)
	}
}

// TestToolsRunUnprivileged checks that what builds packages for tasks is no user of theirs and not root, with its folders.
func TestToolsRunUnprivileged(t *testing.T) {
	requireRoot(t)
	w := newEnv(t, nil)
	tmp, cache := filepath.Join(w.data, "envs", ".build"), filepath.Join(w.data, "cache", "uv")
	if err := errors.Join(os.MkdirAll(tmp, 0o700), os.MkdirAll(cache, 0o700), os.WriteFile(filepath.Join(cache, "f"), nil, 0o600), os.Link(filepath.Join(cache, "f"), filepath.Join(w.data, "envs", "f"))); err != nil {
		t.Fatal(err)
	}
	c := w.limits.PrepareTool(nil, []string{tmp, cache})
	p, err := spawnIn(t, c, tmp, "/bin/sh", "sh", "-c", "id -u; echo x >here && echo x >>"+cache+"/f && grep CapBnd /proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%d\nCapBnd:\t%016d", w.limits.runAs.uids.builderUID(), 0)
	if out, code := p.wait(); out != want || code != 0 {
		t.Errorf("it prints %q and exits with %d, want %q", out, code, want)
	}
	if c := w.limits.PrepareTool(nil, []string{t.TempDir()}); c.User != nil {
		t.Errorf("the owner of a folder outside the data dir was changed to user %d", c.User.UID)
	}
}

func TestUIDPool(t *testing.T) {
	all := func(uint32, uint32) bool { return true }
	narrow := func(first, count uint32) bool { return first+count <= 1<<16 }
	for data := range 100 {
		a := newUIDPool(strconv.Itoa(data), all)
		if a.first < firstUID || a.first+a.count-1 > lastUID || a.count != uidsPerWorker {
			t.Errorf("%+v", a)
		}
		if a := newUIDPool(strconv.Itoa(data), narrow); a.first != firstNarrowUID || a.first+a.count-1 != lastNarrowUID {
			t.Errorf("where 16 bits are mapped: %+v", a)
		}
	}
	if a := newUIDPool("x", func(uint32, uint32) bool { return false }); a != nil {
		t.Errorf("where none is mapped: %+v", a)
	}
	a := newUIDPool("x", all)
	last := uint32(0)
	for range 3 * uidsPerWorker {
		uid, err := a.acquire()
		if err != nil || uid == last || uid < a.first+reservedUIDs || uid >= a.first+a.count {
			t.Fatalf("user %d after %d: %v", uid, last, err)
		}
		a.release(uid)
		last = uid
	}
}

// TestDeviceGroups checks that only groups that may use a GPU are those of tasks with one.
func TestDeviceGroups(t *testing.T) {
	var want []uint32
	for _, pattern := range []string{"/dev/nvidia*", "/dev/dri/*", "/dev/kfd"} {
		for _, path := range glob(pattern) {
			var st unix.Stat_t
			if unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Mode&0o060 == 0o060 && st.Gid != 0 {
				want = append(want, st.Gid)
			}
		}
	}
	for _, gid := range deviceGroups() {
		if !slices.Contains(want, gid) {
			t.Errorf("group %d, the groups of devices are %v", gid, want)
		}
	}
}
