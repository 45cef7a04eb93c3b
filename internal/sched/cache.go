package sched

import (
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/inflight"
	"github.com/muster-dev/muster/internal/sched/retry"
)

// A queued task of a stage with cache is parked, outside the queue: first until its result was looked up, which the engine does before it
// places tasks, and then while an identical task runs. That one's success is also its own; if it fails for good, both run.

// CacheQuery asks for the result of a queued task.
type CacheQuery struct {
	Task     muster.TaskID
	Project  string
	Spec     *muster.TaskSpec // resolved
	Element  int              // position in the stage
	Inputs   []muster.InputFile
	OldestAt muster.Time // a result that is older is not used
}

// CacheQueries returns at most n queries. Each must be answered by a CacheAnswer before the next Place.
func (s *State) CacheQueries(now muster.Time, n int) []CacheQuery {
	s.lookups = slices.DeleteFunc(s.lookups, func(t *task) bool { return !t.lookup })
	queries := make([]CacheQuery, 0, min(n, len(s.lookups)))
	for _, t := range s.lookups[:min(n, len(s.lookups))] {
		spec := t.group.spec()
		queries = append(queries, CacheQuery{
			Task: t.row.ID, Project: t.group.job.row.Project, Spec: spec, Element: t.element(), Inputs: t.group.inputs, OldestAt: now.Add(-spec.Cache.Duration()),
		})
	}
	return queries
}

func (s *State) answer(now muster.Time, ev CacheAnswer) error {
	t := s.task(ev.Task)
	if t == nil || !t.lookup {
		return muster.Errorf(muster.Conflict, "task %s does not wait for the result cache", ev.Task)
	}
	t.lookup, t.parked, t.lookedUp = false, false, true
	if t.row.Cache != nil {
		s.inflight.Unqueue(t.cacheKey(), t)
	}
	t.row.Cache = ev.Cache
	s.changedTask(t)
	if ev.Cache == nil {
		s.enqueue(t)
		return nil
	}
	s.inflight.Queue(t.cacheKey(), t)
	entry := ev.Entry
	if i := slices.IndexFunc(s.out.cacheEntries, func(e muster.CacheEntry) bool { return e.Project == t.group.job.row.Project && e.Key == ev.Cache.Key }); i >= 0 {
		entry = &s.out.cacheEntries[i] // not committed yet
	}
	if entry == nil || entry.ExpiresAt <= now || entry.CreatedAt < now.Add(-t.group.spec().Cache.Duration()) {
		s.enqueue(t)
		return nil
	}
	s.hit(now, t, entry)
	return nil
}

// hit completes a queued task with a result from the cache.
func (s *State) hit(now muster.Time, t *task, e *muster.CacheEntry) {
	if t.item.Queued() {
		s.queue.Remove(&t.item)
	}
	r := &t.row
	r.Cache = &muster.TaskCache{Key: e.Key, Fields: r.Cache.Fields, Origin: e.Origin}
	r.Origin, r.Cached = e.Origin, true
	r.ExitCode, r.Metrics, r.Result, r.Artifacts, r.Image = e.ExitCode, e.Metrics, e.Result, e.Artifacts, e.Image
	r.Reason, r.Message, r.NotBefore, r.FinishedAt = muster.NoReason, "", 0, now
	s.out.cacheHits = append(s.out.cacheHits, muster.CacheHit{Project: e.Project, Key: e.Key, At: now})
	s.setState(now, t, muster.Succeeded)
}

// park keeps a queued task outside the queue until its lookup, which it requests, is answered, and while an identical task runs. It reports
// whether the task is parked.
func (s *State) park(t *task) bool {
	switch {
	case t.group.spec().Cache == 0:
		return false
	case !t.lookedUp && !t.lookup:
		t.lookup = true
		s.lookups = append(s.lookups, t)
	}
	_, running := s.identical(t)
	t.parked = t.lookup || running
	return t.parked
}

// identical returns the task for whose result a queued task waits.
func (s *State) identical(t *task) (*task, bool) {
	if t.row.Cache == nil || t.alone {
		return nil, false
	}
	return s.inflight.Running(t.cacheKey())
}

// cacheEnded handles the end of an attempt of a task that uses the cache.
func (s *State) cacheEnded(now muster.Time, t *task, v *retry.Decision) {
	r, key := &t.row, t.cacheKey()
	if v.State == muster.Succeeded {
		e := muster.CacheEntry{
			Project: key.Project, Key: key.Digest, Kind: r.Kind, Name: r.Name, Origin: r.ID, CreatedAt: now, ExpiresAt: now.Add(t.group.spec().Cache.Duration()),
			Fields: r.Cache.Fields, ExitCode: r.ExitCode, Metrics: r.Metrics, Result: r.Result, Artifacts: r.Artifacts, Image: r.Image,
		}
		s.out.cacheEntries = append(s.out.cacheEntries, e)
		for _, other := range s.inflight.Queued(key, byNumber) {
			s.hit(now, other, &e)
		}
		return
	}
	failed := v.State == muster.Failed || v.State == muster.TimedOut
	for _, other := range s.inflight.Queued(key, byNumber) {
		if other.alone = other.alone || failed; other.parked && !other.lookup {
			s.enqueue(other)
		}
	}
}

// cacheKey returns what identical tasks have in common. It is known once the result was looked up.
func (t *task) cacheKey() inflight.Key {
	return inflight.Key{Project: t.group.job.row.Project, Digest: t.row.Cache.Key}
}

// checkCache checks that no task waits for a result that does not come.
func (s *State) checkCache(t *task) error {
	_, running := s.identical(t)
	switch {
	case t.lookup != (t.parked && !t.lookedUp), t.lookup && !slices.Contains(s.lookups, t):
		return broken("task %s is parked until it was looked up in the cache, which is not pending", t.row.ID)
	case t.parked && (t.row.State != muster.Queued || t.item.Queued()):
		return broken("task %s is parked, and %s or in the queue", t.row.ID, t.row.State)
	case t.parked && !t.lookup && !running:
		return broken("task %s waits for an identical task, and none runs", t.row.ID)
	}
	return nil
}
