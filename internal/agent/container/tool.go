package container

import (
	"context"
	"errors"
	"io"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Image implements process.Containers.
func (c *Containers) Image(ctx context.Context, t *run.Task, logLine, step func(string)) (id, name string, err error) {
	ref, err := c.checkImage(t.Spec)
	if err != nil {
		return "", "", err
	}
	from, err := c.private.taskAccess(t, ref)
	if err != nil {
		return "", "", err
	}
	img, err := c.ensureImage(ctx, ref, containerOptions(t.Spec).Pull, from, logLine, step)
	if err != nil {
		return "", "", err
	}
	return img.ID, familiarRef(ref), nil
}

// RunTool implements process.Containers.
func (c *Containers) RunTool(ctx context.Context, b *run.ContainerSpec, w io.Writer) (code int, err error) {
	discard := func(string) {}
	ctr, err := c.Create(ctx, b, discard, discard)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Remove(context.WithoutCancel(ctx), ctr)) }()
	out, err := c.cfg.Engine.Attach(ctx, ctr.ID)
	if err != nil {
		return 0, c.toolError(ctx, err)
	}
	defer func() { _ = out.Close() }()
	if err := c.cfg.Engine.Start(ctx, ctr.ID); err != nil {
		if ctx.Err() == nil && !errors.Is(err, docker.ErrUnreachable) {
			return 0, run.Failf(muster.StartFailed, "%w", err)
		}
		return 0, c.toolError(ctx, err)
	}
	c.Started(ctr)
	stop := context.AfterFunc(ctx, func() { _ = out.Close() })
	defer stop()
	for {
		if _, _, err := out.Next(); err != nil {
			break // Wait knows more
		}
		_, _ = io.Copy(w, out) // its reader reads to the end
	}
	if code, err = c.cfg.Engine.Wait(ctx, ctr.ID); err != nil {
		return 0, c.toolError(ctx, err)
	}
	return code, nil
}

// toolError is the error of a container that ran a tool.
func (c *Containers) toolError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c.checkSoon()
	return run.Failf(muster.EngineFailed, "the worker's container engine failed: %w", err)
}
