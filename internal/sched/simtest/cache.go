package simtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/resultcache"
	"github.com/muster-dev/muster/internal/sched"
	"github.com/muster-dev/muster/internal/sched/inflight"
)

// setCache draws whether a stage uses the result cache. Few arguments and lifetimes make identical tasks common.
func (w *simulation) setCache(t *muster.TaskSpec) {
	if t.Gang != nil || w.rng.IntN(3) > 0 {
		return
	}
	t.Cache = muster.CacheLifetime([]time.Duration{2 * time.Minute, time.Hour}[w.rng.IntN(2)])
	t.Run = &muster.Command{Argv: []string{"compute", fmt.Sprint(w.rng.IntN(2))}}
	if w.rng.IntN(3) > 0 { // as others have
		t.Resources, t.Where, t.Env, t.Image, t.Isolation = muster.Request{}, muster.Where{}, nil, "", ""
	}
}

// lookUp answers queries of the result cache as the engine does: at most a few in each step.
func (w *simulation) lookUp() error {
	for range 2 {
		for _, q := range w.st.CacheQueries(w.now, 3) {
			ev := sched.CacheAnswer{Task: q.Task}
			if c, err := resultcache.Compute(&resultcache.Input{Spec: q.Spec, Element: q.Element, Files: q.Inputs}); err == nil {
				ev.Cache = c
				if e, ok := w.disk.cache[inflight.Key{Project: q.Project, Digest: c.Key}]; ok && (e.CreatedAt >= q.OldestAt || w.rng.IntN(2) == 0) {
					ev.Entry = &e
				}
			}
			if accepted, err := w.apply(ev); err != nil || !accepted {
				return fmt.Errorf("the answer for task %s was refused: %w", q.Task, err)
			}
		}
	}
	return nil
}

func (w *simulation) cacheKey(t *muster.Task) inflight.Key {
	return inflight.Key{Project: w.disk.jobs[t.Job].Project, Digest: t.Cache.Key}
}

// commitCache commits results, and checks that only successes are.
func (w *simulation) commitCache(rows muster.Rows) error {
	for _, t := range rows.Tasks {
		if t.Cache == nil {
			continue
		}
		if err := w.checkCached(&t, rows.CacheEntries); err != nil {
			return err
		}
		if t.State == muster.Failed || t.State == muster.TimedOut {
			w.cacheFailed[w.cacheKey(&t)] = true
		}
	}
	for _, e := range rows.CacheEntries {
		o := w.disk.tasks[e.Origin]
		if o.State != muster.Succeeded || o.Cached || string(o.Result) != string(e.Result) || w.cacheKey(&o) != (inflight.Key{Project: e.Project, Digest: e.Key}) {
			return fmt.Errorf("the result %s of task %s is cached for project %s, which is %s with the result %s", e.Result, e.Origin, e.Project, o.State, o.Result)
		}
		w.disk.cache[inflight.Key{Project: e.Project, Digest: e.Key}] = e
	}
	w.stats.cacheHits += len(rows.CacheHits)
	if w.faults && w.rng.IntN(1000) == 0 { // a user clears the cache
		clear(w.disk.cache)
	}
	return w.checkIdentical()
}

// checkCached checks that a task whose result is from the cache has that of an identical task of its project.
func (w *simulation) checkCached(t *muster.Task, entries []muster.CacheEntry) error {
	if !t.Cached {
		return nil
	}
	o := w.disk.tasks[t.Origin]
	if o.Cache == nil || o.Cached || w.cacheKey(&o) != w.cacheKey(t) {
		return fmt.Errorf("task %s has the result of task %s, which is not identical: %+v and %+v", t.ID, t.Origin, t.Cache, o.Cache)
	}
	e := w.disk.cache[w.cacheKey(t)] // or it is in this commit, and new
	isNew := slices.ContainsFunc(entries, func(e muster.CacheEntry) bool { return e.Origin == t.Origin })
	if age := t.FinishedAt.Sub(e.CreatedAt); !isNew && (e.Origin != t.Origin || age > w.disk.jobs[t.Job].Spec.Tasks[t.Group].Cache.Duration() || e.ExpiresAt <= t.FinishedAt) {
		return fmt.Errorf("task %s has the result of task %s; the cache has one of task %s that is %s old", t.ID, t.Origin, e.Origin, age)
	}
	return nil
}

// checkIdentical checks that identical tasks run one at a time, unless one of them has failed.
func (w *simulation) checkIdentical() error {
	running := map[inflight.Key]muster.TaskID{}
	for _, t := range w.disk.tasks {
		if t.Cache == nil || !t.State.HoldsResources() || w.cacheFailed[w.cacheKey(&t)] {
			continue
		}
		if other, ok := running[w.cacheKey(&t)]; ok {
			return fmt.Errorf("tasks %s and %s are identical and run at once", t.ID, other)
		}
		running[w.cacheKey(&t)] = t.ID
	}
	return nil
}

// checkMiss checks that a task that is started has no result in the cache.
func (w *simulation) checkMiss(m *sched.Assign) error {
	t := w.disk.tasks[m.Attempt.Task]
	if m.Spec.Cache == 0 || t.Cache == nil {
		return nil
	}
	w.stats.cacheMisses++
	if e, ok := w.disk.cache[w.cacheKey(&t)]; ok && e.CreatedAt >= w.now.Add(-m.Spec.Cache.Duration()) && e.ExpiresAt > w.now {
		return fmt.Errorf("attempt %s is started, and the cache has its result, of task %s", m.Attempt, e.Origin)
	}
	return nil
}
