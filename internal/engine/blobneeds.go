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
	// needsTTL is how long it is taken for true what a worker's attempts need.
	needsTTL = 2 * time.Second
	// minNeedsRefresh is how long after that was found out a blob which is not among it has it found out again.
	minNeedsRefresh = 20 * time.Millisecond
	// maxNeedsWorkers is of how many workers it is remembered.
	maxNeedsWorkers = 1_000
	// needsEntrySize is about how many bytes it takes to remember one blob.
	needsEntrySize = 64
	// maxWorkerNeeds is how many bytes are remembered of one worker: enough for the largest folder that a worker takes.
	maxWorkerNeeds = 48 << 20
	// maxTotalNeeds is how many bytes are remembered of all workers.
	maxTotalNeeds = 128 << 20
)

// needsCache remembers which blobs the attempts of workers need, of the workers that asked last.
type needsCache struct {
	maxPerWorker, maxTotal int // bytes

	mu       sync.Mutex
	byWorker map[muster.WorkerID]*workerNeeds
	bytes    int // of all of them
}

func newNeedsCache() needsCache {
	return needsCache{maxPerWorker: maxWorkerNeeds, maxTotal: maxTotalNeeds, byWorker: map[muster.WorkerID]*workerNeeds{}}
}

// workerNeeds is which blobs the attempts of a worker need.
type workerNeeds struct {
	mu       sync.Mutex
	readAt   time.Time     // when the scheduler was asked
	readTime time.Duration // to find it out
	sizes    map[muster.JobID]map[[32]byte]int64
	partial  bool // there is more than is remembered

	lastUsed time.Time // guarded by reaches.mu, as bytes is
	bytes    int
}

// get returns what is remembered of a worker.
func (rs *needsCache) get(w muster.WorkerID) *workerNeeds {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.byWorker[w]
	if r == nil {
		if len(rs.byWorker) >= maxNeedsWorkers {
			rs.evictOldest(nil)
		}
		r = &workerNeeds{}
		rs.byWorker[w] = r
	}
	r.lastUsed = time.Now()
	return r
}

// resize notes how many bytes r takes now, and forgets other workers if all take too much. A reach that was forgotten
// while it was in use does not count: it goes with its user.
func (rs *needsCache) resize(w muster.WorkerID, r *workerNeeds, bytes int) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.byWorker[w] != r {
		return
	}
	rs.bytes += bytes - r.bytes
	r.bytes = bytes
	for rs.bytes > rs.maxTotal && len(rs.byWorker) > 1 {
		rs.evictOldest(r)
	}
}

// evictOldest forgets the worker that asked longest ago, but not keep. The lock is held.
func (rs *needsCache) evictOldest(except *workerNeeds) {
	var worker muster.WorkerID
	var oldest *workerNeeds
	for w, r := range rs.byWorker {
		if r != except && (oldest == nil || r.lastUsed.Before(oldest.lastUsed)) {
			worker, oldest = w, r
		}
	}
	rs.bytes -= oldest.bytes
	delete(rs.byWorker, worker)
}

// blobQuery is which blobs a call asks for.
type blobQuery struct {
	job     muster.JobID // whose attempts are to need them; 0 means any
	missing map[[32]byte]struct{}
	found   map[[32]byte]int64 // of those that are needed
}

func newQuery(job muster.JobID, sha256 ...string) *blobQuery {
	q := &blobQuery{job: job, missing: make(map[[32]byte]struct{}, len(sha256)), found: map[[32]byte]int64{}}
	for _, sum := range sha256 {
		if hash, ok := lowerHash(sum); ok {
			q.missing[hash] = struct{}{}
		}
	}
	return q
}

// add takes a blob that an attempt of a job needs.
func (q *blobQuery) add(job muster.JobID, hash [32]byte, size int64) {
	if _, missing := q.missing[hash]; missing && (q.job == 0 || q.job == job) {
		q.found[hash] = size
		delete(q.missing, hash)
	}
}

// lowerHash returns the hash that 64 lower-case hex digits say.
func lowerHash(text string) (hash [32]byte, ok bool) {
	hash, ok = hashOf(text)
	return hash, ok && strings.ToLower(text) == text
}

// resolve answers what it can from what is remembered.
func (r *workerNeeds) resolve(q *blobQuery) {
	for job, sizes := range r.sizes {
		if q.job != 0 && q.job != job {
			continue
		}
		for hash := range q.missing {
			if size, ok := sizes[hash]; ok {
				q.add(job, hash, size)
			}
		}
	}
}

// NeedsBlob reports whether an attempt that the worker holds now needs a blob, and how big that is, -1 if it is not known.
// A no may be needsTTL old if stale is true, and takes no time then.
func (e *Engine) NeedsBlob(ctx context.Context, w muster.WorkerID, sha256 string, stale bool) (size int64, ok bool, err error) {
	q := newQuery(0, sha256)
	if err := e.findNeeded(ctx, w, q, stale); err != nil {
		return 0, false, err
	}
	for _, size := range q.found {
		return size, true, nil
	}
	return 0, false, nil
}

// unneeded returns those of the blobs that no attempt of a job which the worker holds needs.
func (e *Engine) unneeded(ctx context.Context, w muster.WorkerID, job muster.JobID, sha256 []string) (unneeded []string, err error) {
	if len(sha256) == 0 {
		return nil, nil
	}
	q := newQuery(job, sha256...)
	if err := e.findNeeded(ctx, w, q, false); err != nil {
		return nil, err
	}
	for _, sum := range sha256 {
		hash, _ := lowerHash(sum)
		if _, ok := q.found[hash]; !ok {
			unneeded = append(unneeded, sum)
		}
	}
	return unneeded, nil
}

// findNeeded answers a query from what is remembered of a worker, if that is fresh, and else asks the scheduler, but not again at
// once: a worker that asks for blobs which it does not need holds up only itself. With stale it does not ask for what is not
// among what is fresh.
func (e *Engine) findNeeded(ctx context.Context, w muster.WorkerID, q *blobQuery, stale bool) error {
	r := e.needs.get(w)
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.readAt) < needsTTL {
		if r.resolve(q); len(q.missing) == 0 || stale {
			return nil
		}
	}
	pause := minNeedsRefresh
	if r.partial { // trees are read for each call: for half of the time at most
		pause = max(minNeedsRefresh, 2*r.readTime)
	}
	if wait := pause - time.Since(r.readAt); wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	began := time.Now()
	needs, err := call(ctx, e, false, func(st *sched.State, _ muster.Time, _ *batch) ([]sched.BlobRefs, error) { return st.BlobRefs(w), nil })
	if err != nil {
		return err
	}
	bytes := e.refreshNeeds(ctx, r, needs, q)
	r.readAt, r.readTime = began, time.Since(began)
	e.needs.resize(w, r, bytes)
	return nil
}

// refreshNeeds replaces what r remembers, as far as there is room, and answers a query from all that the attempts need. It returns
// how many bytes r takes. The lock of r is held.
func (e *Engine) refreshNeeds(ctx context.Context, r *workerNeeds, needs []sched.BlobRefs, q *blobQuery) (bytes int) {
	r.sizes, r.partial = map[muster.JobID]map[[32]byte]int64{}, false
	type source struct {
		job    muster.JobID
		tree   string
		inputs *effect.Input // the first one
	}
	seen := map[source]struct{}{} // the elements of an array need the same
	repeated := func(p source) bool {
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
			q.add(job, hash, size)
			if _, known := r.sizes[job][hash]; !known {
				more := needsEntrySize
				if r.sizes[job] == nil {
					more += needsEntrySize
				}
				if bytes+more > e.needs.maxPerWorker {
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
		if len(n.Inputs) > 0 && !repeated(source{job: job, inputs: &n.Inputs[0]}) {
			for k := range n.Inputs {
				add(n.Inputs[k].SHA256, n.Inputs[k].Size)
			}
		}
		for _, tree := range n.Trees {
			if repeated(source{job: job, tree: tree}) {
				continue
			}
			add(tree, -1)
			if r.partial && len(q.missing) == 0 {
				continue // nothing more can be remembered, or is asked for
			}
			files, err := e.trees.get(ctx, tree)
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
