package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/resultcache"
	"github.com/muster-dev/muster/internal/store"
)

// CacheStore has the results that tasks of a project share.
type CacheStore interface {
	CacheEntries(ctx context.Context, q store.CacheQuery) ([]muster.CacheEntry, error)
	DeleteCacheEntries(ctx context.Context, s store.CacheSelection) (int, error)
}

// maxCompared is among how many entries the nearest one is.
const maxCompared = 1000

func (s *server) cacheRoutes() {
	path := rest.Path("/projects/{project}/cache")
	rest.Handle(s.router, rest.Route{ID: "list-cache", Method: http.MethodGet, Path: path, Tag: "cache",
		Summary: "List results in the cache of a project, the newest first", Verb: auth.ReadJobs}, s.listCache)
	rest.Handle(s.router, rest.Route{ID: "clear-cache", Method: http.MethodDelete, Path: path, Tag: "cache", Status: http.StatusOK,
		Summary: "Delete results from the cache of a project: those that have all of what the parameters say, or all", Verb: auth.RemoveJobs}, s.clearCache)
	rest.Handle(s.router, rest.Route{ID: "explain-cache", Method: http.MethodGet, Path: rest.Path("/tasks/{task}/cache"), Tag: "cache",
		Summary: "Explain how a task uses the result cache, and what differs from the nearest entry", Verb: auth.ReadJobs}, s.explainCached)
}

type listCacheInput struct {
	ProjectPath
	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"maximum number of entries"`
}

func (s *server) listCache(ctx context.Context, in *listCacheInput) (*rest.Response[wire.Cache], error) {
	if err := auth.Can(principalOf(ctx), auth.ReadJobs, auth.Object{Project: in.Project}); err != nil {
		return nil, err
	}
	list, err := s.Cache.CacheEntries(ctx, store.CacheQuery{Project: in.Project, Now: muster.NewTime(time.Now()), Limit: in.Limit})
	answer := wire.Cache{Entries: []wire.CacheEntry{}}
	for i := range list {
		answer.Entries = append(answer.Entries, cacheEntryResponse(&list[i]))
	}
	return rest.Respond(answer), err
}

func cacheEntryResponse(e *muster.CacheEntry) wire.CacheEntry {
	answer := wire.CacheEntry{
		Key: e.Key, Kind: e.Kind, Stage: e.Name, Origin: e.Origin, CreatedAt: e.CreatedAt, ExpiresAt: e.ExpiresAt, Hits: e.Hits, HitAt: e.HitAt,
	}
	for i := range e.Artifacts {
		answer.Size += muster.Size(e.Artifacts[i].Size)
	}
	return answer
}

type clearCacheInput struct {
	ProjectPath
	Job   int64  `query:"job" minimum:"1" maximum:"2147483647" doc:"only results of tasks of this job"`
	Kind  string `query:"kind" maxLength:"64" doc:"only results of this kind"`
	Stage string `query:"stage" maxLength:"64" doc:"only results of stages with this name"`
	Key   string `query:"key" maxLength:"64" pattern:"^[0-9a-f]*$" patternDescription:"hex digits" doc:"only the results whose keys begin with this"`
}

func (s *server) clearCache(ctx context.Context, in *clearCacheInput) (*rest.Response[wire.CacheCleared], error) {
	if err := auth.Can(principalOf(ctx), auth.RemoveJobs, auth.Object{Project: in.Project}); err != nil {
		return nil, err
	}
	n, err := s.Cache.DeleteCacheEntries(ctx, store.CacheSelection{Project: in.Project, Job: muster.JobID(in.Job), Kind: in.Kind, Name: in.Stage, Key: in.Key})
	return rest.Respond(wire.CacheCleared{Deleted: n}), err
}

func (s *server) explainCached(ctx context.Context, in *rest.TaskPath) (*rest.Response[wire.TaskCache], error) {
	task, err := s.Store.Task(ctx, in.ID())
	if err != nil {
		return nil, err
	}
	job, err := s.Store.Job(ctx, task.Job)
	if err != nil {
		return nil, err
	}
	x := wire.TaskCache{Task: task.ID, Outcome: "pending"}
	c := task.Cache
	switch {
	case job.Spec == nil || task.Group >= len(job.Spec.Tasks) || job.Spec.Tasks[task.Group].Cache == 0:
		x.Outcome, x.Summary = "off", "its stage does not use the result cache: write cache: true in the job spec"
		return rest.Respond(x), nil
	case c == nil && task.State == muster.Waiting:
		x.Summary = "it is looked up when the stages that it needs have ended"
		return rest.Respond(x), nil
	case c == nil && task.State == muster.Queued:
		x.Summary = "it was not looked up yet"
		return rest.Respond(x), nil
	case c == nil:
		x.Outcome, x.Summary = "off", "it was not looked up: it had the result of an earlier job, a secret that does not exist, or an image without a digest, or it ended before"
		return rest.Respond(x), nil
	}
	x.Key = c.Key
	if task.Cached {
		x.Outcome, x.Origin, x.Summary = "hit", &task.Origin, fmt.Sprintf("its result is that of task %s, which was identical", task.Origin)
		return rest.Respond(x), nil
	}
	return s.explainMiss(ctx, &task, job.Project, x)
}

// explainMiss compares a task that was looked up and not found with the entries of other tasks.
func (s *server) explainMiss(ctx context.Context, task *muster.Task, project string, x wire.TaskCache) (*rest.Response[wire.TaskCache], error) {
	if x.Summary = "no identical task had a result in the cache"; task.Attempt > 0 || task.State.Final() {
		x.Outcome = "miss"
	}
	list, err := s.Cache.CacheEntries(ctx, store.CacheQuery{Project: project, Now: muster.NewTime(time.Now()), Limit: maxCompared})
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(e muster.CacheEntry) bool { return e.Origin == task.ID })
	nearest := resultcache.Nearest(task.Name, task.Kind, task.Cache.Fields, list)
	if nearest == nil {
		x.Summary += ", which has no results of other tasks"
		return rest.Respond(x), nil
	}
	entry := cacheEntryResponse(nearest)
	x.Nearest = &entry
	all := auth.Can(principalOf(ctx), auth.SubmitJobs, auth.Object{Project: project}) == nil
	for _, d := range resultcache.Differences(task.Cache.Fields, nearest.Fields) {
		if resultcache.Confidential(d.Name) && !all {
			d.Task, d.Entry = hide(d.Task), hide(d.Entry)
		}
		x.Differences = append(x.Differences, wire.CacheDifferent{Name: d.Name, Task: d.Task, Entry: d.Entry})
	}
	if x.Summary += fmt.Sprintf("; the nearest one, of task %s, differs in %d fields", nearest.Origin, len(x.Differences)); len(x.Differences) == 0 {
		x.Summary = fmt.Sprintf("it ran: task %s, which is identical, had no result in the cache by then, or an older one than the stage takes", nearest.Origin)
	}
	return rest.Respond(x), nil
}

// hide replaces a value that there is.
func hide(value string) string {
	if value == "" {
		return ""
	}
	return "(hidden)"
}
