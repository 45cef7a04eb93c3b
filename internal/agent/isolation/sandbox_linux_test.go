package isolation

import (
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation/landlock"
	"github.com/muster-dev/muster/internal/agent/run"
)

func TestTasksAccessOnlyTheirFiles(t *testing.T) {
	requireLandlock(t, 1)
	home, err := os.UserHomeDir()
	if err != nil {
		t.Skip("this user has no home")
	}
	ownerFile, err := os.CreateTemp(home, ".limit-test-")
	if err != nil {
		t.Skipf("cannot write to the owner's home: %v", err)
	}
	t.Cleanup(func() { _, _ = ownerFile.Close(), os.Remove(ownerFile.Name()) })
	w := newEnv(t, nil)
	other := w.task(func(*run.Task) { w.write(filepath.Join(w.data, "tasks", "17.1-1", "work", "secret"), "another's") })
	task := w.task(func(*run.Task) { w.write(filepath.Join(w.data, "tasks", "17.2-1", "work", "input"), "mine") })

	for _, path := range []string{
		filepath.Join(w.data, "identity"), w.data, filepath.Join(w.data, "tasks"), filepath.Join(w.data, "cgroups"),
		other.folders.Work, filepath.Join(other.folders.Work, "secret"), other.folders.Checkpoint,
		home, ownerFile.Name(), filepath.Dir(w.data),
	} {
		task.expectDenied("if [ -d " + path + " ]; then ls " + path + "; else cat " + path + "; fi")
		task.expectDenied("setsid sh -c '(cat " + path + "/* || cat <" + path + ")'") // it holds for all that is started
	}
	task.expect("cat input", "mine", 0)
	for _, dir := range []string{task.folders.Work, task.folders.Out, task.folders.Tmp, task.folders.Checkpoint} {
		task.expect("cd "+dir+" && mkdir a && echo x >a/b && mv a/b c && ln c d && ln -s c e && cat e && rm -r a c d e", "x", 0)
	}
	for _, script := range []string{
		"echo x >" + filepath.Join(w.data, "new"), "echo x >>" + filepath.Join(w.data, "identity"), "rm " + filepath.Join(w.data, "identity"),
		"mv " + task.folders.Work + "/input " + other.folders.Work,
		"echo x >/etc/limit-test", "mkdir /tmp/limit-test", "echo x >/proc/self/comm", "touch /usr/limit-test",
		": >" + filepath.Join(other.folders.Work, "secret"),
	} {
		task.expectDenied(script)
	}
	if out, code := task.shell("ln " + filepath.Join(w.data, "identity") + " here").wait(); code == 0 {
		t.Errorf("the worker's identity has another name: %s", out)
	}
	for path, want := range map[string]string{filepath.Join(w.data, "identity"): "the worker's token", filepath.Join(other.folders.Work, "secret"): "another's"} {
		if b, err := os.ReadFile(path); err != nil || string(b) != want {
			t.Errorf("%s holds %q: %v", path, b, err)
		}
	}
	task.expect("echo a >/dev/stdout; echo b >/dev/null; echo c >/dev/fd/2; head -c 1 /dev/urandom | wc -c; echo d >/dev/shm/$$ && rm /dev/shm/$$; ls /dev | grep -c '^null$'", "a\nc\n1\n1", 0)
}

func TestProgramsOutsideTheSandboxAreDenied(t *testing.T) {
	requireLandlock(t, 1)
	w := newEnv(t, nil)
	path := filepath.Join(t.TempDir(), "tool")
	if err := errors.Join(os.WriteFile(path, []byte("#!/bin/sh\n"), 0o600), os.Chmod(path, 0o755)); err != nil {
		t.Fatal(err)
	}
	_, err := w.task(nil).spawn(path, "tool")
	if te, ok := errors.AsType[*run.TaskError](err); !ok || te.Reason != muster.StartFailed || !strings.Contains(te.Message, "--allow-read") {
		t.Errorf("the error is %v", err)
	}
}

// TestTruncateIsDenied checks that a file which may not be written may not be emptied, either.
func TestTruncateIsDenied(t *testing.T) {
	requireLandlock(t, landlock.TruncateABI)
	w := newEnv(t, nil)
	path := filepath.Join(w.data, "identity")
	task := w.task(nil)
	task.expectDenied("truncate -s 0 " + path)
	if st, err := os.Stat(path); err != nil || st.Size() == 0 {
		t.Errorf("the file was cut off: %v", err)
	}
}

func TestSuperuserInTheSandbox(t *testing.T) {
	requireRoot(t)
	requireLandlock(t, 1)
	w := newEnv(t, func(c *Config) { c.TaskUser = RootUser })
	task := w.task(nil)
	task.expect("id -u", "0", 0)
	for _, script := range []string{
		"cat /etc/shadow", "mknod null c 1 3", "mount -t tmpfs none .", "chroot / cat " + filepath.Join(w.data, "identity"),
		"date -s @0", "unshare -m true", "nsenter -t " + strconv.Itoa(os.Getpid()) + " -m cat " + filepath.Join(w.data, "identity"),
	} {
		task.expectDenied(script)
	}
	task.expect("head -n 1 /etc/passwd | cut -d: -f1", "root", 0)
	status, _ := task.shell("grep CapBnd /proc/self/status; grep CapEff /proc/self/status").wait()
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		caps, err := strconv.ParseUint(value, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []int{unix.CAP_SYS_ADMIN, unix.CAP_SYS_MODULE, unix.CAP_SYS_PTRACE, unix.CAP_MKNOD, unix.CAP_NET_ADMIN, unix.CAP_DAC_READ_SEARCH, unix.CAP_NET_RAW, unix.CAP_SYS_CHROOT} {
			if caps&(1<<c) != 0 {
				t.Errorf("the task has capability %d in %s", c, name)
			}
		}
	}
}

// TestOtherProcessesAreInaccessible checks that a task of the same user reaches neither this
// process nor another task.
func TestOtherProcessesAreInaccessible(t *testing.T) {
	requireLandlock(t, landlock.StrictABI)
	w := newEnv(t, nil)
	other, task := w.task(nil), w.task(nil)
	p := other.shell("echo on; sleep 1000")
	p.readLine()
	for _, pid := range []int{os.Getpid(), p.pid} {
		id := strconv.Itoa(pid)
		task.expectDenied("kill -0 " + id)
		task.expectDenied("kill -CONT -" + strconv.Itoa(p.pid))
		for _, file := range []string{"environ", "mem", "maps"} {
			task.expectDenied("cat /proc/" + id + "/" + file)
		}
		task.expectDenied("ls /proc/" + id + "/root/ && ls /proc/" + id + "/cwd/") // links that lead out
		task.expectDenied("readlink -v /proc/" + id + "/fd/1")
	}
	task.expect("sleep 1000 & kill $!; wait $! 2>/dev/null; echo $?", "143", 0)
	if err := unix.Kill(p.pid, 0); err != nil {
		t.Errorf("the other task has exited: %v", err)
	}
}

func TestAbstractSockets(t *testing.T) {
	requireLandlock(t, landlock.StrictABI)
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip("/usr/bin/python3 is not installed")
	}
	l, err := net.Listen("unix", "@limit-test-"+strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	w := newEnv(t, nil)
	w.task(nil).expectDenied(`/usr/bin/python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect("\0limit-test-` + strconv.Itoa(os.Getpid()) + `")'`)
}

func TestNoNewPrivileges(t *testing.T) {
	requireRoot(t)
	nobody := requireUser(t)
	var tool string
	w := newEnv(t, func(c *Config) {
		tool = filepath.Join(filepath.Dir(c.Data), "id")
		b, err := os.ReadFile("/usr/bin/id")
		if err != nil {
			t.Skip("/usr/bin/id is not installed")
		}
		if err := errors.Join(os.WriteFile(tool, b, 0o600), os.Chmod(tool, fs.ModeSetuid|0o755)); err != nil {
			t.Fatal(err)
		}
		c.TaskUser, c.Read = nobody.Username, []string{tool}
	})
	// Skip on a file system with nosuid.
	plain, err := spawnIn(t, &run.IsolationSpec{User: w.limits.runAs.named}, "/", tool, "id", "-u")
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := plain.wait(); out != "0" {
		t.Skipf("programs that set their user have no effect here: it is %s", out)
	}
	if out, code := w.task(nil).start(tool, "id", "-u").wait(); out != nobody.Uid || code != 0 {
		t.Errorf("a program that sets its user runs as %s and exits with %d, want %s", out, code, nobody.Uid)
	}
}

func requireUser(t *testing.T) *user.User {
	t.Helper()
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Skip("there is no user nobody")
	}
	return u
}

func TestCanReach(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has tasks of another user")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip("there is no user nobody")
	}
	if reach := (&Config{TaskUser: RootUser}).CanReach(); reach != nil {
		t.Error("tasks of the worker's own user cannot reach the same paths")
	}
	private := filepath.Join(t.TempDir(), "private")
	if err := os.MkdirAll(filepath.Join(private, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(private, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", nobody.Username} {
		reach := (&Config{TaskUser: name}).CanReach()
		for dir, want := range map[string]bool{"/usr/bin": true, "/bin": true, private: false, filepath.Join(private, "bin"): false, "/no/such": false} {
			for range 2 { // the second answer was kept
				if reach(dir) != want {
					t.Errorf("%s, with the user %q: %t", dir, name, !want)
				}
			}
		}
		reach = (&Config{TaskUser: name, Read: []string{filepath.Join(private, "bin")}}).CanReach()
		for dir, want := range map[string]bool{private: true, filepath.Join(private, "bin"): true, filepath.Dir(private): true} {
			if reach(dir) != want {
				t.Errorf("%s, in which something is to be read, with the user %q: %t", dir, name, !want)
			}
		}
	}
}

func TestTaskUser(t *testing.T) {
	requireRoot(t)
	nobody := requireUser(t)
	w := newEnv(t, func(c *Config) {
		c.TaskUser = nobody.Username
		if err := os.Mkdir(filepath.Join(c.Data, "sdk"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(c.Data, "sdk", "muster.py"), []byte("module"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	link := ""
	task := w.task(func(*run.Task) {
		dir := filepath.Join(w.data, "tasks", "17.1-1", "work")
		w.write(filepath.Join(dir, "input"), "mine")
		link = filepath.Join(dir, "link")
		if err := os.Symlink(filepath.Join(w.data, "identity"), link); err != nil {
			t.Fatal(err)
		}
	})
	task.expect("id -u; id -g", nobody.Uid+"\n"+nobody.Gid, 0)
	task.expect("cat input && echo more >>input && echo out >../out/result && echo c >"+task.folders.Checkpoint+"/c && cat ../../../sdk/muster.py", "mine"+"module", 0)
	task.expect("echo err >/dev/stderr", "err", 0)
	task.expectDenied("cat " + filepath.Join(w.data, "identity"))
	task.expectDenied("cat link")
	task.expectDenied("ls " + w.data)
	if b, err := os.ReadFile(filepath.Join(task.folders.Out, "result")); err != nil || string(b) != "out\n" {
		t.Errorf("the task's files are %q: %v", b, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(w.data, "identity"), &st); err != nil || st.Uid != 0 || st.Mode&0o077 != 0 {
		t.Errorf("the worker's identity is of user %d, with mode %o: %v", st.Uid, st.Mode, err)
	}

	other := w.task(nil)
	if landlock.ABI() > 0 {
		other.expectDenied("cat " + filepath.Join(task.folders.Work, "input"))
	}
}

// TestHardLinks checks that the owner of a file outside is not changed through a hard link.
func TestHardLinks(t *testing.T) {
	requireRoot(t)
	nobody := requireUser(t)
	w := newEnv(t, func(c *Config) { c.TaskUser = nobody.Username })
	_, err := w.try(func(*run.Task) {
		if err := os.Link(filepath.Join(w.data, "identity"), filepath.Join(w.data, "tasks", "17.1-1", "work", "x")); err != nil {
			t.Fatal(err)
		}
	})
	if te, ok := errors.AsType[*run.TaskError](err); !ok || te.Reason != muster.WorkerInternal || !strings.Contains(te.Message, "other names") {
		t.Errorf("the file changed its owner: %v", err)
	}
}

// TestDataDirOnlyRootCanReach checks that tasks can work in a data dir below a folder of root, and see nothing else in that folder.
func TestDataDirOnlyRootCanReach(t *testing.T) {
	requireRoot(t)
	requireUser(t)
	requireView(t)
	before := syscall.Umask(0o077) // as on hardened machines
	defer syscall.Umask(before)
	for _, name := range []string{"", "nobody"} {
		var closed, shown string
		w := newEnv(t, func(c *Config) {
			closed = filepath.Dir(c.Data)
			shown = filepath.Join(closed, "a", "b", "shown") // below folders that the view makes
			c.TaskUser, c.Sandbox, c.Expose = name, Off, []string{shown}
			err := errors.Join(os.Chmod(closed, 0o700), os.WriteFile(filepath.Join(closed, "secret"), []byte("root's"), 0o644), os.MkdirAll(shown, 0o700),
				os.Chmod(shown, 0o755), os.WriteFile(filepath.Join(shown, "file"), []byte("shown"), 0o600), os.Chmod(filepath.Join(shown, "file"), 0o644))
			if err != nil {
				t.Fatal(err)
			}
		})
		task := w.task(nil)
		task.expect("echo x >y && cat y && ls "+closed, "x\na\ndata", 0)
		task.expect("cat "+shown+"/file", "shown", 0)
		if out, code := task.shell("cat " + closed + "/secret").wait(); code == 0 {
			t.Errorf("the task reads %s", out)
		}
		task.expectDenied("ls " + w.data)
		if st, err := os.Stat(closed); err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("the folder above has the mode %v: %v", st.Mode(), err)
		}
	}
}

func TestGrantedPaths(t *testing.T) {
	requireLandlock(t, 1)
	top := t.TempDir()
	for _, name := range []string{"models", "scratch", "hidden"} { // open to all users, in a folder that is not
		dir := filepath.Join(top, name)
		file := filepath.Join(dir, "f")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777), os.WriteFile(file, []byte(name), 0o600), os.Chmod(file, 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	w := newEnv(t, func(c *Config) {
		c.Read, c.Write = []string{filepath.Join(top, "models")}, []string{filepath.Join(top, "scratch")}
	})
	task := w.task(nil)
	task.expect("cat "+top+"/models/f", "models", 0)
	task.expectDenied("echo >>" + top + "/models/f")
	task.expect("echo >>"+top+"/scratch/f; cat "+top+"/scratch/f", "scratch", 0)
	task.expectDenied("cat " + top + "/hidden/f")
}

func TestSandboxOff(t *testing.T) {
	w := newEnv(t, func(c *Config) {
		c.Sandbox = Off
		if os.Geteuid() == 0 {
			c.TaskUser = RootUser
		}
	})
	task := w.task(nil)
	task.expect("cat "+filepath.Join(w.data, "identity"), "the worker's token", 0)
	task.expect("grep -c 'NoNewPrivs:.1' /proc/self/status", "1", 0)
}

func TestRefusedConfigs(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "tasks"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]Config{
		"mode":            {Sandbox: "maybe"},
		"pids":            {PIDs: -1},
		"relative":        {Read: []string{"models"}},
		"missing":         {Write: []string{filepath.Join(dir, "nothing")}},
		"the data itself": {Read: []string{"/"}},
		"user":            {TaskUser: "no-such-user-here"},
		"a part of it":    {Write: []string{filepath.Join(dir, "tasks")}},
	} {
		cfg.Data, cfg.Log = dir, slog.New(slog.DiscardHandler)
		if _, err := New(cfg); muster.CodeOf(err) != muster.Invalid {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}

// TestWorkerDataIsDeniedByAnyPath checks that tasks cannot access the worker's data by any path, also if it is below a folder that tasks may
// read.
func TestWorkerDataIsDeniedByAnyPath(t *testing.T) {
	top := t.TempDir()
	for _, dir := range []string{"opt/bin", "opt/lib", "opt/data", "home/me/.venv/bin", "home/me/.venv/lib", "home/me/.local/bin", "home/me/.local/lib", "home/me/.local/share/keyrings", "home/me/.ssh", "home/me/bin"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink(filepath.Join(top, "opt"), filepath.Join(top, "link")), os.Symlink(filepath.Join(top, "home"), filepath.Join(top, "Users"))); err != nil {
		t.Fatal(err)
	}
	at := func(path string) string { return filepath.Join(top, path) }
	path := strings.Join([]string{at("opt/bin"), at("Users/me/.venv/bin"), at("home/me/.local/bin"), at("home/me/bin"), at("home/me"), "relative", "/nowhere"}, ":")
	p := newPaths(at("link/data"), path, at("Users/me"), false, nil, nil)
	for path, want := range map[string]bool{
		"opt/bin": true, "opt/lib": true, "opt/data": false, "opt/data/identity": false, "opt/data/sdk": true,
		"home/me/.venv/lib": true, "home/me/.local/lib": true, "home/me/.local/bin": true, "home/me/.local/share": false,
		"home/me/.ssh": false, "home/me": false, "home/me/bin": true, "home": false,
	} {
		if got := insideAny(at(path), p.read); got != want {
			t.Errorf("%s may be read: %t, want %t", path, got, want)
		}
	}
	if t.Failed() {
		t.Log(p.read)
	}
}

func TestNetworkNone(t *testing.T) {
	if err := tryNetwork(); err != nil {
		t.Skipf("network namespaces are not available: %v", err)
	}
	w := newEnv(t, nil)
	task := w.task(func(r *run.Task) { r.Spec.Network = muster.NetworkNone })
	task.expect("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; wc -l </proc/net/route", "lo\n1", 0)
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip("/usr/bin/python3 is not installed")
	}
	task.expect(`/usr/bin/python3 -c '
import socket
l = socket.create_server(("127.0.0.1", 0))
c = socket.create_connection(l.getsockname())
a, _ = l.accept()
c.send(b"over loopback")
print(a.recv(99).decode())
try:
    socket.create_connection(("192.0.2.1", 80), 5)
except OSError as e:
    print(e.strerror)
'`, "over loopback\nNetwork is unreachable", 0)
	here, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	w.task(nil).expect("readlink /proc/self/ns/net", here, 0)
}
