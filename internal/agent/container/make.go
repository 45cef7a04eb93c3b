package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/allow"
)

// granted are the capabilities that root in a container has.
var granted = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "NET_BIND_SERVICE"}

// How much of a container's output its engine keeps. The worker reads it while it comes; what is kept bridges the time in
// which nobody reads.
const (
	logSize  = "32m"
	logFiles = 3
)

// Make implements run.Containers.
func (c *Containers) Make(ctx context.Context, b *run.Box, say, step func(string)) (*run.Container, error) {
	if err := c.Ready(); err != nil {
		return nil, run.Failf(muster.EngineFailed, "the worker's container engine is not ready: %w", err)
	}
	spec := b.Task.Spec
	if why := allow.CheckContainer(c.cfg.Allow, spec); why != "" {
		return nil, run.Failf(muster.Rejected, "the worker makes no such container: %s", why)
	}
	ref, ok := whole(spec.Image)
	if !ok {
		return nil, run.Failf(muster.TaskInvalid, "%q is not the name of an image", spec.Image)
	}
	mounts, err := c.mounts(spec)
	if err != nil {
		return nil, err
	}
	if err := c.gateable(spec, c.About()); err != nil {
		return nil, err // before an image is pulled in vain
	}
	policy := options(spec).Pull
	for again := false; ; again = true {
		img, err := c.bring(ctx, ref, policy, say, step)
		if err != nil {
			return nil, err
		}
		made, err := c.make(ctx, b, ref, img, mounts)
		if errors.Is(err, docker.ErrMissing) && !again {
			continue // it was removed meanwhile
		}
		return made, err
	}
}

// options are those of a spec's container, none if it has none.
func options(spec *muster.TaskSpec) *muster.Container {
	if spec.Container == nil {
		return &muster.Container{}
	}
	return spec.Container
}

// make makes a container of an image.
func (c *Containers) make(ctx context.Context, b *run.Box, ref string, img *docker.Image, mounts []docker.Mount) (*run.Container, error) {
	about := c.About()
	if img.OS != "" && img.OS != about.OS || img.Arch != "" && img.Arch != about.Arch {
		return nil, run.Failf(muster.ImageMissing, "the image %s is for %s/%s, and this worker's engine runs %s/%s: use an image for it, or keep the task away by where",
			short(ref), img.OS, img.Arch, about.OS, about.Arch)
	}
	c.ledger.use(img.ID)
	p, err := c.plan(b, img, about)
	if err != nil {
		return nil, err
	}
	p.Mounts = append(p.Mounts, mounts...)
	hosts, err := c.gated(p, b, img, about)
	if err != nil {
		return nil, err
	}
	if b.Open != nil && c.foreign(p.User, img, about) {
		if err := b.Open(); err != nil {
			return nil, run.Failf(muster.WorkerInternal, "the task's folders cannot be opened to the container's user: %w", err)
		}
	}
	id, err := c.create(ctx, p)
	if err != nil && programless.MatchString(err.Error()) {
		return nil, run.Failf(muster.StartFailed, "the image %s has no program of its own: say in run what to run", short(ref))
	}
	if err != nil {
		return nil, err
	}
	made := &run.Container{Engine: c.cfg.Engine.Host(), ID: id, Image: resolved(ref, img), Name: short(ref), Grouped: p.Parent != "", Hosts: hosts}
	return made, nil
}

// programless is what engines say of an image without entrypoint and command.
var programless = regexp.MustCompile(`(?i)no command (specified|or entrypoint provided)`) //nolint:gochecknoglobals // a constant

// create makes a container. One of its name that is there is of an earlier life, and goes.
func (c *Containers) create(ctx context.Context, p *docker.Plan) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.waits.work, errSlow)
	defer cancel()
	c.claim(p.Name, "")
	id, err := c.cfg.Engine.Create(ctx, p)
	if errors.Is(err, docker.ErrTaken) {
		if err = c.replace(ctx, p.Name, err); err == nil {
			id, err = c.cfg.Engine.Create(ctx, p)
		}
	}
	if err == nil {
		c.claim(p.Name, id)
		return id, nil
	}
	c.abandon(ctx, p.Name, err)
	switch {
	case ctx.Err() != nil && !errors.Is(err, errSlow):
		return "", run.Failf(muster.WorkerInternal, "the task was stopped: %w", err)
	case errors.Is(err, docker.ErrDown), errors.Is(err, docker.ErrFault) && c.About().Name == "docker":
		c.suspect()
		return "", run.Failf(muster.EngineFailed, "the worker's container engine failed: %w", err)
	case errors.Is(err, docker.ErrFull):
		return "", run.Failf(muster.DiskFull, "%w: make space on the disk of the worker's container engine", err)
	}
	return "", run.Failf(muster.StartFailed, "%w", err)
}

// replace removes the container of a name, for which another one cannot be made. One that is not this worker's stays.
func (c *Containers) replace(ctx context.Context, name string, taken error) error {
	list, err := c.cfg.Engine.Containers(ctx, LabelWorker, c.cfg.Worker)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(list, func(l docker.Listed) bool { return l.Name == name })
	if at < 0 {
		return taken
	}
	return c.cfg.Engine.Remove(ctx, list[at].ID)
}

// abandon removes what a creation that failed, for why, may have left: an answer may have been lost on its way, and the
// engine may be at it still. What cannot be removed now is swept when the engine is back.
func (c *Containers) abandon(ctx context.Context, name string, why error) {
	lost := ctx.Err() != nil || errors.Is(why, docker.ErrDown)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.waits.answer)
	defer cancel()
	err := c.replace(ctx, name, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.made, name)
	c.sweep = c.sweep || err != nil
	if lost {
		c.doubt = time.Now().Add(c.waits.late)
	}
}

// plan says how a container is to be.
func (c *Containers) plan(b *run.Box, img *docker.Image, about *docker.About) (*docker.Plan, error) {
	spec, opts, grant := b.Task.Spec, options(b.Task.Spec), &b.Task.Grant
	p := &docker.Plan{
		Name: c.name(b.Task.Attempt), Image: img.ID,
		Labels: map[string]string{LabelWorker: c.cfg.Worker, LabelAttempt: b.Task.Attempt.String(), LabelData: c.cfg.Dir},
		Env:    environ(b.Env, img.Env), Workdir: b.Dir, User: opts.User, Init: about.Init,
		ShmSize: int64(opts.ShmSize), ReadOnly: opts.ReadOnly, LogSize: logSize, LogFiles: logFiles,
		Memory: int64(grant.Memory), Swap: c.cfg.Swap, CPUs: min(grant.CPUs, float64(runtime.NumCPU())), PIDs: int64(cmp.Or(grant.PIDs, c.cfg.PIDs)),
	}
	if opts.Workdir != "" {
		p.Workdir = opts.Workdir
	}
	if opts.ReadOnly {
		p.Tmpfs = map[string]string{"/tmp": "rw,nosuid,nodev,mode=1777"}
	}
	for _, m := range b.Mounts {
		p.Mounts = append(p.Mounts, docker.Mount(m))
	}
	p.Keep = slices.Clone(granted)
	for _, name := range opts.Capabilities {
		name = strings.TrimPrefix(name, "CAP_")
		if !slices.Contains(muster.Capabilities, name) {
			return nil, run.Failf(muster.Rejected, "the worker refuses the task: it gives no container the capability %s", name)
		}
		p.Keep = append(p.Keep, name)
	}
	if p.User == "" {
		p.User = c.user(about)
	}
	if p.User != "" && b.Home != "" && !has(b.Env, "HOME") && !root(p.User) {
		p.Env = append(p.Env, "HOME="+b.Home) // the image may not know the user, and then its home is /
	}
	if b.Groups != nil && b.Groups.Parent != "" && about.CgroupDriver == "cgroupfs" && !about.Rootless && c.here(about) {
		p.Parent = b.Groups.Parent
	}
	p.Network = network(spec)
	p.Entrypoint, p.Command = program(b, opts)
	return p, c.devices(p, grant, about)
}

// program is what a container executes: nil stands for the image's own.
func program(b *run.Box, opts *muster.Container) (entrypoint, command []string) {
	switch {
	case b.Shell:
		return []string{}, b.Argv
	case opts.Entrypoint != nil:
		return opts.Entrypoint, b.Argv
	}
	return nil, b.Argv
}

// network is the engine's word for what a container may reach. One with an allowlist has nothing but loopback,
// on which its proxy listens.
func network(spec *muster.TaskSpec) string {
	switch spec.Network {
	case muster.NetworkHost:
		return "host"
	case muster.NetworkNone, muster.NetworkAllowlist:
		return "none"
	}
	return "bridge"
}

// user is whom a container runs as for which nobody names one: where files of root could not be removed by the worker, its
// own user, else whom the image names.
func (c *Containers) user(about *docker.About) string {
	if uid := os.Geteuid(); uid > 0 && !about.Rootless && !about.Remapped {
		return fmt.Sprintf("%d:%d", uid, os.Getegid())
	}
	return ""
}

// foreign says whether a container's program may run as another user than the worker, and not as root.
func (c *Containers) foreign(user string, img *docker.Image, about *docker.About) bool {
	if user == "" {
		user = img.User
	}
	name, _, _ := strings.Cut(user, ":")
	return about.Remapped || !root(user) && name != strconv.Itoa(os.Geteuid())
}

// root says whether a container's user is root.
func root(user string) bool {
	name, _, _ := strings.Cut(user, ":")
	return name == "" || name == "0" || name == "root"
}

// here says whether the engine's containers are processes of this machine's kernel, as far as can be seen: a
// desktop's are those of a virtual one.
func (c *Containers) here(about *docker.About) bool {
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	return err == nil && strings.HasPrefix(c.cfg.Engine.Host(), "unix://") && strings.TrimSpace(string(kernel)) == about.Kernel
}

// environ is the environment of a container beside its image's: the paths of PYTHONPATH go before
// those of the image.
func environ(env, image []string) []string {
	out := slices.Clone(env)
	for i, entry := range out {
		paths, ok := strings.CutPrefix(entry, "PYTHONPATH=")
		if !ok {
			continue
		}
		for _, own := range image {
			if more, ok := strings.CutPrefix(own, "PYTHONPATH="); ok && more != "" {
				out[i] = "PYTHONPATH=" + strings.TrimSuffix(paths, ":") + ":" + more
			}
		}
	}
	return out
}

// has says whether an environment sets a variable.
func has(env []string, name string) bool {
	return slices.ContainsFunc(env, func(entry string) bool { return strings.HasPrefix(entry, name+"=") })
}
