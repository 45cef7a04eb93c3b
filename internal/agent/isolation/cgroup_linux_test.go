package isolation

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/testkit"
)

const mib = 1 << 20

// memoryHog is a script that takes memory without end.
const memoryHog = `x=x; while :; do x=$x$x; done`

func TestOutOfMemoryKillsOnlyItsTask(t *testing.T) {
	w := newEnv(t, nil)
	w.needControllers("memory")
	limited := func(r *run.Task) { r.Grant.Memory = 64 * mib }
	other := w.task(limited)
	bystander := other.shell("echo on; while :; do sleep 1000; done")
	bystander.readLine()
	bad := w.task(limited)
	if bad.spec.WatchMemory != 0 {
		t.Error("the limit is polled, although the kernel enforces it")
	}
	if _, code := bad.shell(memoryHog).wait(); code != 128+int(unix.SIGKILL) {
		t.Errorf("the task exits with %d, want it killed", code)
	}
	n := w.limits.Stats(bad.spec)
	if n.OOMKills == nil || *n.OOMKills < 1 {
		t.Errorf("the kernel killed %v processes, want at least one", n.OOMKills)
	}
	// Memory that the kernel cannot refuse, such as pages for a process that it kills, counts beyond the limit.
	if n.MemoryPeak == nil || *n.MemoryPeak < 32*mib || *n.MemoryPeak > 65*mib {
		t.Errorf("the peak is %v, want near 64MiB and not above", n.MemoryPeak)
	}
	if n := w.limits.Stats(other.spec); n.OOMKills == nil || *n.OOMKills != 0 {
		t.Errorf("the other task has %v killed processes", n.OOMKills)
	}
	if err := unix.Kill(bystander.pid, 0); err != nil {
		t.Errorf("the other task has exited: %v", err)
	}
}

func TestMemoryOfAllTasks(t *testing.T) {
	w := newEnv(t, func(c *Config) { c.Memory = 64 * mib })
	w.needControllers("memory")
	task := w.task(nil)
	if _, code := task.shell(memoryHog).wait(); code != 128+int(unix.SIGKILL) {
		t.Errorf("a task that names no memory exits with %d, want it killed", code)
	}
	if n := w.limits.Stats(task.spec); n.OOMKills == nil || *n.OOMKills < 1 {
		t.Errorf("the kernel killed %v processes, want at least one", n.OOMKills)
	}
	next := w.task(nil)
	if n := w.limits.Stats(next.spec); n.OOMKills == nil || *n.OOMKills != 0 {
		t.Errorf("a task that has just begun has %v killed processes", n.OOMKills)
	}
}

// forkBomb forks more processes than it may have.
const forkBomb = `i=0; while [ $i -lt 100 ]; do sleep 1000 & i=$((i+1)); done; echo all; wait`

func TestForkBombIsLimited(t *testing.T) {
	w := newEnv(t, nil)
	w.needControllers("pids")
	task := w.task(func(r *run.Task) { r.Grant.PIDs = 20 })
	p := task.shell(forkBomb)
	for n := w.limits.Stats(task.spec); n.PIDsDenied == nil || *n.PIDsDenied == 0; n = w.limits.Stats(task.spec) {
		if n.PIDs != nil && *n.PIDs > 20 {
			t.Fatalf("%d processes run", *n.PIDs)
		}
	}
	if err := Kill(task.spec); err != nil {
		t.Fatal(err)
	}
	p.wait()
	task.checkEmpty()
	if task.spec.WatchPIDs != 0 {
		t.Error("the limit is polled, although the kernel enforces it")
	}
}

// TestKillEndsEveryProcess checks that nothing escapes: neither sessions of their own, nor
// orphans, nor what forks while it is killed, nor what is stopped.
func TestKillEndsEveryProcess(t *testing.T) {
	w := newEnv(t, nil)
	w.needControllers("pids")
	task := w.task(nil)
	p := task.shell(`setsid sh -c 'sleep 1000 & sleep 1000' & (setsid sleep 1000 &) ; sh -c 'kill -STOP $$' &
		sh -c 'while :; do sleep 1000 & sleep 0.001; done' & echo on; wait`)
	p.readLine()
	if err := Kill(task.spec); err != nil {
		t.Fatal(err)
	}
	p.wait()
	task.checkEmpty()
	w.limits.Release(task.spec)
	for _, g := range task.spec.Cgroups {
		testkit.Await(t, g.Path+" is removed", func() bool {
			w.limits.groups.RetryRemove()
			return g.Shared || !exists(g.Path)
		})
	}
	if err := Kill(task.spec); err != nil {
		t.Errorf("killing a removed group: %v", err)
	}
}

func TestFreeze(t *testing.T) {
	w := newEnv(t, nil)
	w.needControllers("pids")
	task := w.task(nil)
	p := task.shell(`(while :; do echo x; done) & wait`)
	p.readLine()
	if ok, err := Freeze(task.spec, true); !ok || err != nil {
		t.Fatal(ok, err)
	}
	group := task.spec.Cgroups[slices.IndexFunc(task.spec.Cgroups, func(g run.Cgroup) bool { return !g.Shared })]
	if group.Unified {
		testkit.Await(t, "the group is frozen", func() bool {
			return readField(t, filepath.Join(group.Path, "cgroup.events"), "frozen") == 1
		})
	} else {
		all := readProcs(t, group.Path)
		if len(all) < 2 {
			t.Fatal(all)
		}
		for _, pid := range all {
			testkit.Await(t, fmt.Sprintf("process %d is stopped", pid), func() bool { return procState(pid) == 'T' })
		}
	}
	if ok, err := Freeze(task.spec, false); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for range 100_000 { // more than the pipe holds
		p.readLine()
	}
	if ok, err := Freeze(&run.IsolationSpec{}, true); ok || err != nil {
		t.Errorf("without groups: %t, %v", ok, err)
	}
}

func TestCPUQuota(t *testing.T) {
	w := newEnv(t, nil)
	w.needControllers("cpu")
	task := w.task(func(r *run.Task) { r.Grant.CPUs = 0.1 })
	p := task.shell("while :; do :; done")
	group := task.spec.Cgroups[slices.IndexFunc(task.spec.Cgroups, func(g run.Cgroup) bool { return slices.Contains(g.Controllers, "cpu") })]
	for throttled := 0; throttled < 3; { // the kernel counts the periods in which it was held back
		throttled = readField(t, filepath.Join(group.Path, "cpu.stat"), "nr_throttled")
	}
	if n := w.limits.Stats(task.spec); n.CPU == nil || *n.CPU <= 0 {
		t.Errorf("the time of processors is %v", n.CPU)
	}
	if err := Kill(task.spec); err != nil {
		t.Fatal(err)
	}
	p.wait()
	tiny := w.task(func(r *run.Task) { r.Grant.CPUs = 0.001 })
	tiny.expect("echo on", "on", 0)
}

// TestSweep checks that groups from before a restart are removed with their processes, except those of
// attempts that continue.
func TestSweep(t *testing.T) {
	w := newEnv(t, nil)
	w.needControllers("pids")
	kept, removed := w.task(nil), w.task(nil)
	a, b := kept.shell("echo on; sleep 1000"), removed.shell("echo on; sleep 1000")
	a.readLine()
	b.readLine()
	next, err := New(w.limits.cfg) // after a restart
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Sweep(kept.spec); err != nil {
		t.Fatal(err)
	}
	if _, code := b.wait(); code != 128+int(unix.SIGKILL) {
		t.Errorf("the task that is not kept exits with %d, want it killed", code)
	}
	for _, g := range removed.spec.Cgroups {
		if _, err := os.Stat(g.Path); err == nil && !g.Shared {
			t.Errorf("%s still exists", g.Path)
		}
	}
	if err := unix.Kill(a.pid, 0); err != nil {
		t.Errorf("the kept task has exited: %v", err)
	}
	if n := next.Stats(kept.spec); n.PIDs == nil || *n.PIDs == 0 {
		t.Errorf("the task that is kept has %v processes", n.PIDs)
	}
}

// TestRecoveredAttempt checks that a group of the same attempt that was not removed is
// no obstacle.
func TestRecoveredAttempt(t *testing.T) {
	w := newEnv(t, nil)
	w.needControllers("pids")
	p := w.task(nil).shell("echo on; sleep 1000")
	p.readLine()
	w.n = 0
	w.task(nil).expect("echo new", "new", 0)
	if _, code := p.wait(); code != 128+int(unix.SIGKILL) {
		t.Errorf("the orphan of the attempt exited with %d, want it killed", code)
	}
}

// TestRemovedGroupsAreRecreated checks that a worker creates its groups again, with their
// limits, after another program removed them.
func TestRemovedGroupsAreRecreated(t *testing.T) {
	w := newEnv(t, nil)
	w.needControllers("pids")
	w.limits.Close()
	task := w.task(nil)
	task.expect("echo on", "on", 0)
	for _, g := range task.spec.Cgroups {
		if !slices.Contains(g.Controllers, "pids") {
			continue
		}
		most, err := os.ReadFile(filepath.Join(filepath.Dir(g.Path), "pids.max"))
		if err != nil || strings.TrimSpace(string(most)) != strconv.Itoa(w.limits.pids) {
			t.Errorf("all tasks may have %q processes, want %d: %v", most, w.limits.pids, err)
		}
	}
}
