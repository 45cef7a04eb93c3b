package limit

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/limit/cgroup"
	"github.com/muster-dev/muster/internal/agent/limit/landlock"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Mode says whether tasks are put into a sandbox.
type Mode string

// The modes.
const (
	Auto   Mode = "auto"   // where the kernel can
	Off    Mode = "off"    // never
	Strict Mode = "strict" // always: where the kernel cannot, there is no worker
)

// DefaultPIDs is how many processes and threads a task may have that names no
// number.
const DefaultPIDs = 4096

// Config says how a worker holds its tasks.
type Config struct {
	Data     string      // the worker's data dir, absolute
	TaskUser string      // whom tasks run as; "" means the worker's own user
	Sandbox  Mode        // "" means Auto
	Read     []string    // what tasks may read besides the system, absolute
	Write    []string    // what they may change besides their own folders, absolute
	PIDs     int         // of a task that names none; 0 means DefaultPIDs
	Memory   muster.Size // of all tasks together; 0 means all that there is
	Swap     bool        // tasks may use the machine's swap beyond their memory
	Log      *slog.Logger
}

// Limits holds the tasks of one worker. It implements run.Limiter.
type Limits struct {
	cfg    Config
	user   *run.User // nil for the worker's own
	paths  *paths    // nil for no sandbox
	tools  *paths    // of the worker's own user
	groups *cgroup.Groups
	pids   int // of all tasks together; 0 means that it is not known

	mu    sync.Mutex
	shown map[string]bool // folders that other users may read
}

var _ run.Limiter = (*Limits)(nil)

// New checks the configuration, and makes the groups that all tasks are in.
func New(cfg Config) (*Limits, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	if cfg.PIDs == 0 {
		cfg.PIDs = DefaultPIDs
	}
	if cfg.Sandbox != Off && landlock.ABI() == 0 {
		cfg.Log.Warn("tasks can read and change whatever their user can: this system has no Landlock to keep them in a sandbox")
		cfg.Sandbox = Off
	}
	if cfg.TaskUser == "" && os.Geteuid() == 0 {
		cfg.Log.Warn("tasks run as root: give --task-user a user without privileges, or what root's sockets serve, such as a container engine, is open to them")
	}
	l := &Limits{cfg: cfg, shown: map[string]bool{}}
	if cfg.TaskUser != "" {
		if err := l.setUser(); err != nil {
			return nil, err
		}
	}
	if cfg.Sandbox != Off {
		l.paths, l.tools = l.newPaths(l.user), l.newPaths(nil)
	}
	l.pids = cgroup.Share()
	l.groups = cgroup.New(cfg.Data, cgroup.Totals{Memory: cfg.Memory, PIDs: l.pids, Swap: cfg.Swap}, cfg.Log)
	return l, nil
}

// Check says what is wrong with a configuration on this machine. Log need not be set.
func (c *Config) Check() error {
	switch abi := landlock.ABI(); {
	case c.Sandbox != "" && c.Sandbox != Auto && c.Sandbox != Off && c.Sandbox != Strict:
		return muster.Errorf(muster.Invalid, "--sandbox is %q: write auto, off or strict", c.Sandbox)
	case c.Sandbox == Strict && abi < landlock.StrictABI:
		return muster.Errorf(muster.Invalid,
			"--sandbox strict needs Landlock of version %d, and this kernel has %d: use Linux 6.12 or newer, or --sandbox auto", landlock.StrictABI, abi)
	case c.PIDs < 0:
		return muster.Errorf(muster.Invalid, "--task-pids is %d: a task needs at least one process", c.PIDs)
	}
	data := resolved(c.Data)
	for _, path := range slices.Concat(c.Read, c.Write) {
		if !filepath.IsAbs(path) {
			return muster.Errorf(muster.Invalid, "%s is not an absolute path: tasks are let into whole paths only", path)
		}
		end, err := filepath.EvalSymlinks(path)
		if err != nil {
			return muster.Errorf(muster.Invalid, "tasks cannot be let into %s: %w", path, err)
		}
		if inside(data, end) || inside(end, data) {
			return muster.Errorf(muster.Invalid, "tasks cannot be let into %s: the worker keeps its identity in %s", path, c.Data)
		}
	}
	if c.TaskUser != "" {
		_, err := lookUp(c.TaskUser)
		return err
	}
	return nil
}

// newPaths returns what all tasks of a user may see, nil for the worker's own.
func (l *Limits) newPaths(u *run.User) *paths {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/root"
	}
	return newPaths(l.cfg.Data, os.Getenv("PATH"), home, u == nil && os.Geteuid() == 0, l.cfg.Read, l.cfg.Write)
}

// setUser finds whom tasks run as, and lets it into the worker's folders.
func (l *Limits) setUser() error {
	user, err := lookUp(l.cfg.TaskUser)
	if err != nil {
		return err
	}
	l.user = user
	for _, part := range []string{"tasks", "checkpoints"} {
		dir := filepath.Join(l.cfg.Data, part)
		if err := errors.Join(os.MkdirAll(dir, 0o700), lead(l.cfg.Data, dir)); err != nil {
			return muster.Errorf(muster.Invalid, "the user %s cannot be let into the worker's data dir: %w", l.cfg.TaskUser, err)
		}
	}
	if err := reach(user, filepath.Join(l.cfg.Data, "tasks")); err != nil {
		return muster.Errorf(muster.Invalid, "the user %s cannot reach the worker's data dir %s: give --data a folder in a place that all users may pass through, such as /var/lib/muster (%w)",
			l.cfg.TaskUser, l.cfg.Data, err)
	}
	for _, path := range slices.Concat(l.cfg.Read, l.cfg.Write) {
		dir := path
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			dir = filepath.Dir(path)
		}
		if reach(user, dir) != nil {
			l.cfg.Log.Warn("tasks are let into " + path + ", but their user " + l.cfg.TaskUser + " cannot come there: the modes of a folder on the way keep it out")
		}
	}
	return nil
}

// Confine makes what holds an attempt.
func (l *Limits) Confine(t *run.Task, f run.Folders) (*run.Confine, error) {
	c := &run.Confine{User: l.user, NoNewPri: true, NoNet: t.Spec.Network == muster.NetworkNone}
	if t.Spec.Network == muster.NetworkAllowlist {
		c.NoNet, c.Hosts = true, t.Spec.AllowHosts
	}
	if l.user != nil {
		if err := l.handOver(f); err != nil {
			return nil, run.Failf(muster.WorkerInternal, "the task's folders cannot be given to the user %s: %w", l.cfg.TaskUser, err)
		}
	}
	if l.paths != nil {
		c.Sandbox = l.paths.sandbox(f, len(t.Grant.GPUs) > 0)
	}
	return c, l.hold(c, t)
}

// hold makes an attempt's control groups, and notes what these cannot enforce.
func (l *Limits) hold(c *run.Confine, t *run.Task) error {
	wanted := l.need(t)
	list, done, err := l.groups.Make(t.Attempt, wanted)
	if err != nil {
		// Not the cause: the kernel has no space for another group, not the disk.
		return run.Failf(muster.WorkerInternal, "%v", err)
	}
	c.Cgroups = list
	c.WatchDisk = t.Grant.Disk
	if done.Memory == 0 {
		c.WatchMemory = wanted.Memory
	}
	if done.PIDs == 0 {
		c.WatchPIDs = wanted.PIDs
		if c.User != nil && l.pids > 0 {
			// Counted for all processes of the user, which are tasks.
			c.Rlimits = []run.Rlimit{{Name: "nproc", Value: uint64(l.pids)}}
		}
	}
	return nil
}

// need is what an attempt is held to.
func (l *Limits) need(t *run.Task) cgroup.Need {
	n := cgroup.Need{CPUs: t.Grant.CPUs, Memory: t.Grant.Memory, PIDs: t.Grant.PIDs, Swap: l.cfg.Swap}
	if n.PIDs <= 0 {
		n.PIDs = l.cfg.PIDs
	}
	return n
}

// Contain makes the control groups of an attempt that runs in a container. What the task was granted
// is its engine's to limit, too, but for the disk.
func (l *Limits) Contain(t *run.Task) (*run.Confine, error) {
	c := &run.Confine{WatchDisk: t.Grant.Disk}
	if t.Grant.PIDs == 0 {
		c.WatchPIDs = l.cfg.PIDs
	}
	var err error
	if c.Cgroups, c.Parent, err = l.groups.Contain(t.Attempt, l.need(t)); err != nil {
		return nil, run.Failf(muster.WorkerInternal, "%v", err) // see hold
	}
	return c, nil
}

// Tool makes what holds a program of the worker's own that may run what tasks chose.
func (l *Limits) Tool(read, write []string) *run.Confine {
	c := &run.Confine{NoNewPri: true}
	if l.tools != nil {
		c.Sandbox = &run.Sandbox{Read: slices.Concat(l.tools.read, read), Write: slices.Concat(l.tools.write, write), List: l.tools.list}
	}
	return c
}

// handOver gives an attempt's folders to the user of tasks, and lets it read what it
// needs of the worker's.
func (l *Limits) handOver(f run.Folders) error {
	for _, dir := range []string{f.Base, f.Checkpoint} {
		if dir == "" {
			continue
		}
		if err := errors.Join(lead(l.cfg.Data, filepath.Dir(dir)), give(dir, l.user)); err != nil {
			return err
		}
	}
	if err := l.show(filepath.Join(l.cfg.Data, "sdk")); err != nil {
		return err
	}
	for _, path := range f.Read {
		if !inside(path, l.cfg.Data) {
			continue // its modes are its owner's to set
		}
		if err := l.show(path); err != nil {
			return err
		}
	}
	for _, dir := range f.Write {
		if err := errors.Join(lead(l.cfg.Data, filepath.Dir(dir)), os.Chown(dir, int(l.user.UID), int(l.user.GID))); err != nil {
			return err
		}
	}
	if f.Runtime == "" {
		return nil
	}
	if err := l.show(f.Runtime); err != nil {
		return err
	}
	if prefix := interpreter(f.Runtime); inside(prefix, l.cfg.Data) {
		return l.show(prefix)
	}
	return nil
}

// show lets the user of tasks read a folder in the worker's data dir.
func (l *Limits) show(dir string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown[dir] || !exists(dir) {
		return nil
	}
	if err := errors.Join(lead(l.cfg.Data, filepath.Dir(dir)), show(dir)); err != nil {
		return err
	}
	l.shown[dir] = true
	return nil
}

// Counted tells what the kernel counted of a task so far. The peak of its memory is
// with the files that the kernel keeps in memory for it.
func (l *Limits) Counted(c *run.Confine) run.Counted { return cgroup.Counted(c) }

// Used tells what a task uses now, as far as the kernel counts it.
func (l *Limits) Used(c *run.Confine) run.Counted { return cgroup.Used(c) }

// Release removes what Confine or Contain made, once nothing of the task is left. What is
// about to end is left for Run.
func (l *Limits) Release(c *run.Confine) { l.groups.Remove(c.Cgroups) }

// Run removes what Release had to leave, until ctx is done.
func (l *Limits) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			l.groups.RemoveLate()
		}
	}
}

// Sweep ends what attempts of earlier lives of the worker left in control groups,
// and removes those. The attempts of keep go on.
func (l *Limits) Sweep(keep ...*run.Confine) error {
	var kept []run.Cgroup
	for _, c := range keep {
		kept = append(kept, c.Cgroups...)
	}
	if err := l.groups.Sweep(kept); err != nil {
		return muster.Errorf(muster.Internal, "control groups of earlier tasks cannot be removed: %w", err)
	}
	return nil
}

// Close removes the groups that all tasks are in, unless some are in them still. It
// is for a worker that ends and leaves nothing running.
func (l *Limits) Close() { l.groups.Close() }
