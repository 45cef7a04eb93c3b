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
	"github.com/muster-dev/muster/internal/allow"
)

// mounts returns the folders of the worker that a spec wants, where links lead. Those must be allowed
// as well as their names, and be none by which a container would have the worker or its engine.
func (c *Containers) mounts(spec *muster.TaskSpec) ([]docker.Mount, error) {
	var list []docker.Mount
	for _, m := range options(spec).Mounts {
		source, err := filepath.EvalSymlinks(m.Source)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, run.Failf(muster.Rejected, "the worker refuses the task: it has no %s to mount", m.Source)
		case err != nil:
			return nil, run.Failf(muster.Rejected, "the worker refuses the task: %s cannot be mounted: %w", m.Source, err)
		}
		if source != filepath.Clean(m.Source) {
			there := muster.Mount{Source: source, Target: m.Target, ReadOnly: m.ReadOnly}
			if why := allow.CheckContainer(c.cfg.Allow, mounting(spec, there)); why != "" {
				return nil, run.Failf(muster.Rejected, "the worker refuses the task: %s leads to %s, and %s", m.Source, source, why)
			}
		}
		for _, own := range c.owned() {
			if within(own, source) || within(source, own) {
				return nil, run.Failf(muster.Rejected, "the worker refuses the task: %s would give it the worker itself, by %s", m.Source, own)
			}
		}
		if target := filepath.Clean(m.Target); slices.ContainsFunc([]string{"/muster", "/proc", "/sys", "/dev"}, func(p string) bool { return within(p, target) }) || target == "/" {
			return nil, run.Failf(muster.Rejected, "the worker refuses the task: nothing can be mounted at %s", m.Target)
		}
		list = append(list, docker.Mount{Source: source, Target: m.Target, ReadOnly: m.ReadOnly})
	}
	return list, nil
}

// mounting is a spec with one mount alone.
func mounting(spec *muster.TaskSpec, m muster.Mount) *muster.TaskSpec {
	alone, opts := *spec, *options(spec)
	opts.Mounts = []muster.Mount{m}
	alone.Container = &opts
	return &alone
}

// owned lists what no container may have: the worker's data dir, and sockets of engines.
func (c *Containers) owned() []string {
	list := []string{c.cfg.Dir, "/var/run/docker.sock", "/run/docker.sock", "/run/podman", "/run/containerd", "/run/crio"}
	if socket, ok := strings.CutPrefix(c.cfg.Engine.Host(), "unix://"); ok {
		list = append(list, socket)
	}
	for _, path := range slices.Clone(list) {
		if end, err := filepath.EvalSymlinks(path); err == nil && end != path {
			list = append(list, end)
		}
	}
	return list
}

// within says whether path is dir, or in it.
func within(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
