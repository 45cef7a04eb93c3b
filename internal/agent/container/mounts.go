package container

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/policy"
)

// resolveMounts returns the mounts of a spec with links resolved. The resolved paths must be allowed too, and must not give the
// container control over the worker or its engine.
func (c *Containers) resolveMounts(spec *muster.TaskSpec) ([]docker.Mount, error) {
	var list []docker.Mount
	for _, m := range containerOptions(spec).Mounts {
		source, err := filepath.EvalSymlinks(m.Source)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, run.Failf(muster.Rejected, "the worker rejects the task: mount source %s does not exist", m.Source)
		case err != nil:
			return nil, run.Failf(muster.Rejected, "the worker rejects the task: mount %s: %w", m.Source, err)
		}
		if source != filepath.Clean(m.Source) {
			resolved := muster.Mount{Source: source, Target: m.Target, ReadOnly: m.ReadOnly}
			if denial := policy.CheckContainer(c.cfg.Allow, withMount(spec, resolved)); denial != "" {
				return nil, run.Failf(muster.Rejected, "the worker rejects the task: %s links to %s: %s", m.Source, source, denial)
			}
		}
		for _, forbidden := range c.forbiddenPaths() {
			if isInside(forbidden, source) || isInside(source, forbidden) {
				return nil, run.Failf(muster.Rejected, "the worker rejects the task: mount %s exposes the worker itself through %s", m.Source, forbidden)
			}
		}
		if target := filepath.Clean(m.Target); slices.ContainsFunc([]string{"/muster", "/proc", "/sys", "/dev"}, func(p string) bool { return isInside(p, target) }) || target == "/" {
			return nil, run.Failf(muster.Rejected, "the worker rejects the task: mount target %s is not allowed", m.Target)
		}
		list = append(list, docker.Mount{Source: source, Target: m.Target, ReadOnly: m.ReadOnly})
	}
	return list, nil
}

// stageMounts binds resolved mounts to where no task can replace them. That needs root, and an engine that sees the worker's mounts, as root;
// otherwise they stay as they are. With mapped the worker's own mounts are staged, too, for mapMounts, and all of them must be.
func (c *Containers) stageMounts(name string, own, mounts []docker.Mount, about *docker.Info, mapped bool) ([]docker.Mount, error) {
	switch {
	case mapped:
		for i := range own { // only the worker could put a link there
			var err error
			if own[i].Source, err = filepath.EvalSymlinks(own[i].Source); err != nil {
				return nil, run.Failf(muster.WorkerInternal, "prepare the container's mounts: %w", err)
			}
		}
		own, mounts = nil, slices.Concat(own, mounts)
	case os.Geteuid() != 0 || !c.isLocal(about) || about.Rootless || about.Remapped:
		return slices.Concat(own, mounts), nil
	}
	staged, err := c.staging.stage(name, mounts)
	switch {
	case errors.Is(err, errReplaced):
		return nil, run.Failf(muster.Rejected, "the worker rejects the task: %w", err)
	case errors.Is(err, fs.ErrPermission) && !mapped:
		c.cfg.Log.Warn("a container's mounts are bound by path, where a task may replace them: the worker needs CAP_SYS_ADMIN", slog.Any("error", err))
		return slices.Concat(own, mounts), nil
	case err != nil:
		return nil, run.Failf(muster.WorkerInternal, "prepare the container's mounts: %w", err)
	}
	return slices.Concat(own, staged), nil
}

// withMount returns a copy of a spec with a single mount.
func withMount(spec *muster.TaskSpec, m muster.Mount) *muster.TaskSpec {
	copied, opts := *spec, *containerOptions(spec)
	opts.Mounts = []muster.Mount{m}
	copied.Container = &opts
	return &copied
}

// forbiddenPaths lists paths that must not be mounted: the worker's data dir, and engine sockets.
func (c *Containers) forbiddenPaths() []string {
	list := []string{c.cfg.Dir, "/var/run/docker.sock", "/run/docker.sock", "/run/podman", "/run/containerd", "/run/crio"}
	if socket, ok := strings.CutPrefix(c.cfg.Engine.Host(), "unix://"); ok {
		list = append(list, socket)
	}
	for _, path := range slices.Clone(list) {
		if target, err := filepath.EvalSymlinks(path); err == nil && target != path {
			list = append(list, target)
		}
	}
	return list
}

// isInside reports whether path is dir or below it.
func isInside(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
