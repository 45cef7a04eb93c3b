package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

const (
	// freshReach is how long it is taken for true what a worker's attempts need.
	freshReach = 2 * time.Second
	// againReach is how long after that was found out a blob which is not among it has it found out again.
	againReach = 20 * time.Millisecond
	// maxReaches is of how many workers it is remembered.
	maxReaches = 1_000
)

// reach is which blobs the attempts of a worker need.
type reach struct {
	mu    sync.Mutex
	at    time.Time // when the scheduler was asked
	sizes map[muster.JobID]map[string]int64
}

// reach returns what is remembered of a worker.
func (e *Engine) reach(w muster.WorkerID) *reach {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.reaches[w]
	if r == nil {
		if len(e.reaches) >= maxReaches {
			clear(e.reaches)
		}
		r = &reach{}
		e.reaches[w] = r
	}
	return r
}

// Reads reports whether an attempt that the worker holds now needs a blob, and how big that is, -1 if it is not known.
// A no may be freshReach old if stale is true, and takes no time then.
func (e *Engine) Reads(ctx context.Context, w muster.WorkerID, sha256 string, stale bool) (size int64, ok bool, err error) {
	r := e.reach(w)
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) < freshReach {
		if size, ok := r.any(sha256); ok || stale {
			return size, ok, nil
		}
	}
	if err := e.find(ctx, w, r); err != nil {
		return 0, false, err
	}
	size, ok = r.any(sha256)
	return size, ok, nil
}

// unneeded returns those of the blobs that no attempt of a job which the worker holds needs.
func (e *Engine) unneeded(ctx context.Context, w muster.WorkerID, job muster.JobID, sha256 []string) ([]string, error) {
	if len(sha256) == 0 {
		return nil, nil
	}
	r := e.reach(w)
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) < freshReach {
		if without := r.without(job, sha256); len(without) == 0 {
			return nil, nil
		}
	}
	if err := e.find(ctx, w, r); err != nil {
		return nil, err
	}
	return r.without(job, sha256), nil
}

func (r *reach) without(job muster.JobID, sha256 []string) (without []string) {
	for _, sum := range sha256 {
		if _, ok := r.sizes[job][sum]; !ok {
			without = append(without, sum)
		}
	}
	return without
}

func (r *reach) any(sha256 string) (int64, bool) {
	for _, sizes := range r.sizes {
		if size, ok := sizes[sha256]; ok {
			return size, true
		}
	}
	return 0, false
}

// find asks the scheduler what a worker needs, but not again at once: a worker that asks for blobs which it does not
// need holds up only itself. The lock of r is held.
func (e *Engine) find(ctx context.Context, w muster.WorkerID, r *reach) error {
	if wait := againReach - time.Since(r.at); wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	began := time.Now()
	needs, err := ask(ctx, e, false, func(st *sched.State, _ muster.Time, _ *batch) ([]sched.Need, error) { return st.Needs(w), nil })
	if err != nil {
		return err
	}
	sizes := map[muster.JobID]map[string]int64{}
	for i := range needs {
		e.add(ctx, sizes, &needs[i])
	}
	r.at, r.sizes = began, sizes
	return nil
}

// add adds what an attempt needs. The elements of an array need the same.
func (e *Engine) add(ctx context.Context, all map[muster.JobID]map[string]int64, n *sched.Need) {
	sizes := all[n.Attempt.Task.Job]
	if sizes == nil {
		sizes = map[string]int64{}
		all[n.Attempt.Task.Job] = sizes
	}
	for _, in := range n.Inputs {
		sizes[in.SHA256] = in.Size
	}
	for _, tree := range n.Trees {
		if _, known := sizes[tree]; known {
			continue
		}
		sizes[tree] = -1
		files, err := e.trees.of(ctx, tree)
		if err != nil {
			e.cfg.Log.Debug("a tree that a task needs cannot be read", slog.String("attempt", n.Attempt.String()), slog.Any("error", err))
			continue
		}
		for _, f := range files {
			sizes[f.SHA256] = f.Size
		}
	}
}
