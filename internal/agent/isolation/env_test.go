//go:build linux

package isolation

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation/cgroup"
	"github.com/muster-dev/muster/internal/agent/isolation/landlock"
	"github.com/muster-dev/muster/internal/agent/isolation/view"
	"github.com/muster-dev/muster/internal/agent/run"
)

// env is a worker's data dir with limits, and tasks in it.
type env struct {
	*testing.T

	data   string
	limits *Isolator
	n      int

	sharing string // a folder that the next task shares, "" for none
}

// newEnv makes one in a place that every user can reach.
func newEnv(t *testing.T, change func(*Config)) *env {
	t.Helper()
	top, err := os.MkdirTemp("", "limit") //nolint:usetesting // other users have to reach it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(top); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(top, 0o711); err != nil {
		t.Fatal(err)
	}
	w := &env{T: t, data: filepath.Join(top, "data")}
	if err := os.Mkdir(w.data, 0o700); err != nil {
		t.Fatal(err)
	}
	w.write(filepath.Join(w.data, "identity"), "the worker's token")
	cfg := Config{Data: w.data, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if change != nil {
		change(&cfg)
	}
	if w.limits, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.limits.Sweep(); err != nil {
			t.Error(err)
		}
		w.limits.Close()
	})
	return w
}

func (w *env) write(path, text string) {
	w.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
}

// task is one attempt in a world.
type task struct {
	env     *env
	folders folders
	spec    *run.IsolationSpec
}

// folders are the folders of a task, with those in its base.
type folders struct {
	run.Folders

	Work, Out, Tmp string
}

func (w *env) task(change func(*run.Task)) *task {
	w.Helper()
	t, err := w.try(change)
	if err != nil {
		w.Fatal(err)
	}
	return t
}

func (w *env) try(change func(*run.Task)) (*task, error) {
	w.Helper()
	w.n++
	id := muster.AttemptID{Task: muster.TaskID{Job: 17, Num: w.n}, N: 1}
	base := filepath.Join(w.data, "tasks", id.Task.String()+"-1")
	t := &task{env: w, folders: folders{
		Folders: run.Folders{Base: base, Checkpoint: filepath.Join(w.data, "checkpoints", "process", id.Task.String())},
		Work:    filepath.Join(base, "work"), Out: filepath.Join(base, "out"), Tmp: filepath.Join(base, "tmp"),
	}}
	for _, dir := range []string{t.folders.Work, t.folders.Out, t.folders.Tmp, t.folders.Checkpoint} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			w.Fatal(err)
		}
	}
	if w.sharing != "" {
		t.folders.Write = []string{w.sharing}
	}
	rt := &run.Task{Attempt: id, Spec: &muster.TaskSpec{}}
	if change != nil {
		change(rt)
	}
	var err error
	t.spec, err = w.limits.Prepare(rt, t.folders.Folders)
	if err == nil {
		w.Cleanup(func() { w.limits.Release(t.spec) })
	}
	return t, err
}

// shell starts a script in the task's folder.
func (t *task) shell(script string) *proc {
	t.env.Helper()
	return t.start("/bin/sh", "sh", "-c", script)
}

func (t *task) start(path string, argv ...string) *proc {
	t.env.Helper()
	p, err := t.spawn(path, argv...)
	if err != nil {
		t.env.Fatal(err)
	}
	return p
}

func (t *task) spawn(path string, argv ...string) (*proc, error) {
	t.env.Helper()
	return spawnIn(t.env.T, t.spec, t.folders.Work, path, argv...)
}

// proc is a process whose output is read from a pipe.
type proc struct {
	t    *testing.T
	pid  int
	fd   int
	pipe *os.File
	done bool
}

func spawnIn(t *testing.T, c *run.IsolationSpec, dir, path string, argv ...string) (*proc, error) {
	t.Helper()
	return spawnWith(t, c, Program{Path: path, Argv: argv, Dir: dir})
}

// spawnWith starts a program, whose environment and output it sets.
func spawnWith(t *testing.T, c *run.IsolationSpec, prog Program) (*proc, error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	defer func() { _ = w.Close() }()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	prog.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + prog.Dir, "TMPDIR=" + prog.Dir}
	prog.Stdin, prog.Stdout, prog.Stderr = null, w, w
	prog.NSInit = []string{"/proc/self/exe", nsinitArg}
	pid, fd, err := Spawn(c, prog)
	if err != nil {
		return nil, err
	}
	p := &proc{t: t, pid: pid, fd: fd, pipe: r}
	t.Cleanup(func() {
		if !p.done {
			_ = unix.Kill(-pid, unix.SIGKILL)
			p.wait()
		}
		_ = unix.Close(fd)
	})
	return p, nil
}

// readLine reads up to the end of a line.
func (p *proc) readLine() string {
	p.t.Helper()
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := p.pipe.Read(b); err != nil {
			p.t.Fatalf("after %q: %v", line, err)
		}
		if b[0] == '\n' {
			return string(line)
		}
		line = append(line, b[0])
	}
}

// wait returns all that was printed and how the process ended: 128+n for signal n.
func (p *proc) wait() (string, int) {
	p.t.Helper()
	out, err := io.ReadAll(p.pipe)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(bytes.TrimSpace(out)), p.reap()
}

func (p *proc) reap() int {
	p.t.Helper()
	var st unix.WaitStatus
	for {
		_, err := unix.Wait4(p.pid, &st, 0, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			p.t.Fatal(err)
		}
		break
	}
	p.done = true
	if st.Signaled() {
		return 128 + int(st.Signal())
	}
	return st.ExitStatus()
}

// expect runs a script and compares its output and exit code.
func (t *task) expect(script, want string, code int) {
	t.env.Helper()
	got, exit := t.shell(script).wait()
	if got != want || exit != code {
		t.env.Errorf("%s\nprints %q and exits with %d, want %q and %d", script, got, exit, want, code)
	}
}

// expectDenied runs a script that must fail because of a denied permission, or because it cannot see a file.
func (t *task) expectDenied(script string) {
	t.env.Helper()
	got, exit := t.shell(script).wait()
	denied := slices.ContainsFunc([]string{"ermission denied", "not permitted", "must be superuser", "o such file", "o such process"}, func(s string) bool { return strings.Contains(got, s) })
	if exit == 0 || !denied {
		t.env.Errorf("%s\nwas not refused: it prints %q and exits with %d", script, got, exit)
	}
}

// checkEmpty checks that no process is in the task's own groups.
func (t *task) checkEmpty() {
	t.env.Helper()
	for i := range t.spec.Cgroups {
		if g := &t.spec.Cgroups[i]; !g.Shared {
			if left := readProcs(t.env.T, g.Path); len(left) > 0 {
				t.env.Errorf("the processes %v are left in %s", left, g.Path)
			}
		}
	}
}

// readProcs lists those in a group, without this one: a thread of it may be about to leave.
func readProcs(t *testing.T, group string) []int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var pids []int
	for w := range strings.FieldsSeq(string(b)) {
		pid, err := strconv.Atoi(w)
		if err != nil {
			t.Fatal(err)
		}
		if pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// procState returns the state of a process's first thread, 0 if it does not exist; see proc_pid_stat(5).
func procState(pid int) byte {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if end := bytes.LastIndex(b, []byte(") ")); err == nil && end > 0 && end+2 < len(b) {
		return b[end+2]
	}
	return 0
}

// readField reads the number behind a name in a control file of such lines.
func readField(t *testing.T, path, name string) int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("%s has no %s", path, name)
	return 0
}

// needControllers skips a test where a controller cannot be used.
func (w *env) needControllers(controllers ...string) {
	w.Helper()
	list, _, err := w.limits.groups.Create(muster.AttemptID{}, cgroup.Limits{CPUs: 1, Memory: 1 << 30, PIDs: 100})
	if err != nil {
		w.Fatal(err)
	}
	defer w.limits.groups.Remove(list)
	for _, c := range controllers {
		if !slices.ContainsFunc(list, func(g run.Cgroup) bool { return slices.Contains(g.Controllers, c) }) {
			w.Skipf("the controller %s of control groups cannot be used here", c)
		}
	}
}

func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can do this")
	}
}

func requireView(t *testing.T) {
	t.Helper()
	if err := view.Ensure(&run.View{}); err != nil {
		t.Skipf("tasks cannot have a view of their own: %v", err)
	}
}

func requireLandlock(t *testing.T, version int) {
	t.Helper()
	if abi := landlock.ABI(); abi < version {
		t.Skipf("Landlock has version %d here, and this takes %d", abi, version)
	}
}
