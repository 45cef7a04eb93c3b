package engine

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
	"github.com/muster-dev/muster/internal/sched/effect"
)

const (
	// freshReach is how long it is taken for true what a worker's attempts need.
	freshReach = 2 * time.Second
	// againReach is how long after that was found out a blob which is not among it has it found out again.
	againReach = 20 * time.Millisecond
	// maxReaches is of how many workers it is remembered.
	maxReaches = 1_000
	// reachEntry is about how many bytes it takes to remember one blob.
	reachEntry = 64
	// maxReach is how many bytes are remembered of one worker: enough for the largest folder that a worker takes.
	maxReach = 48 << 20
	// maxAllReach is how many bytes are remembered of all workers.
	maxAllReach = 128 << 20
)

// reaches remembers which blobs the attempts of workers need, of the workers that asked last.
type reaches struct {
	most, mostOfAll int // bytes

	mu    sync.Mutex
	of    map[muster.WorkerID]*reach
	bytes int // of all of them
}

func newReaches() reaches {
	return reaches{most: maxReach, mostOfAll: maxAllReach, of: map[muster.WorkerID]*reach{}}
}

// reach is which blobs the attempts of a worker need.
type reach struct {
	mu      sync.Mutex
	at      time.Time     // when the scheduler was asked
	took    time.Duration // to find it out
	sizes   map[muster.JobID]map[[32]byte]int64
	partial bool // there is more than is remembered

	used  time.Time // guarded by reaches.mu, as bytes is
	bytes int
}

// get returns what is remembered of a worker.
func (rs *reaches) get(w muster.WorkerID) *reach {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.of[w]
	if r == nil {
		if len(rs.of) >= maxReaches {
			rs.forgetOldest(nil)
		}
		r = &reach{}
		rs.of[w] = r
	}
	r.used = time.Now()
	return r
}

// resize notes how many bytes r takes now, and forgets other workers if all take too much. A reach that was forgotten
// while it was in use does not count: it goes with its user.
func (rs *reaches) resize(w muster.WorkerID, r *reach, bytes int) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.of[w] != r {
		return
	}
	rs.bytes += bytes - r.bytes
	r.bytes = bytes
	for rs.bytes > rs.mostOfAll && len(rs.of) > 1 {
		rs.forgetOldest(r)
	}
}

// forgetOldest forgets the worker that asked longest ago, but not keep. The lock is held.
func (rs *reaches) forgetOldest(keep *reach) {
	var worker muster.WorkerID
	var oldest *reach
	for w, r := range rs.of {
		if r != keep && (oldest == nil || r.used.Before(oldest.used)) {
			worker, oldest = w, r
		}
	}
	rs.bytes -= oldest.bytes
	delete(rs.of, worker)
}

// query is which blobs a call asks for.
type query struct {
	job   muster.JobID // whose attempts are to need them; 0 means any
	open  map[[32]byte]struct{}
	sizes map[[32]byte]int64 // of those that are needed
}

func newQuery(job muster.JobID, sha256 ...string) *query {
	q := &query{job: job, open: make(map[[32]byte]struct{}, len(sha256)), sizes: map[[32]byte]int64{}}
	for _, sum := range sha256 {
		if hash, ok := lowerHash(sum); ok {
			q.open[hash] = struct{}{}
		}
	}
	return q
}

// see takes a blob that an attempt of a job needs.
func (q *query) see(job muster.JobID, hash [32]byte, size int64) {
	if _, open := q.open[hash]; open && (q.job == 0 || q.job == job) {
		q.sizes[hash] = size
		delete(q.open, hash)
	}
}

// lowerHash returns the hash that 64 lower-case hex digits say.
func lowerHash(text string) (hash [32]byte, ok bool) {
	hash, ok = hashOf(text)
	return hash, ok && strings.ToLower(text) == text
}

// answer answers what it can from what is remembered.
func (r *reach) answer(q *query) {
	for job, sizes := range r.sizes {
		if q.job != 0 && q.job != job {
			continue
		}
		for hash := range q.open {
			if size, ok := sizes[hash]; ok {
				q.see(job, hash, size)
			}
		}
	}
}

// Reads reports whether an attempt that the worker holds now needs a blob, and how big that is, -1 if it is not known.
// A no may be freshReach old if stale is true, and takes no time then.
func (e *Engine) Reads(ctx context.Context, w muster.WorkerID, sha256 string, stale bool) (size int64, ok bool, err error) {
	q := newQuery(0, sha256)
	if err := e.find(ctx, w, q, stale); err != nil {
		return 0, false, err
	}
	for _, size := range q.sizes {
		return size, true, nil
	}
	return 0, false, nil
}

// unneeded returns those of the blobs that no attempt of a job which the worker holds needs.
func (e *Engine) unneeded(ctx context.Context, w muster.WorkerID, job muster.JobID, sha256 []string) (without []string, err error) {
	if len(sha256) == 0 {
		return nil, nil
	}
	q := newQuery(job, sha256...)
	if err := e.find(ctx, w, q, false); err != nil {
		return nil, err
	}
	for _, sum := range sha256 {
		hash, _ := lowerHash(sum)
		if _, ok := q.sizes[hash]; !ok {
			without = append(without, sum)
		}
	}
	return without, nil
}

// find answers a query from what is remembered of a worker, if that is fresh, and else asks the scheduler, but not again at
// once: a worker that asks for blobs which it does not need holds up only itself. With stale it does not ask for what is not
// among what is fresh.
func (e *Engine) find(ctx context.Context, w muster.WorkerID, q *query, stale bool) error {
	r := e.reaches.get(w)
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) < freshReach {
		if r.answer(q); len(q.open) == 0 || stale {
			return nil
		}
	}
	pause := againReach
	if r.partial { // trees are read for each call: for half of the time at most
		pause = max(againReach, 2*r.took)
	}
	if wait := pause - time.Since(r.at); wait > 0 {
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
	bytes := e.fill(ctx, r, needs, q)
	r.at, r.took = began, time.Since(began)
	e.reaches.resize(w, r, bytes)
	return nil
}

// fill replaces what r remembers, as far as there is room, and answers a query from all that the attempts need. It returns
// how many bytes r takes. The lock of r is held.
func (e *Engine) fill(ctx context.Context, r *reach, needs []sched.Need, q *query) (bytes int) {
	r.sizes, r.partial = map[muster.JobID]map[[32]byte]int64{}, false
	type part struct {
		job    muster.JobID
		tree   string
		inputs *effect.Input // the first one
	}
	seen := map[part]struct{}{} // the elements of an array need the same
	again := func(p part) bool {
		_, known := seen[p]
		seen[p] = struct{}{}
		return known
	}
	for i := range needs {
		n := &needs[i]
		job := n.Attempt.Task.Job
		add := func(sha256 string, size int64) {
			hash, ok := lowerHash(sha256)
			if !ok {
				return
			}
			q.see(job, hash, size)
			if _, known := r.sizes[job][hash]; !known {
				more := reachEntry
				if r.sizes[job] == nil {
					more += reachEntry
				}
				if bytes+more > e.reaches.most {
					r.partial = true
					return
				}
				bytes += more
			}
			if r.sizes[job] == nil {
				r.sizes[job] = map[[32]byte]int64{}
			}
			r.sizes[job][hash] = size
		}
		if len(n.Inputs) > 0 && !again(part{job: job, inputs: &n.Inputs[0]}) {
			for k := range n.Inputs {
				add(n.Inputs[k].SHA256, n.Inputs[k].Size)
			}
		}
		for _, tree := range n.Trees {
			if again(part{job: job, tree: tree}) {
				continue
			}
			add(tree, -1)
			if r.partial && len(q.open) == 0 {
				continue // nothing more can be remembered, or is asked for
			}
			files, err := e.trees.of(ctx, tree)
			if err != nil {
				e.cfg.Log.Debug("a tree that a task needs cannot be read", slog.String("attempt", n.Attempt.String()), slog.Any("error", err))
				continue
			}
			for _, f := range files {
				add(f.SHA256, f.Size)
			}
		}
	}
	return bytes
}
