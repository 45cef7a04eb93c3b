package cgroup

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// A directory with files in the format of the kernel's cgroup-v2.rst simulates machines with the controllers in version 2 of
// control groups. machine.mkdir does what the kernel does when a group is created. Text that is written to a file comes
// before the old text.

// machine is a directory that simulates the root of a machine's files.
type machine struct {
	*testing.T

	root string
}

// controllerFiles are the files of a controller of version 2 in a group other than the root.
var controllerFiles = map[string][]string{
	"memory": {"memory.max", "memory.swap.max", "memory.oom.group", "memory.current", "memory.peak", "memory.events", "memory.stat"},
	"pids":   {"pids.max", "pids.current", "pids.events"},
	"cpu":    {"cpu.max", "cpu.weight"},
	"io":     {"io.stat"},
}

func newMachine(t *testing.T, mountinfo, own string) *machine {
	t.Helper()
	m := &machine{T: t, root: t.TempDir()}
	m.file("/proc/self/mountinfo", mountinfo)
	m.file("/proc/self/cgroup", own)
	m.file("/proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
	return m
}

func (m *machine) file(path, text string) {
	m.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(m.root+path), 0o755), os.WriteFile(m.root+path, []byte(text), 0o600)); err != nil {
		m.Fatal(err)
	}
}

func (m *machine) read(path string) string {
	m.Helper()
	b, err := os.ReadFile(m.root + path)
	if err != nil {
		m.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// group creates a group with controllers that existed from the beginning.
func (m *machine) group(path, controllers, subtree string) {
	m.Helper()
	for file, text := range map[string]string{
		"cgroup.procs": "", "cgroup.controllers": controllers, "cgroup.subtree_control": subtree,
		"cgroup.type": "domain\n", "cgroup.events": "populated 0\nfrozen 0\n", "cpu.stat": "usage_usec 0\n",
	} {
		m.file(path+"/"+file, text)
	}
	for c := range strings.FieldsSeq(controllers) {
		for _, file := range controllerFiles[c] {
			m.file(path+"/"+file, "")
		}
	}
}

// top creates the root group, which has fewer files.
func (m *machine) top(controllers string) {
	m.Helper()
	m.group("/sys/fs/cgroup", controllers, controllers)
	for _, file := range []string{"cgroup.type", "cgroup.events", "memory.max"} {
		if err := os.Remove(m.root + "/sys/fs/cgroup/" + file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			m.Fatal(err)
		}
	}
}

// mkdir creates a group with the controllers that its parent enables.
func (m *machine) mkdir(path string) error {
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	above := strings.TrimPrefix(filepath.Dir(path), m.root)
	inherited := m.read(above + "/cgroup.subtree_control")
	if strings.HasPrefix(inherited, "+") {
		inherited = m.read(above + "/cgroup.controllers")
	}
	m.group(strings.TrimPrefix(path, m.root), inherited, "")
	return nil
}

const (
	unifiedMount = "24 30 0:22 / /proc rw,nosuid,nodev,noexec,relatime shared:12 - proc proc rw\n" +
		"35 24 0:30 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"
	all = "cpuset cpu io memory hugetlb pids rdma misc"
)

// serviceMachine is a machine whose worker is a service of systemd.
func serviceMachine(t *testing.T) (m *machine, service string) {
	t.Helper()
	m = newMachine(t, unifiedMount, "0::/system.slice/muster.service\n")
	m.top(all)
	m.group("/sys/fs/cgroup/system.slice", "cpu memory pids", "cpu memory pids")
	service = "/sys/fs/cgroup/system.slice/muster.service"
	m.group(service, "cpu memory pids", "")
	m.file(service+"/cgroup.procs", strconv.Itoa(os.Getpid())+"\n")
	return m, service
}

// TestSystemdService checks that the groups of tasks are outside of the worker's unit, so that systemd can start the worker again while
// they have processes: in the root group of the service manager.
func TestSystemdService(t *testing.T) {
	m, service := serviceMachine(t)
	check := func(name, want string) {
		t.Helper()
		g, notes := setup(findHierarchies(m.root), "muster-1", TotalLimits{}, m.mkdir)
		if len(notes) > 0 || len(g.roots) != 1 || g.roots[0].dir != m.root+want {
			t.Errorf("%s: the groups are %+v (%q), want %s", name, g.roots, notes, want)
		}
	}
	check("a service", "/sys/fs/cgroup/muster-1")
	if got := m.read(service + "/cgroup.procs"); got != strconv.Itoa(os.Getpid()) {
		t.Errorf("the unit has the processes %q", got)
	}
	m.file("/proc/self/cgroup", "0::/system.slice/muster.service/main\n")
	m.group(service+"/main", "cpu memory pids", "")
	check("a service with DelegateSubgroup", "/sys/fs/cgroup/muster-1")

	const manager = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service"
	m.file("/proc/self/cgroup", "0::/user.slice/user-1000.slice/user@1000.service/app.slice/muster.service\n")
	for _, group := range []string{manager, manager + "/app.slice", manager + "/app.slice/muster.service"} {
		m.group(group, "memory pids", "")
	}
	check("a service of a user", manager+"/muster-1")
	m.file(manager+"/app.slice/memory.max", "1073741824\n")
	check("in a slice with a limit", manager+"/app.slice/muster.service/muster-1")
	m.file(manager+"/app.slice/memory.max", "max\n")
	m.file("/proc/self/cgroup", "0::/user.slice/user-1000.slice/user@1000.service/app.slice/terminal.scope\n")
	m.group(manager+"/app.slice/terminal.scope", "memory pids", "")
	check("in a terminal", manager+"/app.slice/terminal.scope/muster-1")
	m.file("/proc/self/cgroup", "0::/system.slice/cron.service\n")
	m.group("/sys/fs/cgroup/system.slice/cron.service", "cpu memory pids", "")
	m.file("/sys/fs/cgroup/system.slice/cron.service/cgroup.procs", "1\n")
	check("started by another service", "/sys/fs/cgroup/system.slice/muster-1")
}

// TestLimitedService has a worker that systemd starts with Delegate=yes and a limit, which applies to its tasks: it moves to a subgroup,
// because its group may not have both processes and groups with controllers.
func TestLimitedService(t *testing.T) {
	m, service := serviceMachine(t)
	m.file(service+"/memory.max", "17179869184\n")
	g, notes := setup(findHierarchies(m.root), "muster-1", TotalLimits{Memory: 8 << 30, PIDs: 1000}, m.mkdir)
	if len(notes) > 0 || len(g.roots) != 1 {
		t.Fatalf("%d positions, message %q", len(g.roots), notes)
	}
	if got := m.read(service + "/muster-1.worker/cgroup.procs"); got != strconv.Itoa(os.Getpid()) {
		t.Errorf("into its own group moved %q", got)
	}
	for file, want := range map[string]string{"memory.max": "8589934592", "memory.swap.max": "0", "pids.max": "1000"} {
		if got := m.read(service + "/muster-1/" + file); got != want {
			t.Errorf("%s of all tasks is %q, want %q", file, got, want)
		}
	}

	list, done, err := g.create("17.3-2", Limits{CPUs: 1.5, Memory: 1 << 30, PIDs: 64})
	if err != nil {
		t.Fatal(err)
	}
	if want := (Limits{CPUs: 1.5, Memory: 1 << 30, PIDs: 64}); done != want {
		t.Errorf("enforced are %+v, want %+v", done, want)
	}
	if len(list) != 1 || !list[0].Unified || list[0].Shared || list[0].Path != m.root+service+"/muster-1/17.3-2" {
		t.Fatalf("the groups are %+v", list)
	}
	for file, want := range map[string]string{
		"memory.max": "1073741824", "memory.swap.max": "0", "memory.oom.group": "1", "pids.max": "64", "cpu.max": "150000 100000",
	} {
		if got := m.read(service + "/muster-1/17.3-2/" + file); got != want {
			t.Errorf("%s is %q, want %q", file, got, want)
		}
	}
}

// TestDelegationIsInherited has a worker of a user in a scope with another process: the slice above belongs to the user, and the worker
// enables the missing controllers in it.
func TestDelegationIsInherited(t *testing.T) {
	m := newMachine(t, unifiedMount, "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-7.scope\n")
	m.top(all)
	const app = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice"
	m.group(app, "memory pids", "memory")
	m.group(app+"/run-7.scope", "memory pids", "")
	m.file(app+"/run-7.scope/cgroup.procs", "1\n") // another's
	g, notes := setup(findHierarchies(m.root), "muster-1", TotalLimits{}, m.mkdir)
	if len(notes) > 0 || len(g.roots) != 1 {
		t.Fatalf("%d positions, message %q", len(g.roots), notes)
	}
	if got, want := g.roots[0].dir, m.root+app+"/muster-1"; got != want {
		t.Errorf("the groups are in %s, want %s", got, want)
	}
	if got, want := g.roots[0].controllers, []string{"memory", "pids"}; !slices.Equal(got, want) {
		t.Errorf("the controllers are %s, want %s", got, want)
	}
	if got := m.read(app + "/cgroup.subtree_control"); !strings.HasPrefix(got, "+pids") {
		t.Errorf("%q was written", got)
	}
}

func TestGroupsCannotBeCreated(t *testing.T) {
	for _, tc := range []struct {
		name, own, want string
		make            func(m *machine)
	}{
		{"limited", "0::/a.service\n", "other processes", func(m *machine) {
			m.top(all)
			m.group("/sys/fs/cgroup/a.service", "memory pids", "")
			m.file("/sys/fs/cgroup/a.service/cgroup.procs", "1\n")
			m.file("/sys/fs/cgroup/a.service/memory.max", "1073741824\n") // to go above would lift it
		}},
		{"old kernel", "0::/\n", "5.7", func(m *machine) {
			m.top(all)
			m.file("/proc/sys/kernel/osrelease", "4.19.0-27-amd64\n")
		}},
		{"no controllers", "0::/\n", "has no controllers", func(m *machine) { m.top("hugetlb") }},
		{"not delegated", "0::/a.service\n", "Delegate=yes", func(m *machine) {
			m.group("/sys/fs/cgroup/a.service", "memory pids", "")
			m.file("/sys/fs/cgroup/a.service/cpu.max", "50000 100000\n")
			if err := os.Remove(m.root + "/sys/fs/cgroup/a.service/cgroup.subtree_control"); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newMachine(t, unifiedMount, tc.own)
			tc.make(m)
			g, notes := setup(findHierarchies(m.root), "muster-1", TotalLimits{}, m.mkdir)
			if len(g.roots) != 0 || len(notes) != 1 || !strings.Contains(notes[0], tc.want) {
				t.Errorf("%d places, and it says %q, want %q", len(g.roots), notes, tc.want)
			}
			list, done, err := g.create("1.0-1", Limits{Memory: 1, PIDs: 1, CPUs: 1})
			if len(list) > 0 || done != (Limits{}) || err != nil {
				t.Errorf("without groups there are %v, %v, %v", list, done, err)
			}
		})
	}
}

// TestSwap has a worker with --enable-swap: memory is limited as usual, and swap is not.
func TestSwap(t *testing.T) {
	m := newMachine(t, unifiedMount, "0::/a.scope\n")
	m.top(all)
	m.group("/sys/fs/cgroup/a.scope", "cpu memory pids", "")
	m.file("/sys/fs/cgroup/a.scope/cgroup.procs", strconv.Itoa(os.Getpid())+"\n")
	g, notes := setup(findHierarchies(m.root), "muster-1", TotalLimits{Memory: 8 << 30, Swap: true}, m.mkdir)
	if len(notes) > 0 {
		t.Fatal(notes)
	}
	if _, _, err := g.create("17.3-2", Limits{Memory: 1 << 30, Swap: true}); err != nil {
		t.Fatal(err)
	}
	for group, memory := range map[string]string{"muster-1": "8589934592", "muster-1/17.3-2": "1073741824"} {
		dir := "/sys/fs/cgroup/a.scope/" + group + "/"
		if got, swap := m.read(dir+"memory.max"), m.read(dir+"memory.swap.max"); got != memory || swap != "max" {
			t.Errorf("%s has %s of memory and %s of swap", group, got, swap)
		}
	}
}

// TestSwapOfVersion1 is TestSwap in a real group, where the kernel counts memory and swap together.
func TestSwapOfVersion1(t *testing.T) {
	read := func(file string) string {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Skip("no memory groups of version 1 that count swap: ", err)
		}
		return strings.TrimSpace(string(b))
	}
	endless := read("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes") // the root has no limit
	p := &taskRoot{dir: "/sys/fs/cgroup/memory"}
	for _, c := range []struct {
		swap bool
		want string
	}{{false, "1073741824"}, {true, endless}} {
		group, err := os.MkdirTemp(p.dir, "muster-test-") //nolint:usetesting // a control group, no folder
		if err != nil {
			t.Skip("cannot create a control group: ", err)
		}
		defer func() { _ = syscall.Rmdir(group) }()
		if err := p.limitMemory(group, 1<<30, c.swap); err != nil {
			t.Fatal(err)
		}
		if memory, both := read(group+"/memory.limit_in_bytes"), read(group+"/memory.memsw.limit_in_bytes"); memory != "1073741824" || both != c.want {
			t.Errorf("with swap %v it has %s of memory and %s of both", c.swap, memory, both)
		}
	}
}

// TestContainerWithItsOwnGroups has a worker in a container that sees its group as the root: all processes in it belong to the container and
// may be moved.
func TestContainerWithItsOwnGroups(t *testing.T) {
	m := newMachine(t, "700 600 0:30 /../../docker/4f2a /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw,nsdelegate\n", "0::/\n")
	m.group("/sys/fs/cgroup", "cpu memory pids", "")
	m.file("/sys/fs/cgroup/cgroup.procs", "1\n7\n")
	g, notes := setup(findHierarchies(m.root), "muster-1", TotalLimits{}, m.mkdir)
	if len(notes) > 0 || len(g.roots) != 1 {
		t.Fatalf("%d positions, message %q", len(g.roots), notes)
	}
	if got := m.read("/sys/fs/cgroup/muster-1.worker/cgroup.procs"); got != "7" { // the last that was written
		t.Errorf("moved were %q", got)
	}
}

// TestVersion1 reads the mounts of a container on a machine with version 1, where it
// sees less than all of some hierarchies.
func TestVersion1(t *testing.T) {
	m := newMachine(t, `31 23 0:28 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
32 31 0:29 /docker/4f2a /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
33 31 0:30 /docker/4f2a /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 /docker/4f2a /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
35 31 0:32 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
36 31 0:33 / /sys/fs/cgroup/my\040net rw - cgroup cgroup rw,net_cls
37 31 0:34 / /sys/fs/cgroup/unified rw - cgroup2 cgroup rw,nsdelegate
`, "5:pids:/docker/4f2a\n4:memory:/docker/4f2a\n3:cpu,cpuacct:/docker/4f2a\n2:net_cls:/\n1:name=systemd:/docker/4f2a\n0::/docker/4f2a\n")
	got := map[string]string{}
	for _, h := range findHierarchies(m.root) {
		got[strings.Join(h.controllers, " ")] = strings.TrimPrefix(h.self, m.root+"/sys/fs/cgroup")
	}
	want := map[string]string{"cpu cpuacct": "/cpu,cpuacct", "memory": "/memory", "pids": "/pids/docker/4f2a", "": "/unified/docker/4f2a"}
	for c, own := range want {
		if got[c] != own {
			t.Errorf("the group of %q is %q, want %q", c, got[c], own)
		}
	}
	if len(got) != len(want) {
		t.Errorf("the hierarchies are %v", got)
	}
	if v := versionName(findHierarchies(m.root)); v != "hybrid" {
		t.Errorf("the version is %s", v)
	}
}

// TestCountersOfVersion2 reads the files of a group in which a task was out of memory.
func TestCountersOfVersion2(t *testing.T) {
	dir := filepath.Join("testdata", "v2")
	got := Stats(&run.IsolationSpec{Cgroups: []run.Cgroup{{Path: dir, Unified: true, Controllers: []string{"cpu", "io", "memory", "pids"}}}})
	check := func(name string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	check("cpu", *got.CPU, 8123456*time.Microsecond)
	check("memory", *got.Memory, muster.Size(268435456-1056768))
	check("peak", *got.MemoryPeak, muster.Size(268435456))
	check("killed", *got.OOMKills, 3)
	check("pids", *got.PIDs, 12)
	check("denied", *got.PIDsDenied, 41)
	check("read", *got.Read, muster.Size(4096+1048576))
	check("written", *got.Written, muster.Size(8192))
	none := Stats(&run.IsolationSpec{Cgroups: []run.Cgroup{{Path: t.TempDir(), Unified: true, Controllers: []string{"cpu", "io", "memory", "pids"}}}})
	if none != (run.CgroupStats{}) {
		t.Errorf("of missing files: %+v", none)
	}
}

// TestInferredOOMKill checks that an OOM kill that version 1 does not count in the group around a container is inferred if the group was full and
// the kernel has killed a process since.
func TestInferredOOMKill(t *testing.T) {
	for _, c := range []struct {
		peak   string
		before int
		want   bool
	}{
		{"33554432", hostOOMKills() - 1, true}, {"33554432", hostOOMKills() + 1_000_000, false}, {"33550336", hostOOMKills() - 1, false},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"memory.limit_in_bytes": "33554432", "memory.max_usage_in_bytes": c.peak, "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got := Stats(&run.IsolationSpec{CgroupParent: "/muster/17.3-1", Cgroups: []run.Cgroup{{Path: dir, Controllers: []string{"memory"}, OOMKillsBefore: c.before}}})
		if got.LikelyOOM != c.want || got.OOMKills != nil {
			t.Errorf("with a peak of %s, and %d kills before, it is %+v", c.peak, c.before, got)
		}
	}
	least := hostOOMKills()
	f := &groupSet{roots: []taskRoot{{hierarchy: hierarchy{controllers: []string{"memory"}}, dir: t.TempDir()}}, everyHierarchy: true, mkdir: func(path string) error { return os.Mkdir(path, 0o700) }}
	list, _, err := f.create("17.3-1", Limits{})
	if err != nil || len(list) != 1 || list[0].OOMKillsBefore < least || list[0].OOMKillsBefore > hostOOMKills() {
		t.Errorf("before its creation %d were killed: %+v, %v", least, list, err)
	}
}

func TestShare(t *testing.T) {
	m := newMachine(t, "", "")
	m.file("/proc/sys/kernel/pid_max", "32768\n")
	m.file("/proc/sys/kernel/threads-max", "20000\n")
	if n := maxPIDs(m.root); n != 10000 {
		t.Errorf("it is %d, want half of the least", n)
	}
	if n := maxPIDs(t.TempDir()); n != 0 {
		t.Errorf("without readings it is %d", n)
	}
}

func TestRefusedByTheKernel(t *testing.T) {
	m := newMachine(t, unifiedMount, "0::/\n")
	m.top(all)
	full := false
	g, _ := setup(findHierarchies(m.root), "muster-1", TotalLimits{}, func(path string) error {
		if full {
			return &fs.PathError{Op: "mkdir", Path: path, Err: errors.New("no space left on device")}
		}
		return m.mkdir(path)
	})
	full = true
	if _, _, err := g.create("1.0-1", Limits{PIDs: 1}); err == nil || !strings.Contains(err.Error(), "1.0-1: mkdir") {
		t.Errorf("the error is %v", err)
	}
}

// TestParentOnUnified has one hierarchy with all controllers: the container is in the groups that a process would have.
func TestParentOnUnified(t *testing.T) {
	m := newMachine(t, unifiedMount, "0::/system.slice/muster.service\n")
	m.top(all)
	m.group("/sys/fs/cgroup/system.slice", "cpu memory pids", "cpu memory pids")
	m.group("/sys/fs/cgroup/system.slice/muster.service", "cpu memory pids", "")
	g, _ := setup(findHierarchies(m.root), "muster-1", TotalLimits{}, m.mkdir)
	w := &Groups{data: "/data", tasks: g}
	if v := w.newContainerGroups(rootHierarchies(m.root), true); v != g {
		t.Fatalf("containers have separate groups: %+v", v)
	}
	list, _, err := g.create("17.3-2", Limits{Memory: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	if got := g.containerPath(list); got != "/muster-1/17.3-2" {
		t.Errorf("an engine would open %s", got)
	}
}

// TestContainersWithoutGroups has groups whose paths mean other groups to an engine.
func TestContainersWithoutGroups(t *testing.T) {
	g := New(t.TempDir(), TotalLimits{}, slog.New(slog.DiscardHandler))
	defer g.Close()
	if f := g.newContainerGroups(rootHierarchies(""), false); f != nil {
		t.Error("a worker in a container has groups for those of the machine's engine")
	}
	for _, h := range rootHierarchies("") {
		if !strings.HasPrefix(h.mount, "/sys/fs/cgroup") && !exists(filepath.Join(h.mount, "cgroup.procs")) {
			t.Errorf("%+v is no hierarchy", h)
		}
	}
}

// TestRoots finds hierarchies of no use to us, too, each once, and none where only a part of one is seen.
func TestRoots(t *testing.T) {
	const mounts = `32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
42 31 0:37 / /mnt/again rw,relatime - cgroup cgroup rw,name=systemd
43 31 0:37 /docker /mnt/part rw,relatime - cgroup cgroup rw,name=systemd
44 31 0:40 / /tmp rw,relatime - tmpfs tmpfs rw
`
	m := newMachine(t, mounts, "")
	var got []string
	for _, h := range rootHierarchies(m.root) {
		got = append(got, strings.TrimPrefix(h.mount, m.root+"/sys/fs/cgroup/")+":"+strings.Join(h.controllers, "+"))
	}
	if want := []string{"cpu,cpuacct:cpu+cpuacct", "cpuset:", "systemd:", "unified:"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	m.file("/proc/self/mountinfo", mounts+"35 31 0:32 /docker/c0ffee /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n")
	if found := rootHierarchies(m.root); found != nil {
		t.Errorf("found %+v", found)
	}
}
