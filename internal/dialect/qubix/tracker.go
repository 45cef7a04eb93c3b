package qubix

import (
	"sync"
	"time"

	"github.com/muster-dev/muster"
)

// The most that a book remembers.
const (
	maxEnded       = 1000
	maxOfferedJobs = 5000
	maxSeenWorkers = 2000
	flavourTTL     = 5 * time.Minute // without a sign of it a program is not counted under its id
)

// jobTracker is what the gateway remembers of workers and jobs beside what its fleet keeps. Nothing in it is needed after a restart.
type jobTracker struct {
	mu         sync.Mutex
	workers    map[string]*workerSightings
	jobs       map[string]*runningJob
	ended      map[string]endedJob
	endedOrder []string          // of ended, oldest first
	offeredTo  map[string]string // the workers of jobs that were offered
	offerOrder []string          // of given, oldest first
}

// workerSightings is what was seen of a worker.
type workerSightings struct {
	lastSeen map[flavour]time.Time
}

// runningJob is a job that a worker runs.
type runningJob struct {
	mu        sync.Mutex // held while its final report is taken
	startedAt time.Time
	idleSince time.Time // since when its worker asks for work without a word of it; zero if it does not
	hasOutput bool      // lines of its output came with reports of progress
}

// endedJob is how a job ended, for reports that come later.
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

// recordFlavour notes that a program of a flavour was heard under an id, and returns the other flavours that were not for a while.
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

// forgetWorker drops what was seen of a worker, which began anew.
func (b *jobTracker) forgetWorker(worker string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.workers, worker)
}

// job returns what is known of a job that a worker runs.
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

// recordProgress notes a report of progress, and returns when the job began.
func (b *jobTracker) recordProgress(id string) time.Time {
	r := b.job(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	r.idleSince = time.Time{}
	return r.startedAt
}

// recordOutput reports whether lines of a job's output came with reports of progress; now says that some did.
func (b *jobTracker) recordOutput(id string, printed bool) bool {
	r := b.job(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	r.hasOutput = r.hasOutput || printed
	return r.hasOutput
}

// recordIdle notes that the worker of a job asks for work, and returns for how long it has done so without a word of the job.
func (b *jobTracker) recordIdle(id string, now time.Time) time.Duration {
	r := b.job(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.idleSince.IsZero() {
		r.idleSince = now
	}
	return now.Sub(r.idleSince)
}

// recordEnd notes how a job ended.
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

// findEnded returns how a job ended.
func (b *jobTracker) findEnded(id string) (endedJob, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.ended[id]
	return e, ok
}

// recordOffer notes that a job was offered to a worker.
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

// offeredWorker returns the worker of a job that was offered, "" if none is remembered.
func (b *jobTracker) offeredWorker(id string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.offeredTo[id]
}

// Claims keeps the bridges of one process from taking the same job, where a backend offers it to all of its providers. A nil *Claims
// lets a bridge take everything. Its methods may be called at the same time.
type Claims struct {
	mu     sync.Mutex
	owners map[string]string // of jobs
	order  []string          // of owners, oldest first
}

// maxClaims is how many jobs are remembered.
const maxClaims = 50_000

// NewClaims returns Claims without any.
func NewClaims() *Claims { return &Claims{owners: map[string]string{}} }

// claim reports whether a job is the provider's, which it becomes if it is no other's.
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
