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
	TaskUser string      // whom tasks run as; "" means a user of its own for each attempt if the worker is root, else the worker's
	Sandbox  Mode        // "" means Auto
	Read     []string    // what tasks may read besides the system, absolute
	Write    []string    // what they may change besides their own folders, absolute
	Show     []string    // what they are to come to if the worker lends it to them, absolute
	PIDs     int         // of a task that names none; 0 means DefaultPIDs
	Memory   muster.Size // of all tasks together; 0 means all that there is
	Swap     bool        // tasks may use the machine's swap beyond their memory
	Log      *slog.Logger
}

// Limits holds the tasks of one worker. It implements run.Limiter.
type Limits struct {
	cfg    Config
	tenant *tenant
	paths  *paths // nil for no sandbox
	groups *cgroup.Groups
	pids   int // of all tasks together; 0 means that it is not known

	mu    sync.Mutex
	shown map[string]bool // folders that other users may read
	led   map[string]bool // folders that they may pass through
	alien map[string]bool // folders that were not given to the user of tools
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
	all := commonPaths(&cfg)
	t, err := cfg.tenant(cfg.reachable(all))
	if err != nil {
		return nil, err
	}
	if t.super != nil && cfg.Sandbox == Strict && !cfg.asksSuper() {
		return nil, muster.Errorf(muster.Invalid, "--sandbox strict needs users for tasks, or --task-user root: %w", t.super)
	}
	if t.super != nil {
		cfg.Log.Warn("tasks run as root, since " + t.super.Error() + ": what root's sockets serve, such as a container engine, is open to them")
		all = cfg.paths(true)
	}
	if t.noView != nil {
		cfg.Log.Warn("tasks see the command lines of all processes: " + t.noView.Error())
	}
	l := &Limits{cfg: cfg, tenant: t, shown: map[string]bool{}, led: map[string]bool{}, alien: map[string]bool{}}
	if err := l.letIn(); err != nil {
		return nil, err
	}
	if cfg.Sandbox != Off {
		l.paths = all
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
	if c.TaskUser != "" && (!c.asksSuper() || os.Geteuid() != 0) {
		_, err := lookUp(c.TaskUser)
		return err
	}
	return nil
}

// commonPaths returns what tasks may see that are not root's.
func commonPaths(c *Config) *paths { return c.paths(false) }

// paths returns what all tasks may see; super says that they run as root.
func (c *Config) paths(super bool) *paths {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/root"
	}
	return newPaths(c.Data, os.Getenv("PATH"), home, super, c.Read, c.Write)
}

// reachable lists what the user of tasks is to come to, whatever it lies in.
func (c *Config) reachable(p *paths) []string {
	list := slices.Concat(p.read, c.Write, c.Show)
	if own, err := os.Executable(); err == nil {
		list = append(list, own)
	}
	return list
}

// letIn lets the users of tasks into the worker's folders.
func (l *Limits) letIn() error {
	users := l.tenant.examples()
	if len(users) == 0 {
		return nil
	}
	for _, part := range []string{"tasks", "checkpoints"} {
		dir := filepath.Join(l.cfg.Data, part)
		if err := errors.Join(os.MkdirAll(dir, 0o700), lead(l.cfg.Data, dir)); err != nil {
			return muster.Errorf(muster.Invalid, "the user of tasks cannot be let into the worker's data dir: %w", err)
		}
	}
	for _, u := range users {
		if l.tenant.reach(u, filepath.Join(l.cfg.Data, "tasks")) {
			continue
		}
		return muster.Errorf(muster.Invalid, "the user of tasks cannot reach the worker's data dir %s: give --data a folder in a place that all users may pass through, such as /var/lib/muster, or --task-user root%s",
			l.cfg.Data, because(l.tenant.noView))
	}
	for _, path := range slices.Concat(l.cfg.Read, l.cfg.Write) {
		dir := path
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			dir = filepath.Dir(path)
		}
		if !l.tenant.reach(users[0], dir) {
			l.cfg.Log.Warn("tasks are let into " + path + ", but their user cannot come there: the modes of a folder on the way keep it out")
		}
	}
	return nil
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return " (it cannot be shown to them in another way: " + err.Error() + ")"
}

// Confine makes what holds an attempt.
func (l *Limits) Confine(t *run.Task, f run.Folders) (*run.Confine, error) {
	c := &run.Confine{View: l.tenant.view, NoNewPri: true, NoNet: t.Spec.Network == muster.NetworkNone}
	if t.Spec.Network == muster.NetworkAllowlist {
		c.NoNet, c.Hosts = true, t.Spec.AllowHosts
	}
	var err error
	if c.User, err = l.tenant.attempt(len(f.Write) > 0, len(t.Grant.GPUs) > 0); err != nil {
		return nil, err
	}
	if c.User != nil {
		if err := l.handOver(c.User, f); err != nil {
			l.tenant.end(c)
			return nil, run.Failf(muster.WorkerInternal, "the task's folders cannot be given to its user: %w", err)
		}
	}
	if l.paths != nil {
		c.Sandbox = l.paths.sandbox(f, len(t.Grant.GPUs) > 0)
	}
	if err := l.hold(c, t); err != nil {
		l.tenant.end(c)
		return nil, err
	}
	return c, nil
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
		switch {
		case c.User != nil && c.User.Dynamic:
			c.Rlimits = []run.Rlimit{{Name: "nproc", Value: uint64(wanted.PIDs)}}
		case c.User != nil && l.pids > 0:
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
	c := &run.Confine{NoNewPri: true, View: l.tenant.view, User: l.toolUser(read, write)}
	if c.User == nil && l.tenant.super == nil {
		c.View = nil // which would hide what is the worker's own user's
	}
	if l.paths != nil {
		c.Sandbox = &run.Sandbox{Read: slices.Concat(l.paths.read, read), Write: slices.Concat(l.paths.write, write), List: l.paths.list}
	}
	return c
}

// toolUser gives what a tool may change to its user, and lets it read the rest. The tool is the worker's own user's if that
// is not the worker's to give.
func (l *Limits) toolUser(read, write []string) *run.User {
	u := l.tenant.tool()
	if u == nil {
		return nil
	}
	for _, dir := range write {
		err := errOutside
		if inside(dir, l.cfg.Data) {
			err = errors.Join(l.lead(filepath.Dir(dir)), own(dir, u))
		}
		if err != nil {
			l.mu.Lock()
			told := l.alien[dir]
			l.alien[dir] = true
			l.mu.Unlock()
			if !told {
				l.cfg.Log.Warn("packages for tasks are built by root, in a sandbox: " + dir + " cannot be given to another user: " + err.Error())
			}
			return nil
		}
	}
	for _, path := range read {
		if inside(path, l.cfg.Data) && !within(path, write) {
			if err := l.show(path); err != nil {
				l.cfg.Log.Warn("a folder of the worker's cannot be shown to what builds packages", slog.String("folder", path), slog.Any("error", err))
			}
		}
	}
	return u
}

var errOutside = errors.New("it is not in the worker's data dir")

// handOver gives an attempt's folders to its user, and lets it read what it
// needs of the worker's.
func (l *Limits) handOver(u *run.User, f run.Folders) error {
	for _, dir := range []string{f.Base, f.Checkpoint} {
		if dir == "" {
			continue
		}
		if err := errors.Join(l.lead(filepath.Dir(dir)), give(dir, u)); err != nil {
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
		err := l.lead(filepath.Dir(dir))
		if u.Dynamic {
			err = errors.Join(err, share(dir, l.tenant.accounts.shared()))
		} else {
			err = errors.Join(err, os.Chown(dir, int(u.UID), int(u.GID)))
		}
		if err != nil {
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

// lead lets the users of tasks pass through a folder in the worker's data dir.
func (l *Limits) lead(dir string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.led[dir] {
		return nil
	}
	err := lead(l.cfg.Data, dir)
	l.led[dir] = err == nil
	return err
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
func (l *Limits) Release(c *run.Confine) {
	l.groups.Remove(c.Cgroups)
	l.tenant.end(c)
}

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
		l.tenant.keep(c)
	}
	if err := l.groups.Sweep(kept); err != nil {
		return muster.Errorf(muster.Internal, "control groups of earlier tasks cannot be removed: %w", err)
	}
	return nil
}

// Close removes the groups that all tasks are in, unless some are in them still. It
// is for a worker that ends and leaves nothing running.
func (l *Limits) Close() { l.groups.Close() }
