package container

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/policy"
)

// resolveMounts returns the folders of the worker that a spec wants, where links lead. Those must be allowed
// as well as their names, and be none by which a container would have the worker or its engine.
func (c *Containers) resolveMounts(spec *muster.TaskSpec) ([]docker.Mount, error) {
	var list []docker.Mount
	for _, m := range containerOptions(spec).Mounts {
		source, err := filepath.EvalSymlinks(m.Source)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, run.Failf(muster.Rejected, "the worker refuses the task: it has no %s to mount", m.Source)
		case err != nil:
			return nil, run.Failf(muster.Rejected, "the worker refuses the task: %s cannot be mounted: %w", m.Source, err)
		}
		if source != filepath.Clean(m.Source) {
			resolved := muster.Mount{Source: source, Target: m.Target, ReadOnly: m.ReadOnly}
			if denial := policy.CheckContainer(c.cfg.Allow, withMount(spec, resolved)); denial != "" {
				return nil, run.Failf(muster.Rejected, "the worker refuses the task: %s leads to %s, and %s", m.Source, source, denial)
			}
		}
		for _, forbidden := range c.forbiddenPaths() {
			if isInside(forbidden, source) || isInside(source, forbidden) {
				return nil, run.Failf(muster.Rejected, "the worker refuses the task: %s would give it the worker itself, by %s", m.Source, forbidden)
			}
		}
		if target := filepath.Clean(m.Target); slices.ContainsFunc([]string{"/muster", "/proc", "/sys", "/dev"}, func(p string) bool { return isInside(p, target) }) || target == "/" {
			return nil, run.Failf(muster.Rejected, "the worker refuses the task: nothing can be mounted at %s", m.Target)
		}
		list = append(list, docker.Mount{Source: source, Target: m.Target, ReadOnly: m.ReadOnly})
	}
	return list, nil
}

// withMount is a spec with one mount alone.
func withMount(spec *muster.TaskSpec, m muster.Mount) *muster.TaskSpec {
	copied, opts := *spec, *containerOptions(spec)
	opts.Mounts = []muster.Mount{m}
	copied.Container = &opts
	return &copied
}

// forbiddenPaths lists what no container may have: the worker's data dir, and sockets of engines.
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

// isInside says whether path is dir, or in it.
func isInside(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
