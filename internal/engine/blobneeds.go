package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/sched"
)

const (
	// needsTTL is how long the cached needs of a worker are valid.
	needsTTL = 2 * time.Second
	// minNeedsRefresh is the minimum time between two refreshes for blobs that are not found.
	minNeedsRefresh = 20 * time.Millisecond
	// maxNeedsWorkers limits the workers in the cache.
	maxNeedsWorkers = 1_000
	// needsEntrySize is the approximate size of one blob in the cache, in bytes.
	needsEntrySize = 64
	// maxWorkerNeeds limits the bytes for one worker: enough for the largest folder of a task.
	maxWorkerNeeds = 48 << 20
	// maxTotalNeeds limits the bytes for all workers.
	maxTotalNeeds = 128 << 20
)

// needsCache caches which blobs the attempts of workers need, for the workers that asked last.
type needsCache struct {
	maxPerWorker, maxTotal int // bytes

	mu       sync.Mutex
	byWorker map[muster.WorkerID]*workerNeeds
	bytes    int // of all entries
}

func newNeedsCache() needsCache {
	return needsCache{maxPerWorker: maxWorkerNeeds, maxTotal: maxTotalNeeds, byWorker: map[muster.WorkerID]*workerNeeds{}}
}

// workerNeeds is the blobs that the attempts of a worker need.
type workerNeeds struct {
	mu       sync.Mutex
	readAt   time.Time     // of the last refresh
	readTime time.Duration // duration of the last refresh
	sizes    map[muster.JobID]map[[32]byte]int64
	partial  bool // not all blobs are cached

	lastUsed time.Time // guarded by needsCache.mu, like bytes
	bytes    int
}

// get returns the entry of a worker.
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

// resize sets the size of r, and evicts other workers if the total is too large. An entry that was evicted while in use
// does not count.
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

// evictOldest evicts the worker that asked longest ago, except one. The caller holds the lock.
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

// blobQuery asks for blobs.
type blobQuery struct {
	job     muster.JobID // whose attempts must need them; 0 means any
	missing map[[32]byte]struct{}
	found   map[[32]byte]int64 // sizes of those that are needed
}

func newQuery(job muster.JobID, sha256 ...string) *blobQuery {
	q := &blobQuery{job: job, missing: make(map[[32]byte]struct{}, len(sha256)), found: map[[32]byte]int64{}}
	for _, sum := range sha256 {
		if hash, ok := parseHash(sum); ok {
			q.missing[hash] = struct{}{}
		}
	}
	return q
}

// add adds a blob that an attempt of a job needs.
func (q *blobQuery) add(job muster.JobID, hash [32]byte, size int64) {
	if _, missing := q.missing[hash]; missing && (q.job == 0 || q.job == job) {
		q.found[hash] = size
		delete(q.missing, hash)
	}
}

// resolve answers a query as far as possible from the cache.
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

// NeedsBlob reports whether an attempt that the worker holds now needs a blob, and its size, -1 if unknown. If stale is
// true, a negative answer may be needsTTL old, and does not wait.
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

// unneeded returns the blobs that no attempt of a job on the worker needs.
func (e *Engine) unneeded(ctx context.Context, w muster.WorkerID, job muster.JobID, sha256 []string) (unneeded []string, err error) {
	if len(sha256) == 0 {
		return nil, nil
	}
	q := newQuery(job, sha256...)
	if err := e.findNeeded(ctx, w, q, false); err != nil {
		return nil, err
	}
	for _, sum := range sha256 {
		hash, _ := parseHash(sum)
		if _, ok := q.found[hash]; !ok {
			unneeded = append(unneeded, sum)
		}
	}
	return unneeded, nil
}

// ResultInput returns a result with this hash that an attempt which the worker holds has as an input file, or nil. It is no blob of the
// store unless it was put there.
func (e *Engine) ResultInput(ctx context.Context, w muster.WorkerID, sha256 string) ([]byte, error) {
	return call(ctx, e, false, func(st *sched.State, _ muster.Time, _ *batch) ([]byte, error) { return st.ResultInput(w, sha256), nil })
}

// findNeeded answers a query from the worker's cache entry or, if that is too old or incomplete, from the scheduler, with a pause
// between two refreshes: a worker that asks for blobs that it does not need delays only itself. With stale, it does not ask the
// scheduler for blobs that are missing from a valid entry.
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
	if r.partial { // each call reads trees: at most half of the time
		pause = max(minNeedsRefresh, 2*r.readTime)
	}
	if backoff.Sleep(ctx, pause-time.Since(r.readAt)) != nil {
		return context.Cause(ctx)
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

// refreshNeeds replaces the entry r, as far as there is room, and answers a query from everything that the attempts need. It
// returns the size of r in bytes. The caller holds the lock of r.
func (e *Engine) refreshNeeds(ctx context.Context, r *workerNeeds, needs []sched.BlobRefs, q *blobQuery) (bytes int) {
	r.sizes, r.partial = map[muster.JobID]map[[32]byte]int64{}, false
	type source struct {
		job    muster.JobID
		tree   string
		inputs *muster.InputFile // the first one
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
			hash, ok := parseHash(sha256)
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
		if n.Stdin != "" {
			add(n.Stdin, -1)
		}
		for _, tree := range n.Trees {
			if repeated(source{job: job, tree: tree}) {
				continue
			}
			add(tree, -1)
			if r.partial && len(q.missing) == 0 {
				continue // the entry is full and the query is answered
			}
			files, err := e.trees.get(ctx, tree)
			if err != nil {
				e.cfg.Log.Debug("cannot read a tree that a task needs", slog.String("attempt", n.Attempt.String()), slog.Any("error", err))
				continue
			}
			for _, f := range files {
				add(f.SHA256, f.Size)
			}
		}
	}
	return bytes
}
