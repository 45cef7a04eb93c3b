package engine

import (
	"context"
	"log/slog"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/resultcache"
	"github.com/muster-dev/muster/internal/sched"
)

// maxLookups limits the lookups in the result cache in one batch. Each takes some 50 µs, and a lookup that succeeds some 10 µs for each artifact.
const maxLookups = 500

// lookUp answers the queries of the scheduler: it completes tasks whose results the cache has, and lets the others run. What becomes ready by
// that is looked up, too.
func (e *Engine) lookUp(ctx context.Context, st *sched.State, now muster.Time, b *batch) {
	for left := maxLookups; left > 0; {
		queries := st.CacheQueries(now, left)
		if len(queries) == 0 {
			return
		}
		left -= len(queries)
		for i := range queries {
			if err := st.Apply(now, e.answer(ctx, st, now, b, &queries[i])); err != nil {
				e.cfg.Log.Error("the answer of the result cache was refused", slog.Any("error", err))
			}
		}
	}
}

// answer looks up one task. If the store fails, the task runs.
func (e *Engine) answer(ctx context.Context, st *sched.State, now muster.Time, b *batch, q *sched.CacheQuery) sched.CacheAnswer {
	ev := sched.CacheAnswer{Task: q.Task}
	in := resultcache.Input{Spec: q.Spec, Element: q.Element, Files: q.Inputs}
	for _, s := range q.Spec.Secrets {
		version, ok := e.cfg.Secrets.Version(q.Project, s.Name)
		if !ok {
			return ev // the attempt fails
		}
		in.Secrets = append(in.Secrets, version)
	}
	if e.cfg.KindVersion != nil {
		in.Kind = e.cfg.KindVersion(q.Spec.Kind, func() []muster.Worker {
			if b.workers == nil {
				b.workers = st.Workers(now)
			}
			return b.workers
		})
	}
	c, err := resultcache.Compute(&in)
	if err != nil {
		return ev // an image of another stage's result, without a digest
	}
	ev.Cache = c
	found, ok, err := e.cfg.Store.CacheEntry(ctx, q.Project, c.Key)
	switch {
	case err != nil:
		e.logErrors.Do(func() { e.cfg.Log.Error("cannot read the result cache", slog.Any("error", err)) })
	case ok && found.CreatedAt >= q.OldestAt && e.keepArtifacts(ctx, found.Artifacts):
		ev.Entry = &found
	}
	return ev
}

// keepArtifacts keeps stored artifacts for the reference that is about to be committed, and reports whether all are there.
func (e *Engine) keepArtifacts(ctx context.Context, list []muster.Artifact) bool {
	for i := range list {
		if size, err := e.cfg.Blobs.Touch(ctx, list[i].SHA256); err != nil || size != list[i].Size {
			return false
		}
	}
	return true
}
