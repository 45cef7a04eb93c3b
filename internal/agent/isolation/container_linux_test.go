//go:build linux

package isolation

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/testkit"
)

// prepareContainer makes the groups of a container, or skips where there can be none.
func (w *env) prepareContainer(change func(*run.Task)) *run.IsolationSpec {
	w.Helper()
	w.n++
	rt := &run.Task{Attempt: muster.AttemptID{Task: muster.TaskID{Job: 18, Num: w.n}, N: 1}, Spec: &muster.TaskSpec{}}
	if change != nil {
		change(rt)
	}
	c, err := w.limits.PrepareContainer(rt)
	if err != nil {
		w.Fatal(err)
	}
	if c.CgroupParent == "" {
		w.Skip("there are no control groups here that an engine would find")
	}
	return c
}

// hierarchies lists where those of control groups are mounted, each once; see proc_pid_mountinfo(5).
func hierarchies(t *testing.T) (mounts []string) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		before, after, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(before); strings.HasPrefix(after, "cgroup") && fields[3] == "/" && !seen[fields[2]] {
			seen[fields[2]] = true
			mounts = append(mounts, fields[4])
		}
	}
	if len(mounts) == 0 {
		t.Fatal("no control groups are mounted")
	}
	return mounts
}

// TestContainerGroupsHaveOnePath does what an engine does: it creates a group in each hierarchy, at the given path.
func TestContainerGroupsHaveOnePath(t *testing.T) {
	w := newEnv(t, nil)
	c := w.prepareContainer(func(rt *run.Task) { rt.Grant = muster.Grant{CPUs: 0.5, Memory: 64 << 20, PIDs: 32, Disk: 1 << 30} })
	for _, mount := range hierarchies(t) {
		path := mount + c.CgroupParent
		if !slices.ContainsFunc(c.Cgroups, func(g run.Cgroup) bool { return g.Path == path && !g.Shared }) || !exists(path) {
			t.Errorf("%s is not the container's", path)
		}
		if err := os.Mkdir(filepath.Join(path, "c0ffee"), 0o755); err != nil {
			t.Error(err)
		}
	}
	if c.WatchDisk != 1<<30 || c.WatchMemory != 0 || c.WatchPIDs != 0 { // the engine knows of the rest
		t.Errorf("OnBatch received %+v", c)
	}

	// Processes in the inner groups are counted, stopped and ended with the outer ones.
	inner := &run.IsolationSpec{}
	for _, g := range c.Cgroups {
		if len(g.Controllers) > 0 { // in a group of cpusets nothing can be before it was set up
			g.Path = filepath.Join(g.Path, "c0ffee")
			inner.Cgroups = append(inner.Cgroups, g)
		}
	}
	bare := &task{env: w, folders: folders{Work: w.data}, spec: inner}
	p := bare.shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo ready; exec sleep 1000")
	if got := p.readLine(); got != "ready" {
		t.Fatal(got)
	}
	if n := w.limits.Stats(c); n.CPU == nil || *n.CPU <= 0 || n.MemoryPeak == nil || *n.MemoryPeak <= 0 || n.PIDs == nil || *n.PIDs < 1 {
		t.Errorf("counted is %+v", n)
	}
	if did, err := Freeze(c, true); !did || err != nil {
		t.Errorf("frozen: %v, %v", did, err)
	}
	if !c.Cgroups[0].Unified { // it stops once it waits for no device
		testkit.Await(t, "it is stopped", func() bool { return procState(p.pid) == 'T' })
	}
	if _, err := Freeze(c, false); err != nil {
		t.Error(err)
	}
	// Podman's monitor, which reports the end of the container, is not part of it.
	beside := exec.Command("sleep", "1000")
	if err := beside.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = beside.Process.Kill(); _ = beside.Wait() })
	for _, g := range inner.Cgroups {
		path := filepath.Join(filepath.Dir(g.Path), conmonCgroup)
		if err := errors.Join(os.Mkdir(path, 0o755), os.WriteFile(filepath.Join(path, "cgroup.procs"), []byte(strconv.Itoa(beside.Process.Pid)), 0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := Kill(c); err != nil {
		t.Error(err)
	}
	p.wait()
	if err := beside.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	_ = beside.Wait() // the next line says how it ended
	if ws, ok := beside.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGTERM {
		t.Errorf("the monitor was ended, too: %s", beside.ProcessState)
	}
	w.limits.Release(c)
	for _, g := range c.Cgroups {
		testkit.Await(t, g.Path+" is removed", func() bool {
			w.limits.groups.RetryRemove()
			return !exists(g.Path)
		})
	}
}

// TestContainerGroupsAreSwept removes groups from before a restart of the worker.
func TestContainerGroupsAreSwept(t *testing.T) {
	w := newEnv(t, nil)
	stale, kept := w.prepareContainer(nil), w.prepareContainer(nil)
	next, err := New(w.limits.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Sweep(kept); err != nil {
		t.Error(err)
	}
	for i := range stale.Cgroups {
		if exists(stale.Cgroups[i].Path) || !exists(kept.Cgroups[i].Path) {
			t.Errorf("of %s and %s the wrong one stays", stale.Cgroups[i].Path, kept.Cgroups[i].Path)
		}
	}
	next.Release(kept)
	next.Close()
	for i := range kept.Cgroups {
		if dir := filepath.Dir(kept.Cgroups[i].Path); exists(dir) {
			t.Errorf("%s stays", dir)
		}
	}
}

// TestGroupsAreRemovedWhenTheirProcessesEnd has a process that continues after its attempt in a separate group, as the monitor of Podman does.
func TestGroupsAreRemovedWhenTheirProcessesEnd(t *testing.T) {
	w := newEnv(t, nil)
	w.needControllers("pids")
	c := w.prepareContainer(nil)
	monitor := exec.Command("sleep", "1000")
	if err := monitor.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = monitor.Process.Kill(); _ = monitor.Wait() })
	var busy string
	for _, g := range c.Cgroups {
		inner := filepath.Join(g.Path, "conmon")
		if err := os.Mkdir(inner, 0o755); err != nil {
			t.Fatal(err)
		}
		if busy == "" && slices.Contains(g.Controllers, "pids") {
			busy = g.Path
			if err := os.WriteFile(filepath.Join(inner, "cgroup.procs"), []byte(strconv.Itoa(monitor.Process.Pid)), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error)
	go func() { ran <- w.limits.Run(ctx) }()
	w.limits.Release(c)
	for _, g := range c.Cgroups {
		if is := exists(g.Path); is != (g.Path == busy) {
			t.Errorf("%s is there: %t", g.Path, is)
		}
	}
	if err := monitor.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the last group is removed", func() bool { return !exists(busy) })
	stop()
	if err := <-ran; err != nil {
		t.Error(err)
	}
}
