package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
)

// CacheSelection selects results that have all of what is set.
type CacheSelection struct {
	Job   string // number
	Kind  string
	Stage string
	Key   string // begins with this
}

// Cache lists results in the cache of a project, the newest first.
func (c *Client) Cache(ctx context.Context, project string, limit int) ([]CacheEntry, error) {
	list, err := get[wire.Cache](ctx, c, projectPath(project, "cache", ""), url.Values{"limit": {strconv.Itoa(limit)}})
	return list.Entries, err
}

// ClearCache deletes results from the cache of a project.
func (c *Client) ClearCache(ctx context.Context, project string, s CacheSelection) (cleared CacheCleared, err error) {
	v := url.Values{}
	set(v, "job", s.Job)
	set(v, "kind", s.Kind)
	set(v, "stage", s.Stage)
	set(v, "key", s.Key)
	return cleared, c.do(ctx, call{method: http.MethodDelete, path: projectPath(project, "cache", ""), query: v, out: &cleared})
}

// ExplainCache says how a task uses the result cache.
func (c *Client) ExplainCache(ctx context.Context, id muster.TaskID) (TaskCache, error) {
	return get[TaskCache](ctx, c, "/tasks/"+url.PathEscape(id.String())+"/cache", nil)
}
