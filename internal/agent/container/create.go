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
	"github.com/muster-dev/muster/internal/policy"
)

// defaultCapabilities are the capabilities that root in a container has.
var defaultCapabilities = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "NET_BIND_SERVICE"}

// How much of a container's output its engine keeps. The worker reads it while it comes; what is kept bridges the time in
// which nobody reads.
const (
	logSize  = "32m"
	logFiles = 3
)

// Create implements run.Containers.
func (c *Containers) Create(ctx context.Context, b *run.ContainerSpec, logLine, step func(string)) (*run.Container, error) {
	if err := c.Ready(); err != nil {
		return nil, run.Failf(muster.EngineFailed, "the worker's container engine is not ready: %w", err)
	}
	spec := b.Task.Spec
	if denial := policy.CheckContainer(c.cfg.Allow, spec); denial != "" {
		return nil, run.Failf(muster.Rejected, "the worker makes no such container: %s", denial)
	}
	ref, ok := canonicalRef(spec.Image)
	if !ok {
		return nil, run.Failf(muster.TaskInvalid, "%q is not the name of an image", spec.Image)
	}
	mounts, err := c.resolveMounts(spec)
	if err != nil {
		return nil, err
	}
	if err := c.checkAllowlist(spec, c.About()); err != nil {
		return nil, err // before an image is pulled in vain
	}
	policy := containerOptions(spec).Pull
	for retried := false; ; retried = true {
		img, err := c.ensureImage(ctx, ref, policy, logLine, step)
		if err != nil {
			return nil, err
		}
		ctr, err := c.createFrom(ctx, b, ref, img, mounts)
		if errors.Is(err, docker.ErrNotFound) && !retried {
			continue // it was removed meanwhile
		}
		return ctr, err
	}
}

// containerOptions are those of a spec's container, none if it has none.
func containerOptions(spec *muster.TaskSpec) *muster.Container {
	if spec.Container == nil {
		return &muster.Container{}
	}
	return spec.Container
}

// createFrom makes a container of an image.
func (c *Containers) createFrom(ctx context.Context, b *run.ContainerSpec, ref string, img *docker.Image, mounts []docker.Mount) (*run.Container, error) {
	about := c.About()
	if img.OS != "" && img.OS != about.OS || img.Arch != "" && img.Arch != about.Arch {
		return nil, run.Failf(muster.ImageMissing, "the image %s is for %s/%s, and this worker's engine runs %s/%s: use an image for it, or keep the task away by where",
			familiarRef(ref), img.OS, img.Arch, about.OS, about.Arch)
	}
	c.usage.touch(img.ID)
	p, err := c.newPlan(b, img, about)
	if err != nil {
		return nil, err
	}
	p.Mounts = append(p.Mounts, mounts...)
	hosts, err := c.addEntrypoint(p, b, img, about)
	if err != nil {
		return nil, err
	}
	if b.OpenMounts != nil && c.runsAsOther(p.User, img, about) {
		if err := b.OpenMounts(); err != nil {
			return nil, run.Failf(muster.WorkerInternal, "the task's folders cannot be opened to the container's user: %w", err)
		}
	}
	id, err := c.createPlan(ctx, p)
	if err != nil && noCommandRE.MatchString(err.Error()) {
		return nil, run.Failf(muster.StartFailed, "the image %s has no program of its own: say in run what to run", familiarRef(ref))
	}
	if err != nil {
		return nil, err
	}
	ctr := &run.Container{Engine: c.cfg.Engine.Host(), ID: id, Image: digestRef(ref, img), ImageName: familiarRef(ref), InCgroup: p.CgroupParent != "", AllowHosts: hosts}
	return ctr, nil
}

// noCommandRE is what engines say of an image without entrypoint and command.
var noCommandRE = regexp.MustCompile(`(?i)no command (specified|or entrypoint provided)`) //nolint:gochecknoglobals // a constant

// createPlan makes a container. One of its name that is there is of an earlier life, and goes.
func (c *Containers) createPlan(ctx context.Context, p *docker.ContainerSpec) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeouts.operation, errTimeout)
	defer cancel()
	c.track(p.Name, "")
	id, err := c.cfg.Engine.Create(ctx, p)
	if errors.Is(err, docker.ErrConflict) {
		if err = c.removeNamed(ctx, p.Name, err); err == nil {
			id, err = c.cfg.Engine.Create(ctx, p)
		}
	}
	if err == nil {
		c.track(p.Name, id)
		return id, nil
	}
	c.cleanUpFailed(ctx, p.Name, err)
	switch {
	case ctx.Err() != nil && !errors.Is(err, errTimeout):
		return "", run.Failf(muster.WorkerInternal, "the task was stopped: %w", err)
	case errors.Is(err, docker.ErrUnreachable), errors.Is(err, docker.ErrEngineFailed) && c.About().Name == "docker":
		c.checkSoon()
		return "", run.Failf(muster.EngineFailed, "the worker's container engine failed: %w", err)
	case errors.Is(err, docker.ErrDiskFull):
		return "", run.Failf(muster.DiskFull, "%w: make space on the disk of the worker's container engine", err)
	}
	return "", run.Failf(muster.StartFailed, "%w", err)
}

// removeNamed removes the container of a name, for which another one cannot be made. One that is not this worker's stays.
func (c *Containers) removeNamed(ctx context.Context, name string, notOurs error) error {
	list, err := c.cfg.Engine.Containers(ctx, LabelWorker, c.cfg.Worker)
	if err != nil {
		return err
	}
	index := slices.IndexFunc(list, func(l docker.ContainerSummary) bool { return l.Name == name })
	if index < 0 {
		return notOurs
	}
	return c.cfg.Engine.Remove(ctx, list[index].ID)
}

// cleanUpFailed removes what a creation that failed, for why, may have left: an answer may have been lost on its way, and the
// engine may be at it still. What cannot be removed now is swept when the engine is back.
func (c *Containers) cleanUpFailed(ctx context.Context, name string, cause error) {
	uncertain := ctx.Err() != nil || errors.Is(cause, docker.ErrUnreachable)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timeouts.request)
	defer cancel()
	err := c.removeNamed(ctx, name, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.created, name)
	c.sweepPending = c.sweepPending || err != nil
	if uncertain {
		c.lateUntil = time.Now().Add(c.timeouts.lateCreate)
	}
}

// newPlan says how a container is to be.
func (c *Containers) newPlan(b *run.ContainerSpec, img *docker.Image, about *docker.Info) (*docker.ContainerSpec, error) {
	spec, opts, grant := b.Task.Spec, containerOptions(b.Task.Spec), &b.Task.Grant
	p := &docker.ContainerSpec{
		Name: c.containerName(b.Task.Attempt), Image: img.ID,
		Labels: map[string]string{LabelWorker: c.cfg.Worker, LabelAttempt: b.Task.Attempt.String(), LabelData: c.cfg.Dir},
		Env:    mergePythonPath(b.Env, img.Env), Workdir: b.Dir, User: opts.User, Init: about.Init,
		ShmSize: int64(opts.ShmSize), ReadOnly: opts.ReadOnly, LogSize: logSize, LogFiles: logFiles,
		Memory: int64(grant.Memory), UnlimitedSwap: c.cfg.Swap, CPUs: min(grant.CPUs, float64(runtime.NumCPU())), PIDs: int64(cmp.Or(grant.PIDs, c.cfg.PIDs)),
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
	p.CapAdd = slices.Clone(defaultCapabilities)
	for _, name := range opts.Capabilities {
		name = strings.TrimPrefix(name, "CAP_")
		if !slices.Contains(muster.Capabilities, name) {
			return nil, run.Failf(muster.Rejected, "the worker refuses the task: it gives no container the capability %s", name)
		}
		p.CapAdd = append(p.CapAdd, name)
	}
	if p.User == "" {
		p.User = c.defaultUser(about)
	}
	if p.User != "" && b.Home != "" && !hasEnv(b.Env, "HOME") && !isRoot(p.User) {
		p.Env = append(p.Env, "HOME="+b.Home) // the image may not know the user, and then its home is /
	}
	if b.Isolation != nil && b.Isolation.CgroupParent != "" && about.CgroupDriver == "cgroupfs" && !about.Rootless && c.isLocal(about) {
		p.CgroupParent = b.Isolation.CgroupParent
	}
	p.Network = networkMode(spec)
	p.Entrypoint, p.Command = entrypoint(b, opts)
	return p, c.addDevices(p, grant, about)
}

// entrypoint is what a container executes: nil stands for the image's own.
func entrypoint(b *run.ContainerSpec, opts *muster.Container) (entrypoint, command []string) {
	switch {
	case b.HasInterpreter:
		return []string{}, b.Argv
	case opts.Entrypoint != nil:
		return opts.Entrypoint, b.Argv
	}
	return nil, b.Argv
}

// networkMode is the engine's word for what a container may reach. One with an allowlist has nothing but loopback,
// on which its proxy listens.
func networkMode(spec *muster.TaskSpec) string {
	switch spec.Network {
	case muster.NetworkHost:
		return "host"
	case muster.NetworkNone, muster.NetworkAllowlist:
		return "none"
	}
	return "bridge"
}

// defaultUser is whom a container runs as for which nobody names one: where files of root could not be removed by the worker, its
// own user, else whom the image names.
func (c *Containers) defaultUser(about *docker.Info) string {
	if uid := os.Geteuid(); uid > 0 && !about.Rootless && !about.Remapped {
		return fmt.Sprintf("%d:%d", uid, os.Getegid())
	}
	return ""
}

// runsAsOther says whether a container's program may run as another user than the worker, and not as root.
func (c *Containers) runsAsOther(user string, img *docker.Image, about *docker.Info) bool {
	if user == "" {
		user = img.User
	}
	name, _, _ := strings.Cut(user, ":")
	return about.Remapped || !isRoot(user) && name != strconv.Itoa(os.Geteuid())
}

// isRoot says whether a container's user is root.
func isRoot(user string) bool {
	name, _, _ := strings.Cut(user, ":")
	return name == "" || name == "0" || name == "root"
}

// isLocal says whether the engine's containers are processes of this machine's kernel, as far as can be seen: a
// desktop's are those of a virtual one.
func (c *Containers) isLocal(about *docker.Info) bool {
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	return err == nil && strings.HasPrefix(c.cfg.Engine.Host(), "unix://") && strings.TrimSpace(string(kernel)) == about.Kernel
}

// mergePythonPath is the environment of a container beside its image's: the paths of PYTHONPATH go before
// those of the image.
func mergePythonPath(env, image []string) []string {
	out := slices.Clone(env)
	for i, entry := range out {
		paths, ok := strings.CutPrefix(entry, "PYTHONPATH=")
		if !ok {
			continue
		}
		for _, entryOfImage := range image {
			if imagePath, ok := strings.CutPrefix(entryOfImage, "PYTHONPATH="); ok && imagePath != "" {
				out[i] = "PYTHONPATH=" + strings.TrimSuffix(paths, ":") + ":" + imagePath
			}
		}
	}
	return out
}

// hasEnv says whether an environment sets a variable.
func hasEnv(env []string, name string) bool {
	return slices.ContainsFunc(env, func(entry string) bool { return strings.HasPrefix(entry, name+"=") })
}
