package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/userns"
	"github.com/muster-dev/muster/internal/lazyregexp"
	"github.com/muster-dev/muster/internal/policy"
)

// defaultCapabilities are the capabilities of root in a container.
var defaultCapabilities = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "NET_BIND_SERVICE"}

// How much of a container's output the engine stores, for times in which no process reads it.
const (
	logSize  = "32m"
	logFiles = 3
)

// checkImage returns the canonical name of the image of a task that may run in a container here.
func (c *Containers) checkImage(spec *muster.TaskSpec) (ref string, err error) {
	if err := c.Ready(); err != nil {
		return "", run.Failf(muster.EngineFailed, "the worker's container engine is not ready: %w", err)
	}
	if denial := policy.CheckContainer(c.cfg.Allow, spec); denial != "" {
		return "", run.Failf(muster.Rejected, "the worker rejects the container: %s", denial)
	}
	ref, ok := canonicalRef(spec.Image)
	if !ok {
		return "", run.Failf(muster.TaskInvalid, "%q is not the name of an image", spec.Image)
	}
	return ref, nil
}

// Create implements process.Containers.
func (c *Containers) Create(ctx context.Context, b *run.ContainerSpec, logLine, step func(string)) (*run.Container, error) {
	spec := b.Task.Spec
	ref, err := c.checkImage(spec)
	if err != nil {
		return nil, err
	}
	mounts, err := c.resolveMounts(spec)
	if err != nil {
		return nil, err
	}
	if err := c.checkAllowlist(spec, c.About()); err != nil {
		return nil, err // before a useless pull
	}
	from, err := c.private.taskAccess(b.Task, ref)
	if err != nil {
		return nil, err
	}
	pullPolicy := containerOptions(spec).Pull
	if b.Prepared && pullPolicy == muster.PullAlways {
		pullPolicy = muster.PullMissing
	}
	for retried := false; ; retried = true {
		img, err := c.ensureImage(ctx, ref, pullPolicy, from, logLine, step)
		if err != nil {
			return nil, err
		}
		ctr, err := c.createFrom(ctx, b, ref, img, mounts, logLine)
		if errors.Is(err, docker.ErrNotFound) && !retried {
			continue // the image was removed meanwhile
		}
		return ctr, err
	}
}

// containerOptions returns the container section of a spec, never nil.
func containerOptions(spec *muster.TaskSpec) *muster.Container {
	if spec.Container == nil {
		return &muster.Container{}
	}
	return spec.Container
}

func (c *Containers) createFrom(ctx context.Context, b *run.ContainerSpec, ref string, img *docker.Image, mounts []docker.Mount, logLine func(string)) (ctr *run.Container, failed error) {
	about := c.About()
	if img.OS != "" && img.OS != about.OS || img.Arch != "" && img.Arch != about.Arch {
		return nil, run.Failf(muster.ImageMissing, "the image %s is for %s/%s, but this worker's engine runs %s/%s: use an image for that platform, or select other workers with where",
			familiarRef(ref), img.OS, img.Arch, about.OS, about.Arch)
	}
	c.usage.touch(img.ID)
	p, err := c.newEngineSpec(b, img, about)
	if err != nil {
		return nil, err
	}
	users := c.userNamespace(p)
	if err := checkUser(p, img); err != nil {
		return nil, err
	}
	hosts, err := c.addEntrypoint(p, b, img, about)
	if err != nil {
		return nil, err
	}
	if p.Mounts, err = c.stageMounts(p.Name, p.Mounts, mounts, about, users.Mount); err != nil {
		return nil, err
	}
	if p.UserNamespace > 0 && p.Network == "host" {
		p.Mounts = append(p.Mounts, docker.Mount{Source: "/sys", Target: "/sys", ReadOnly: true}) // it may not mount one of a network that is not its own
	}
	defer func() {
		if failed != nil {
			c.staging.release(p.Name)
		}
	}()
	if b.OpenMounts != nil && c.runsAsOther(p.User, img, about, users) {
		if err := b.OpenMounts(); err != nil {
			return nil, run.Failf(muster.WorkerInternal, "open the task's folders to the container's user: %w", err)
		}
	}
	id, err := c.createContainer(ctx, p)
	if err != nil && noCommandRE.Get().MatchString(err.Error()) {
		return nil, run.Failf(muster.StartFailed, "the image %s has no default command: set run", familiarRef(ref))
	}
	if err != nil {
		return nil, err
	}
	if err := c.mapMounts(ctx, p, id, about, users, logLine); err != nil {
		c.cleanUpFailed(ctx, p.Name, err)
		return nil, err
	}
	return &run.Container{
		Engine: c.cfg.Engine.Host(), ID: id, Image: digestRef(ref, img), ImageName: familiarRef(ref), InCgroup: p.CgroupParent != "", AllowHosts: hosts,
		Written: c.writtenFolders(ctx, id, about),
	}, nil
}

// writtenFolders returns run.Container.Written of a container.
func (c *Containers) writtenFolders(ctx context.Context, id string, about *docker.Info) []string {
	if os.Geteuid() != 0 || !c.isLocal(about) || about.Rootless {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeouts.request, errTimeout)
	defer cancel()
	list, err := c.cfg.Engine.WrittenFolders(ctx, id)
	if err != nil {
		c.cfg.Log.Warn("what a container writes outside its folders does not count for its disk", slog.String("container", id), slog.Any("error", err))
	}
	return slices.DeleteFunc(list, func(path string) bool {
		_, err := os.Stat(path)
		return err != nil // of an engine with another view of the machine
	})
}

// noCommandRE matches the engines' error for an image without entrypoint and command.
var noCommandRE = lazyregexp.New(`(?i)no command (specified|or entrypoint provided)`) //nolint:gochecknoglobals // a constant

// createContainer creates a container. It replaces one with the same name, which an earlier incarnation has left.
func (c *Containers) createContainer(ctx context.Context, p *docker.ContainerSpec) (string, error) {
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
	case strings.Contains(err.Error(), "enough available IDs"):
		return "", run.Failf(muster.EngineFailed, "the worker has no ids for the user namespace of another container: add more for the user containers to /etc/subuid and /etc/subgid, and restart Podman: %w", err)
	case errors.Is(err, docker.ErrDiskFull):
		return "", run.Failf(muster.DiskFull, "%w: free space on the disk of the worker's container engine", err)
	}
	return "", run.Failf(muster.StartFailed, "%w", err)
}

// removeNamed removes this worker's container with a name. It returns notFound if there is none.
func (c *Containers) removeNamed(ctx context.Context, name string, notFound error) error {
	list, err := c.cfg.Engine.Containers(ctx, LabelWorker, c.cfg.Worker)
	if err != nil {
		return err
	}
	index := slices.IndexFunc(list, func(l docker.ContainerSummary) bool { return l.Name == name })
	if index < 0 {
		return notFound
	}
	return c.cfg.Engine.Remove(ctx, list[index].ID)
}

// cleanUpFailed removes what a creation that failed with cause may have left: the response may have been lost, or the engine may still
// be working on it. If that fails, the container is swept later.
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

func (c *Containers) newEngineSpec(b *run.ContainerSpec, img *docker.Image, about *docker.Info) (*docker.ContainerSpec, error) {
	spec, opts, grant := b.Task.Spec, containerOptions(b.Task.Spec), &b.Task.Grant
	p := &docker.ContainerSpec{
		Name: c.containerName(b.Task.Attempt), Image: img.ID,
		Labels: map[string]string{LabelWorker: c.cfg.Worker, LabelAttempt: b.Task.Attempt.String(), LabelData: c.cfg.Dir},
		Env:    prependPath(mergePythonPath(b.Env, img.Env), b.Path, img.Env), Workdir: b.Dir, User: opts.User, Init: about.Init && !b.NoInit,
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
			return nil, run.Failf(muster.Rejected, "the worker rejects the task: capability %s is not available to containers", name)
		}
		p.CapAdd = append(p.CapAdd, name)
	}
	if p.User == "" {
		p.User = c.defaultUser(about)
	}
	if p.User != "" && b.Home != "" && !hasEnv(b.Env, "HOME") && !isRoot(p.User) {
		p.Env = append(p.Env, "HOME="+b.Home) // a user that the image does not know has the home /
	}
	if b.Isolation != nil && b.Isolation.CgroupParent != "" && about.CgroupDriver == "cgroupfs" && !about.Rootless && c.isLocal(about) {
		p.CgroupParent = b.Isolation.CgroupParent
	}
	p.Network = networkMode(spec)
	p.Entrypoint, p.Command = opts.Entrypoint, b.Argv
	if b.HasInterpreter {
		p.Entrypoint = []string{}
	}
	return p, c.addDevices(p, grant, about)
}

// networkMode returns the engine's network mode. A container with an allowlist has only loopback, where its proxy listens.
func networkMode(spec *muster.TaskSpec) string {
	switch spec.Network {
	case muster.NetworkHost:
		return "host"
	case muster.NetworkNone, muster.NetworkAllowlist:
		return "none"
	}
	return "bridge"
}

// defaultUser returns the user of a container whose spec names none: the worker's user if the worker could not remove files of root,
// otherwise "", the image's.
func (c *Containers) defaultUser(about *docker.Info) string {
	if uid := os.Geteuid(); uid > 0 && !about.Rootless && !about.Remapped {
		return fmt.Sprintf("%d:%d", uid, os.Getegid())
	}
	return ""
}

// runsAsOther reports whether a container's program may run as a user who is neither the worker's nor root.
func (c *Containers) runsAsOther(user string, img *docker.Image, about *docker.Info, users userns.Description) bool {
	if user == "" {
		user = img.User
	}
	name, _, _ := strings.Cut(user, ":")
	return about.Remapped && !users.Mount || !isRoot(user) && name != strconv.Itoa(os.Geteuid())
}

// isRoot reports whether a container's user is root, as it is if the container and its image name none.
func isRoot(user string) bool {
	name, _, _ := strings.Cut(user, ":")
	return name == "" || name == "0" || name == "root"
}

func (c *Containers) isLocal(about *docker.Info) bool { return about.IsLocal(c.cfg.Engine.Host()) }

// mergePythonPath returns env with the image's PYTHONPATH appended to its own.
func mergePythonPath(env, image []string) []string {
	out := slices.Clone(env)
	for i, entry := range out {
		paths, ok := strings.CutPrefix(entry, "PYTHONPATH=")
		if !ok {
			continue
		}
		for _, imageEntry := range image {
			if imagePath, ok := strings.CutPrefix(imageEntry, "PYTHONPATH="); ok && imagePath != "" {
				out[i] = "PYTHONPATH=" + strings.TrimSuffix(paths, ":") + ":" + imagePath
			}
		}
	}
	return out
}

// defaultPath is the PATH of a container whose image and environment have none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// prependPath returns env with a folder before its PATH, or that of the image.
func prependPath(env []string, dir string, image []string) []string {
	if dir == "" {
		return env
	}
	path := cmp.Or(run.LookupEnv(env, "PATH"), run.LookupEnv(image, "PATH"), defaultPath)
	return run.SetEnv(env, "PATH", dir+":"+path)
}

func hasEnv(env []string, name string) bool {
	return slices.ContainsFunc(env, func(entry string) bool { return strings.HasPrefix(entry, name+"=") })
}
