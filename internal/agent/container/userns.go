package container

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/userns"
)

// userNamespace gives a container a user namespace of its own if the engine has them, and returns what it has. A container with device files has none: they belong to
// groups of the machine, which no namespace has.
func (c *Containers) userNamespace(p *docker.ContainerSpec) userns.Description {
	c.mu.Lock()
	users := c.users
	c.mu.Unlock()
	switch {
	case users.Mode != userns.Own:
	case len(p.Devices) > 0:
		return userns.Description{Mode: userns.None}
	default:
		p.UserNamespace = userns.Size
	}
	return users
}

// checkUser returns a TaskError if the user of a container with a namespace of its own is not one of its users.
func checkUser(p *docker.ContainerSpec, img *docker.Image) error {
	user := p.User
	if user == "" {
		user = img.User
	}
	for id := range strings.SplitSeq(user, ":") {
		if n, err := strconv.Atoi(id); err == nil && p.UserNamespace > 0 && n >= p.UserNamespace {
			return run.Failf(muster.StartFailed, "the container's user is %s, but it has a user namespace with the ids 0 to %d: set container.user to one of these", user, p.UserNamespace-1)
		}
	}
	return nil
}

// mapMounts shows the files of a container's mounts in its user namespace as they are on the disk.
func (c *Containers) mapMounts(ctx context.Context, p *docker.ContainerSpec, id string, about *docker.Info, users userns.Description, logLine func(string)) error {
	if !users.Mount {
		return nil
	}
	ids := docker.MapTo(about.RemappedTo)
	if users.Mode == userns.Own {
		ctx, cancel := context.WithTimeoutCause(ctx, c.timeouts.request, errTimeout)
		defer cancel()
		var err error
		if ids, err = c.cfg.Engine.IDMap(ctx, id); err != nil {
			return run.Failf(muster.EngineFailed, "the worker's container engine failed: %w", err)
		}
	}
	unmapped, err := c.staging.mapIDs(p.Name, ids)
	if err != nil {
		return run.Failf(muster.WorkerInternal, "prepare the container's mounts: %w", err)
	}
	for _, m := range p.Mounts {
		if slices.Contains(unmapped, m.Source) {
			logLine(fmt.Sprintf("%s: its file system does not support user namespaces: the container has the permissions of others there", m.Target))
		}
	}
	return nil
}
