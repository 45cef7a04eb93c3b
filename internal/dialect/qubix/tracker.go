package qubix

import (
	"sync"
	"time"

	"github.com/muster-dev/muster"
)

const (
	maxEnded       = 1000
	maxOfferedJobs = 5000
	maxSeenWorkers = 2000
	flavourTTL     = 5 * time.Minute // of a program without requests
)

// jobTracker holds the state of workers and jobs that the fleet does not have. It is not needed after a restart. Its methods may be called
// concurrently.
type jobTracker struct {
	mu         sync.Mutex
	workers    map[string]*workerSightings
	jobs       map[string]*runningJob
	ended      map[string]endedJob
	endedOrder []string          // of ended, oldest first
	offeredTo  map[string]string // job → worker
	offerOrder []string          // of offeredTo, oldest first
}

// workerSightings is when the programs of a worker were seen.
type workerSightings struct {
	lastSeen map[flavour]time.Time
}

// runningJob is a job that a worker runs.
type runningJob struct {
	mu        sync.Mutex // serializes final reports
	startedAt time.Time
	idleSince time.Time // since when its worker asks for work without reporting it; zero if it does not
	hasOutput bool      // progress reports had output
}

// endedJob is the end of a job, for later reports.
type endedJob struct {
	worker   string
	status   string
	at       muster.Time
	cost     float64
	duration float64 // seconds
}

func newJobTracker() *jobTracker {
	return &jobTracker{workers: map[string]*workerSightings{}, jobs: map[string]*runningJob{}, ended: map[string]endedJob{}, offeredTo: map[string]string{}}
}

// recordFlavour records a request of a program, and returns the flavours without requests for flavourTTL.
func (b *jobTracker) recordFlavour(worker string, seen flavour, now time.Time) (stale []flavour) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.workers[worker]
	if n == nil {
		if len(b.workers) >= maxSeenWorkers {
			clear(b.workers)
		}
		n = &workerSightings{lastSeen: map[flavour]time.Time{}}
		b.workers[worker] = n
	}
	n.lastSeen[seen] = now
	for other, at := range n.lastSeen {
		if now.Sub(at) > flavourTTL {
			stale = append(stale, other)
			delete(n.lastSeen, other)
		}
	}
	return stale
}

// forgetWorker removes a worker that registered again.
func (b *jobTracker) forgetWorker(worker string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.workers, worker)
}

// job returns the state of a running job.
func (b *jobTracker) job(id string) *runningJob {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.jobs[id]
	if r == nil {
		r = &runningJob{startedAt: time.Now()}
		b.jobs[id] = r
	}
	return r
}

// recordProgress records a report of progress, and returns when the job started.
func (b *jobTracker) recordProgress(id string) time.Time {
	r := b.job(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	r.idleSince = time.Time{}
	return r.startedAt
}

// recordOutput reports whether progress reports of a job had output; printed records that one had.
func (b *jobTracker) recordOutput(id string, printed bool) bool {
	r := b.job(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	r.hasOutput = r.hasOutput || printed
	return r.hasOutput
}

// recordIdle records that the worker of a job asks for work, and returns for how long it has done so without reporting the job.
func (b *jobTracker) recordIdle(id string, now time.Time) time.Duration {
	r := b.job(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.idleSince.IsZero() {
		r.idleSince = now
	}
	return now.Sub(r.idleSince)
}

// recordEnd records the end of a job.
func (b *jobTracker) recordEnd(id string, e endedJob) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.jobs, id)
	if _, exists := b.ended[id]; !exists {
		b.endedOrder = append(b.endedOrder, id)
	}
	b.ended[id] = e
	if len(b.endedOrder) > maxEnded {
		delete(b.ended, b.endedOrder[0])
		b.endedOrder = b.endedOrder[1:]
	}
}

// findEnded returns the end of a job.
func (b *jobTracker) findEnded(id string) (endedJob, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.ended[id]
	return e, ok
}

// recordOffer records that a job was offered to a worker.
func (b *jobTracker) recordOffer(id, worker string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, exists := b.offeredTo[id]; exists {
		return
	}
	b.offeredTo[id] = worker
	b.offerOrder = append(b.offerOrder, id)
	if len(b.offerOrder) > maxOfferedJobs {
		delete(b.offeredTo, b.offerOrder[0])
		delete(b.jobs, b.offerOrder[0])
		b.offerOrder = b.offerOrder[1:]
	}
}

// offeredWorker returns the worker of an offered job, "" for none.
func (b *jobTracker) offeredWorker(id string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.offeredTo[id]
}

// Claims prevents that two bridges of one process accept a job that a backend offers to all providers. A nil *Claims allows every job. Its
// methods may be called concurrently.
type Claims struct {
	mu     sync.Mutex
	owners map[string]string // of jobs
	order  []string          // of owners, oldest first
}

const maxClaims = 50_000 // jobs

// NewClaims returns empty Claims.
func NewClaims() *Claims { return &Claims{owners: map[string]string{}} }

// claim claims a job for a provider. It reports false if the job is another provider's.
func (c *Claims) claim(job, provider string) bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if owner, exists := c.owners[job]; exists {
		return owner == provider
	}
	c.owners[job] = provider
	if c.order = append(c.order, job); len(c.order) > maxClaims {
		delete(c.owners, c.order[0])
		c.order = c.order[1:]
	}
	return true
}
