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
	err := c.do(ctx, call{method: http.MethodGet, path: "/workers", out: &list, repeat: true})
	return list.Workers, err
}

// Worker returns one worker by its id, or by its name if only one has it.
func (c *Client) Worker(ctx context.Context, idOrName string) (muster.Worker, error) {
	var w muster.Worker
	err := c.do(ctx, call{method: http.MethodGet, path: workerPath(idOrName), out: &w, repeat: true})
	return w, err
}

// PauseWorker stops giving tasks to a worker; those it has go on.
func (c *Client) PauseWorker(ctx context.Context, idOrName string) (muster.Worker, error) {
	return c.steer(ctx, idOrName, "/pause")
}

// ResumeWorker takes a pause or a drain back.
func (c *Client) ResumeWorker(ctx context.Context, idOrName string) (muster.Worker, error) {
	return c.steer(ctx, idOrName, "/resume")
}

// DrainWorker lets a worker finish what it has and then leave.
func (c *Client) DrainWorker(ctx context.Context, idOrName string) (muster.Worker, error) {
	return c.steer(ctx, idOrName, "/drain")
}

// RemoveWorker forgets a worker that is away for good, and revokes its key.
func (c *Client) RemoveWorker(ctx context.Context, idOrName string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: workerPath(idOrName)})
}

func (c *Client) steer(ctx context.Context, idOrName, verb string) (muster.Worker, error) {
	var w muster.Worker
	err := c.do(ctx, call{method: http.MethodPost, path: workerPath(idOrName) + verb, out: &w, repeat: true})
	return w, err
}

func workerPath(idOrName string) string { return "/workers/" + url.PathEscape(idOrName) }
