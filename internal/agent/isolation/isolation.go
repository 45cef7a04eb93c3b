package isolation

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/shirou/gopsutil/v4/disk"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation/cgroup"
	"github.com/muster-dev/muster/internal/agent/isolation/landlock"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Mode is whether tasks run in a sandbox.
type Mode string

// The modes.
const (
	Auto   Mode = "auto"   // if the kernel supports it
	Off    Mode = "off"    // never
	Strict Mode = "strict" // always: if the kernel does not support it, the worker does not start
)

// DefaultPIDs is the limit of processes and threads of a task that names none.
const DefaultPIDs = 4096

// minTaskDisk is the least that a task may write without a limit of its own or the owner's.
const minTaskDisk muster.Size = 1 << 30

// Config configures an Isolator.
type Config struct {
	Data     string       // the worker's data dir, absolute
	TaskUser string       // of tasks; "" means a user of its own for each attempt if the worker runs as root, else the worker's
	Sandbox  Mode         // "" means Auto
	Read     []string     // absolute paths that tasks may read besides the system
	Write    []string     // absolute paths that they may change besides their own folders
	Expose   []string     // absolute paths that they must reach if the worker gives them access
	PIDs     int          // of a task that names none; 0 means DefaultPIDs
	Disk     *muster.Size // of a task that names none; 0 means no limit, nil half of the space that is free when it starts, at least minTaskDisk
	Memory   muster.Size  // of all tasks together; 0 means no limit
	Swap     bool         // tasks may use swap beyond their memory
	Log      *slog.Logger
}

// Isolator isolates the tasks of one worker. It implements run.Isolator.
type Isolator struct {
	cfg    Config
	runAs  *runAs
	paths  *paths // nil without a sandbox
	groups *cgroup.Groups
	filter bool // of system calls
	pids   int  // limit of all tasks together; 0 means unknown

	mu          sync.Mutex
	readable    map[string]bool // folders that other users may read
	traversable map[string]bool // folders that other users may pass through
	unownable   map[string]bool // folders whose owner could not be changed to the user of tools
}

var _ run.Isolator = (*Isolator)(nil)

// New checks the configuration, and creates the groups of all tasks.
func New(cfg Config) (*Isolator, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	cfg.PIDs = cmp.Or(cfg.PIDs, DefaultPIDs)
	sandbox := cfg.Sandbox != Off && landlock.ABI() > 0
	if cfg.Sandbox != Off && !sandbox {
		cfg.Log.Warn("tasks run without a sandbox: this system has no Landlock, so tasks can read and change what their user can")
	}
	unfiltered := cfg.unfiltered()
	if unfiltered != nil && cfg.Sandbox != Off && runtime.GOOS == "linux" {
		cfg.Log.Warn("tasks may use all system calls: " + unfiltered.Error())
	}
	common := cfg.paths(false)
	ra, err := cfg.runAs(cfg.exposedPaths(common))
	if err != nil {
		return nil, err
	}
	if ra.rootReason != nil && cfg.Sandbox == Strict && !cfg.wantsRoot() {
		return nil, muster.Errorf(muster.Invalid, "--sandbox strict needs a user for each task, or --task-user root: %w", ra.rootReason)
	}
	if ra.rootReason != nil {
		cfg.Log.Warn("tasks run as root, since " + ra.rootReason.Error() + ": they can use root's sockets, such as that of a container engine")
		common = cfg.paths(true)
	}
	if ra.viewErr != nil {
		cfg.Log.Warn("tasks see the command lines of all processes: " + ra.viewErr.Error())
	} else if ra.ipcErr != nil && os.Geteuid() == 0 {
		cfg.Log.Warn("tasks use the machine's shared memory: " + ra.ipcErr.Error())
	}
	l := &Isolator{cfg: cfg, runAs: ra, filter: unfiltered == nil, readable: map[string]bool{}, traversable: map[string]bool{}, unownable: map[string]bool{}}
	if err := l.grantAccess(); err != nil {
		return nil, err
	}
	if sandbox {
		l.paths = common
	}
	l.pids = cgroup.MaxPIDs()
	l.groups = cgroup.New(cfg.Data, cgroup.TotalLimits{Memory: cfg.Memory, PIDs: l.pids, Swap: cfg.Swap}, cfg.Log)
	return l, nil
}

// Check validates the configuration on this machine. It does not use Log.
func (c *Config) Check() error {
	switch abi := landlock.ABI(); {
	case c.Sandbox != "" && c.Sandbox != Auto && c.Sandbox != Off && c.Sandbox != Strict:
		return muster.Errorf(muster.Invalid, "unknown --sandbox %q: use auto, off or strict", c.Sandbox)
	case c.Sandbox == Strict && abi < landlock.StrictABI:
		return muster.Errorf(muster.Invalid,
			"--sandbox strict needs version %d of Landlock, and this kernel has %d: use Linux 6.12 or newer, or --sandbox auto", landlock.StrictABI, abi)
	case c.Sandbox == Strict && trySeccomp() != nil:
		return muster.Errorf(muster.Invalid, "--sandbox strict needs a filter of system calls, which is not available (%w): use --sandbox auto", trySeccomp())
	case c.PIDs < 0:
		return muster.Errorf(muster.Invalid, "invalid --task-pids %d: a task needs at least one process", c.PIDs)
	}
	data := ResolvePath(c.Data)
	for _, path := range slices.Concat(c.Read, c.Write) {
		if !filepath.IsAbs(path) {
			return muster.Errorf(muster.Invalid, "cannot give tasks access to %s: use an absolute path", path)
		}
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			return muster.Errorf(muster.Invalid, "cannot give tasks access to %s: %w", path, err)
		}
		if inside(data, target) || inside(target, data) {
			return muster.Errorf(muster.Invalid, "cannot give tasks access to %s: the worker keeps its identity in %s", path, c.Data)
		}
	}
	if c.TaskUser != "" && (!c.wantsRoot() || os.Geteuid() != 0) {
		_, err := lookupUser(c.TaskUser)
		return err
	}
	return nil
}

// unfiltered returns why tasks may use all system calls, nil if they may not.
func (c *Config) unfiltered() error {
	if c.Sandbox == Off {
		return errSandboxOff
	}
	return trySeccomp()
}

var errSandboxOff = errors.New("--sandbox is off")

// paths returns what all tasks may access.
func (c *Config) paths(asRoot bool) *paths {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/root"
	}
	return newPaths(c.Data, os.Getenv("PATH"), home, asRoot, c.Read, c.Write)
}

// exposedPaths lists what the users of tasks must reach.
func (c *Config) exposedPaths(p *paths) []string {
	list := slices.Concat(p.read, c.Write, c.Expose)
	if own, err := os.Executable(); err == nil {
		list = append(list, own)
	}
	return list
}

// grantAccess gives the users of tasks access to the worker's folders.
func (l *Isolator) grantAccess() error {
	users := l.runAs.sampleUsers()
	if len(users) == 0 {
		return nil
	}
	for _, name := range []string{"tasks", "checkpoints"} {
		dir := filepath.Join(l.cfg.Data, name)
		if err := errors.Join(os.MkdirAll(dir, 0o700), allowTraverse(l.cfg.Data, dir)); err != nil {
			return muster.Errorf(muster.Invalid, "cannot give the user of tasks access to the worker's data dir: %w", err)
		}
	}
	for _, u := range users {
		if l.runAs.canReach(u, filepath.Join(l.cfg.Data, "tasks")) {
			continue
		}
		return muster.Errorf(muster.Invalid, "the user of tasks cannot reach the worker's data dir %s: move --data to a folder that all users may pass through, such as /var/lib/muster, or use --task-user root%s",
			l.cfg.Data, viewHint(l.runAs.viewErr))
	}
	for _, path := range slices.Concat(l.cfg.Read, l.cfg.Write) {
		dir := path
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			dir = filepath.Dir(path)
		}
		if !l.runAs.canReach(users[0], dir) {
			l.cfg.Log.Warn("tasks cannot reach " + path + ": the mode of a parent folder denies access to their user")
		}
	}
	return nil
}

func viewHint(err error) string {
	if err == nil {
		return ""
	}
	return " (a mount namespace cannot show it to them: " + err.Error() + ")"
}

// Prepare creates what isolates an attempt.
func (l *Isolator) Prepare(t *run.Task, f run.Folders) (*run.IsolationSpec, error) {
	c := &run.IsolationSpec{View: l.runAs.view, IPC: l.ipc(t.Grant.Memory), NoNewPrivileges: true, Seccomp: l.filter, NoNet: t.Spec.Network == muster.NetworkNone}
	if t.Spec.Network == muster.NetworkAllowlist {
		c.NoNet, c.AllowHosts = true, t.Spec.AllowHosts
	}
	var err error
	if c.User, err = l.runAs.acquire(len(f.Write) > 0, len(t.Grant.GPUs) > 0); err != nil {
		return nil, err
	}
	if c.User != nil {
		if err := l.chownFolders(c.User, f); err != nil {
			l.runAs.release(c)
			return nil, run.Failf(muster.WorkerInternal, "cannot make the task's user the owner of its folders: %w", err)
		}
	}
	if l.paths != nil {
		c.Sandbox = l.paths.sandbox(f, len(t.Grant.GPUs) > 0)
	}
	if err := l.applyLimits(c, t); err != nil {
		l.runAs.release(c)
		return nil, err
	}
	return c, nil
}

// ipc returns the IPC of a task or a tool with this limit of memory, nil for the machine's.
func (l *Isolator) ipc(memory muster.Size) *run.IPC {
	if l.runAs.ipcErr != nil {
		return nil
	}
	return &run.IPC{Size: cmp.Or(memory, l.cfg.Memory/2)}
}

// applyLimits creates an attempt's control groups, and adds the limits that they do not enforce.
func (l *Isolator) applyLimits(c *run.IsolationSpec, t *run.Task) error {
	limits := l.cgroupLimits(t)
	cgroups, enforced, err := l.groups.Create(t.Attempt, limits)
	if err != nil {
		// %v: an error such as ENOSPC means that the kernel has no space for a group, not that the disk is full.
		return run.Failf(muster.WorkerInternal, "%v", err)
	}
	c.Cgroups = cgroups
	c.WatchDisk = l.diskLimit(t)
	if enforced.Memory == 0 {
		c.WatchMemory = limits.Memory
	}
	if enforced.PIDs == 0 {
		c.WatchPIDs = limits.PIDs
		switch {
		case c.User != nil && c.User.Dynamic:
			c.Rlimits = []run.Rlimit{{Name: "nproc", Value: uint64(limits.PIDs)}}
		case c.User != nil && l.pids > 0:
			// It applies to all processes of the user together, which are tasks.
			c.Rlimits = []run.Rlimit{{Name: "nproc", Value: uint64(l.pids)}}
		}
	}
	return nil
}

// diskLimit returns how much a task may write; 0 means no limit.
func (l *Isolator) diskLimit(t *run.Task) muster.Size {
	switch {
	case t.Grant.Disk > 0:
		return t.Grant.Disk
	case l.cfg.Disk != nil:
		return *l.cfg.Disk
	}
	u, err := disk.Usage(l.cfg.Data)
	if err != nil {
		return 0
	}
	return max(muster.Size(u.Free)/2, minTaskDisk)
}

func (l *Isolator) cgroupLimits(t *run.Task) cgroup.Limits {
	return cgroup.Limits{CPUs: t.Grant.CPUs, Memory: t.Grant.Memory, PIDs: cmp.Or(max(t.Grant.PIDs, 0), l.cfg.PIDs), Swap: l.cfg.Swap}
}

// PrepareContainer creates the control groups of an attempt that runs in a container. The engine enforces its limits too, except
// the disk's.
func (l *Isolator) PrepareContainer(t *run.Task) (*run.IsolationSpec, error) {
	c := &run.IsolationSpec{WatchDisk: l.diskLimit(t)}
	if t.Grant.PIDs == 0 {
		c.WatchPIDs = l.cfg.PIDs
	}
	var err error
	if c.Cgroups, c.CgroupParent, err = l.groups.CreateForContainer(t.Attempt, l.cgroupLimits(t)); err != nil {
		return nil, run.Failf(muster.WorkerInternal, "%v", err) // see applyLimits
	}
	return c, nil
}

// PrepareTool returns the isolation of a program of the worker's own that may run code that tasks chose.
func (l *Isolator) PrepareTool(read, write []string) *run.IsolationSpec {
	c := &run.IsolationSpec{NoNewPrivileges: true, Seccomp: l.filter, View: l.runAs.view, IPC: l.ipc(0), User: l.toolUser(read, write)}
	if c.User == nil && l.runAs.rootReason == nil {
		c.View, c.IPC = nil, nil // it would hide folders of the worker's own user
	}
	if l.paths != nil {
		c.Sandbox = &run.Sandbox{Read: slices.Concat(l.paths.read, read), Write: slices.Concat(l.paths.write, write), List: l.paths.list}
	}
	return c
}

// toolUser returns the user of a tool, which becomes the owner of write and may read read. It returns nil, the worker's own user, if
// that is not possible.
func (l *Isolator) toolUser(read, write []string) *run.User {
	u := l.runAs.toolUser()
	if u == nil {
		return nil
	}
	for _, dir := range write {
		err := errOutside
		if inside(dir, l.cfg.Data) {
			err = errors.Join(l.allowTraverse(filepath.Dir(dir)), chownAll(dir, u))
		}
		if err != nil {
			l.mu.Lock()
			warned := l.unownable[dir]
			l.unownable[dir] = true
			l.mu.Unlock()
			if !warned {
				l.cfg.Log.Warn("packages for tasks are built as root, in a sandbox: cannot change the owner of " + dir + ": " + err.Error())
			}
			return nil
		}
	}
	for _, path := range read {
		if inside(path, l.cfg.Data) && !insideAny(path, write) {
			if err := l.allowRead(path); err != nil {
				l.cfg.Log.Warn("cannot give the builder of packages access to a folder of the worker", slog.String("folder", path), slog.Any("error", err))
			}
		}
	}
	return u
}

var errOutside = errors.New("it is not in the worker's data dir")

// chownFolders makes a user the owner of an attempt's folders, and lets it read what it needs of the worker's.
func (l *Isolator) chownFolders(u *run.User, f run.Folders) error {
	for _, dir := range []string{f.Base, f.Checkpoint} {
		if dir == "" {
			continue
		}
		if err := errors.Join(l.allowTraverse(filepath.Dir(dir)), chownTree(dir, u)); err != nil {
			return err
		}
	}
	readable := append([]string{filepath.Join(l.cfg.Data, "sdk")}, f.Read...)
	if f.Runtime != "" {
		readable = append(readable, f.Runtime, interpreterPrefix(f.Runtime))
	}
	for _, path := range readable {
		if !inside(path, l.cfg.Data) {
			continue // its owner sets its mode
		}
		if err := l.allowRead(path); err != nil {
			return err
		}
	}
	for _, dir := range f.Write {
		err := l.allowTraverse(filepath.Dir(dir))
		if u.Dynamic {
			err = errors.Join(err, shareWithGroup(dir, l.runAs.uids.sharedGID()))
		} else {
			err = errors.Join(err, os.Chown(dir, int(u.UID), int(u.GID)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// allowTraverse lets the users of tasks pass through a folder in the worker's data dir.
func (l *Isolator) allowTraverse(dir string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.traversable[dir] {
		return nil
	}
	err := allowTraverse(l.cfg.Data, dir)
	l.traversable[dir] = err == nil
	return err
}

// allowRead lets the user of tasks read a folder in the worker's data dir.
func (l *Isolator) allowRead(dir string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.readable[dir] || !exists(dir) {
		return nil
	}
	if err := errors.Join(allowTraverse(l.cfg.Data, filepath.Dir(dir)), allowRead(dir)); err != nil {
		return err
	}
	l.readable[dir] = true
	return nil
}

// Stats returns the counters of a task. The peak of its memory includes its page cache.
func (l *Isolator) Stats(c *run.IsolationSpec) run.CgroupStats { return cgroup.Stats(c) }

// CurrentStats returns what a task uses now, as far as the kernel counts it.
func (l *Isolator) CurrentStats(c *run.IsolationSpec) run.CgroupStats { return cgroup.CurrentStats(c) }

// Release removes what Prepare or PrepareContainer created, after the end of the task. Run removes groups that are still busy.
func (l *Isolator) Release(c *run.IsolationSpec) {
	l.groups.Remove(c.Cgroups)
	l.runAs.release(c)
}

// Run removes what Release left until ctx is done.
func (l *Isolator) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			l.groups.RetryRemove()
		}
	}
}

// Sweep kills processes in control groups from before a restart of the worker, and removes the groups, except those of keep.
func (l *Isolator) Sweep(keep ...*run.IsolationSpec) error {
	var keptCgroups []run.Cgroup
	for _, c := range keep {
		keptCgroups = append(keptCgroups, c.Cgroups...)
		l.runAs.reserve(c)
	}
	if err := l.groups.Sweep(keptCgroups); err != nil {
		return muster.Errorf(muster.Internal, "cannot remove control groups of earlier tasks: %w", err)
	}
	return nil
}

// Close removes the groups of all tasks, unless they have processes. It is for a worker that leaves nothing running.
func (l *Isolator) Close() { l.groups.Close() }
