package qubix

import (
	"sync"
	"time"

	"github.com/muster-dev/muster"
)

// The most that a book remembers.
const (
	mostEnded   = 1000
	mostGiven   = 5000
	mostWorkers = 2000
	flavourFor  = 5 * time.Minute // without a sign of it a program is not counted under its id
)

// book is what the gateway remembers of workers and jobs beside what its fleet keeps. Nothing in it is needed after a restart.
type book struct {
	mu      sync.Mutex
	workers map[string]*note
	jobs    map[string]*held
	ended   map[string]ended
	order   []string          // of ended, oldest first
	given   map[string]string // the workers of jobs that were offered
	offered []string          // of given, oldest first
}

// note is what was seen of a worker.
type note struct {
	last map[flavour]time.Time
}

// held is a job that a worker runs.
type held struct {
	mu      sync.Mutex // held while its final report is taken
	began   time.Time
	idle    time.Time // since when its worker asks for work without a word of it; zero if it does not
	printed bool      // lines of its output came with reports of progress
}

// ended is how a job ended, for reports that come later.
type ended struct {
	worker   string
	status   string
	at       muster.Time
	cost     float64
	duration float64 // seconds
}

func newBook() *book {
	return &book{workers: map[string]*note{}, jobs: map[string]*held{}, ended: map[string]ended{}, given: map[string]string{}}
}

// saw notes that a program of a flavour was heard under an id, and returns the other flavours that were not for a while.
func (b *book) saw(worker string, is flavour, now time.Time) (stale []flavour) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.workers[worker]
	if n == nil {
		if len(b.workers) >= mostWorkers {
			clear(b.workers)
		}
		n = &note{last: map[flavour]time.Time{}}
		b.workers[worker] = n
	}
	n.last[is] = now
	for other, at := range n.last {
		if now.Sub(at) > flavourFor {
			stale = append(stale, other)
			delete(n.last, other)
		}
	}
	return stale
}

// forget drops what was seen of a worker, which began anew.
func (b *book) forget(worker string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.workers, worker)
}

// job returns what is known of a job that a worker runs.
func (b *book) job(id string) *held {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.jobs[id]
	if r == nil {
		r = &held{began: time.Now()}
		b.jobs[id] = r
	}
	return r
}

// heard notes a report of progress, and returns when the job began.
func (b *book) heard(id string) time.Time {
	r := b.job(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	r.idle = time.Time{}
	return r.began
}

// printed reports whether lines of a job's output came with reports of progress; now says that some did.
func (b *book) printed(id string, now bool) bool {
	r := b.job(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	r.printed = r.printed || now
	return r.printed
}

// idling notes that the worker of a job asks for work, and returns for how long it has done so without a word of the job.
func (b *book) idling(id string, now time.Time) time.Duration {
	r := b.job(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.idle.IsZero() {
		r.idle = now
	}
	return now.Sub(r.idle)
}

// end notes how a job ended.
func (b *book) end(id string, e ended) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.jobs, id)
	if _, there := b.ended[id]; !there {
		b.order = append(b.order, id)
	}
	b.ended[id] = e
	if len(b.order) > mostEnded {
		delete(b.ended, b.order[0])
		b.order = b.order[1:]
	}
}

// how returns how a job ended.
func (b *book) how(id string) (ended, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.ended[id]
	return e, ok
}

// give notes that a job was offered to a worker.
func (b *book) give(id, worker string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, there := b.given[id]; there {
		return
	}
	b.given[id] = worker
	b.offered = append(b.offered, id)
	if len(b.offered) > mostGiven {
		delete(b.given, b.offered[0])
		delete(b.jobs, b.offered[0])
		b.offered = b.offered[1:]
	}
}

// whose returns the worker of a job that was offered, "" if none is remembered.
func (b *book) whose(id string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.given[id]
}
