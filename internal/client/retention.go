package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
)

type (
	// PruneRequest asks for a prune.
	PruneRequest = wire.PruneRequest
	// Pruned is what a prune deletes.
	Pruned = wire.Prune
	// PruneCount counts one kind of data.
	PruneCount = wire.PruneCount
	// Retention is the policies of the server and its projects.
	Retention = wire.Retention
	// RetentionPolicy is how long the data of jobs is kept.
	RetentionPolicy = wire.RetentionPolicy
	// ProjectRetention is the policy of a project.
	ProjectRetention = wire.ProjectRetention
)

// RemoveJob removes an ended job with its logs and artifacts.
func (c *Client) RemoveJob(ctx context.Context, id muster.JobID) error {
	return c.do(ctx, call{method: http.MethodDelete, path: jobPath(id)})
}

// KeepJob exempts a job from retention and prune, or ends that, and returns the job.
func (c *Client) KeepJob(ctx context.Context, id muster.JobID, keep bool) (muster.Job, error) {
	method := http.MethodPut
	if !keep {
		method = http.MethodDelete
	}
	var j muster.Job
	err := c.do(ctx, call{method: method, path: jobPath(id) + "/keep", out: &j, idempotent: true})
	return j, err
}

// Prune deletes what exceeds the retention policies, in the background, or only returns what that is.
func (c *Client) Prune(ctx context.Context, req PruneRequest) (Pruned, error) {
	return post[Pruned](ctx, c, "/prune", req, true)
}

// Retention returns the retention policies.
func (c *Client) Retention(ctx context.Context) (Retention, error) {
	return get[Retention](ctx, c, "/retention", nil)
}

// SetRetention replaces the policy of a project.
func (c *Client) SetRetention(ctx context.Context, project string, policy RetentionPolicy) (ProjectRetention, error) {
	var p ProjectRetention
	err := c.do(ctx, call{method: http.MethodPut, path: retentionPath(project), body: policy, out: &p, idempotent: true})
	return p, err
}

// DeleteRetention applies the policies of the server to a project again.
func (c *Client) DeleteRetention(ctx context.Context, project string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: retentionPath(project), idempotent: true})
}

func retentionPath(project string) string {
	return "/projects/" + url.PathEscape(project) + "/retention"
}
