package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
)

// Workers lists all workers by name.
func (c *Client) Workers(ctx context.Context) ([]muster.Worker, error) {
	var list wire.Workers
	err := c.do(ctx, call{method: http.MethodGet, path: "/workers", out: &list, idempotent: true})
	return list.Workers, err
}

// Worker returns one worker by its id, or by its name if only one has it.
func (c *Client) Worker(ctx context.Context, idOrName string) (muster.Worker, error) {
	var w muster.Worker
	err := c.do(ctx, call{method: http.MethodGet, path: workerPath(idOrName), out: &w, idempotent: true})
	return w, err
}

// PauseWorker stops giving tasks to a worker, for a while or, with nil, until it
// is resumed; those it has go on.
func (c *Client) PauseWorker(ctx context.Context, idOrName string, duration *muster.Duration) (muster.Worker, error) {
	return c.steer(ctx, idOrName, "/pause", wire.Pause{For: duration})
}

// ResumeWorker takes a pause or a drain back.
func (c *Client) ResumeWorker(ctx context.Context, idOrName string) (muster.Worker, error) {
	return c.steer(ctx, idOrName, "/resume", nil)
}

// DrainWorker lets a worker finish what it has and then leave. What still runs
// after deadline, unless that is nil, is stopped and goes on elsewhere.
func (c *Client) DrainWorker(ctx context.Context, idOrName string, deadline *muster.Duration) (muster.Worker, error) {
	return c.steer(ctx, idOrName, "/drain", wire.Drain{Deadline: deadline})
}

// HealWorker lets a worker look at quarantined GPUs again: those named by UUID or
// index, or all. What came of it shows in the worker's GPUs a little later.
func (c *Client) HealWorker(ctx context.Context, idOrName string, gpus ...string) (muster.Worker, error) {
	return c.steer(ctx, idOrName, "/heal", wire.Heal{GPUs: gpus})
}

// RemoveWorker forgets a worker that is away for good, and revokes its key.
func (c *Client) RemoveWorker(ctx context.Context, idOrName string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: workerPath(idOrName)})
}

func (c *Client) steer(ctx context.Context, idOrName, verb string, body any) (muster.Worker, error) {
	var w muster.Worker
	err := c.do(ctx, call{method: http.MethodPost, path: workerPath(idOrName) + verb, body: body, out: &w, idempotent: true})
	return w, err
}

func workerPath(idOrName string) string { return "/workers/" + url.PathEscape(idOrName) }
