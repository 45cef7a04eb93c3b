package auditlog

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/audit"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/wake"
)

// FlushInterval is the longest time until a record is on disk, while the disk works.
const FlushInterval = 100 * time.Millisecond

const (
	maxPending   = 10_000          // records that wait to be written
	maxBatch     = 1_000           // records of one transaction
	writeTimeout = 5 * time.Second // of Write
	headInterval = 24 * time.Hour  // between two lines of the log with the head
)

// Store stores records.
type Store interface {
	// AppendAudit appends records in one transaction, and sets their numbers, times and hashes.
	AppendAudit(ctx context.Context, records []audit.Record) (audit.Head, error)
}

// Recorder collects records and writes them. Its methods may be called concurrently.
type Recorder struct {
	store  Store
	log    *slog.Logger
	dirty  chan struct{} // there is something to write or to count
	urgent chan struct{} // someone waits for it

	mu      sync.Mutex
	pending []audit.Record
	queued  int64         // records that were ever put into pending
	written int64         // those of them that are on disk
	flushed chan struct{} // closed when written grows
	counts  counts
	dropped int64 // of counts
	err     error // of the last transaction
}

// New returns a Recorder that writes while Run runs.
func New(store Store, log *slog.Logger) *Recorder {
	return &Recorder{store: store, log: log, dirty: wake.New(), urgent: wake.New(), flushed: make(chan struct{}), counts: newCounts()}
}

// Ready returns an error if changes must not be made now, because they could not be recorded. It is Unavailable or StorageFull.
func (r *Recorder) Ready() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.err != nil:
		return muster.Errorf(muster.CodeOf(r.err), "changes are refused while the audit log cannot be written: %w", r.err)
	case len(r.pending) >= maxPending:
		return muster.Errorf(muster.Unavailable, "the audit log is behind: try again")
	}
	return nil
}

// Add records a change. Its record is written within FlushInterval.
func (r *Recorder) Add(rec audit.Record) {
	rec.Clean()
	r.mu.Lock()
	r.put(rec)
	r.mu.Unlock()
	wake.Set(r.dirty)
}

// put queues a record. The caller holds mu.
func (r *Recorder) put(rec audit.Record) {
	r.pending = append(r.pending, rec)
	r.queued++
}

// Write records a change, and returns when its record is on disk, when ctx ends, or after 5 s, which only a failing disk takes: Ready returns an
// error then, and the record is written later.
func (r *Recorder) Write(ctx context.Context, rec audit.Record) {
	rec.Clean()
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	r.mu.Lock()
	r.put(rec)
	own := r.queued
	for r.written < own && ctx.Err() == nil {
		flushed := r.flushed
		r.mu.Unlock()
		wake.Set(r.urgent)
		select {
		case <-flushed:
		case <-ctx.Done():
		}
		r.mu.Lock()
	}
	r.mu.Unlock()
}

// Count records a denial, a failure or an upload, of which identical ones are one record.
func (r *Recorder) Count(rec audit.Record) {
	rec.Clean()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts.ends != 0 && rec.At >= r.counts.ends {
		r.endWindow()
	}
	if r.counts.add(&rec) {
		r.offer(rec)
	}
	wake.Set(r.dirty)
}

// offer adds a record that is not of a change. The caller holds mu.
func (r *Recorder) offer(rec audit.Record) {
	if len(r.pending) >= maxPending {
		r.dropped += rec.Count
		return
	}
	r.put(rec)
}

// endWindow ends the window of counts. The caller holds mu.
func (r *Recorder) endWindow() {
	for _, rec := range r.counts.end() {
		r.offer(rec)
	}
}

// Run writes records until ctx ends, and then all that remain. It logs the head of the log each day and at its end.
func (r *Recorder) Run(ctx context.Context) error {
	retry := backoff.Backoff{Min: 50 * time.Millisecond, Max: time.Second}
	logAt := time.Now().Add(headInterval)
	var head audit.Head
	for ctx.Err() == nil {
		r.await(ctx, logAt)
		h, err := r.flush(context.WithoutCancel(ctx), false)
		if err != nil {
			_ = retry.Wait(ctx) // ctx is checked above
			wake.Set(r.urgent)
			continue
		}
		retry.Reset()
		if h.Seq > 0 {
			head = h
		}
		if time.Now().After(logAt) {
			r.logHead(head)
			logAt = time.Now().Add(headInterval)
		}
	}
	h, err := r.flush(context.WithoutCancel(ctx), true)
	if h.Seq > 0 {
		head = h
	}
	r.logHead(head)
	return err
}

// await waits until records are to be written, or until a time.
func (r *Recorder) await(ctx context.Context, until time.Time) {
	r.mu.Lock()
	if ends := r.counts.ends; ends != 0 && ends.Std().Before(until) {
		until = ends.Std()
	}
	r.mu.Unlock()
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-r.urgent:
	case <-timer.C:
	case <-ctx.Done():
	case <-r.dirty:
		_ = wake.Wait(ctx, r.urgent, FlushInterval) // Run checks ctx
	}
}

func (r *Recorder) logHead(head audit.Head) {
	if head.Seq > 0 {
		r.log.Info("audit log", slog.String("head", head.String()))
	}
}

// Stop records the end of the server. The caller ends Run next.
func (r *Recorder) Stop() {
	r.Add(audit.Record{At: muster.NewTime(time.Now()), Role: audit.Server, Operation: audit.OpStopServer, Outcome: audit.Allowed})
}

// flush writes what is pending, and what is counted at the end of its window or if all is set. The head is zero if there was nothing.
func (r *Recorder) flush(ctx context.Context, all bool) (head audit.Head, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ends := r.counts.ends; ends != 0 && (all || muster.NewTime(time.Now()) >= ends) {
		r.endWindow()
	}
	if r.dropped > 0 && len(r.pending) < maxPending {
		r.put(audit.Record{
			At: muster.NewTime(time.Now()), Role: audit.Server, Operation: audit.OpOther, Outcome: audit.Denied, Count: r.dropped,
			Detail: "denials and failures that could not be recorded",
		})
		r.dropped = 0
	}
	for len(r.pending) > 0 && err == nil {
		batch := slices.Clone(r.pending[:min(len(r.pending), maxBatch)]) // the store changes it
		r.mu.Unlock()
		head, err = r.store.AppendAudit(ctx, batch)
		r.mu.Lock()
		if err == nil {
			r.pending = r.pending[len(batch):] // others append meanwhile, and only this goroutine removes
			r.written += int64(len(batch))
			close(r.flushed)
			r.flushed = make(chan struct{})
		}
	}
	if len(r.pending) == 0 {
		r.pending = nil
	}
	if err != nil && r.err == nil {
		r.log.Error("cannot write the audit log: changes are refused until it can be written", slog.Any("error", err))
	}
	r.err = err
	return head, err
}
