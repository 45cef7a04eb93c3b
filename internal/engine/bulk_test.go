package engine_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// TestHugeArrays changes the largest arrays in steps whose cost does not depend on their
// size, and checks that requests that would block the engine are refused.
func TestHugeArrays(t *testing.T) {
	r := start(t)
	const n = muster.MaxTasks
	id := r.submit(t, n)
	refused := func(desc string, err error) {
		t.Helper()
		if muster.CodeOf(err) != muster.TooLarge {
			t.Errorf("%s: %v", desc, err)
		}
	}
	done := func(desc string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", desc, err)
		}
	}
	refused("cancel the middle", r.Cancel(t.Context(), id, []muster.Span{{First: 1, Last: n - 2}}))
	done("cancel some of the middle", r.Cancel(t.Context(), id, []muster.Span{{First: 100, Last: 199}}))
	done("cancel all, in two parts", r.Cancel(t.Context(), id, []muster.Span{{First: n / 2, Last: n - 1}, {First: 0, Last: n/2 - 1}}))
	refused("retry all one by one", r.Retry(t.Context(), id, []muster.Span{{First: 0, Last: n - 1}}))
	done("retry some", r.Retry(t.Context(), id, []muster.Span{{First: 150, Last: 249}}))
	done("retry the others", r.Retry(t.Context(), id, nil))
	job, err := r.store.Job(t.Context(), id)
	if err != nil || job.Counts[muster.Queued] != n {
		t.Errorf("of %d tasks %d are queued (%v)", n, job.Counts[muster.Queued], err)
	}
}

// TestRetryDoesNotBlockTheEngine checks that the engine decides other things while the rows of a retried job
// are read, and that what changes meanwhile is not missed.
func TestRetryDoesNotBlockTheEngine(t *testing.T) {
	r := start(t)
	id := r.submit(t, 3)
	if err := r.Cancel(t.Context(), id, nil); err != nil {
		t.Fatal(err)
	}
	reading, resume := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	hold := func() {
		if first.CompareAndSwap(false, true) {
			close(reading)
			<-resume
		}
	}
	r.hold.Store(&hold)
	retried := make(chan error, 1)
	go func() { retried <- r.Retry(t.Context(), id, nil) }()
	<-reading
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := r.Workers(ctx); err != nil {
		t.Errorf("while a retry reads, the engine answers %v", err)
	}
	if err := r.Retry(ctx, id, nil); err != nil { // which overtakes the one that reads
		t.Errorf("a second retry: %v", err)
	}
	close(resume)
	if err := <-retried; muster.CodeOf(err) != muster.Conflict {
		t.Errorf("a retry of what was retried meanwhile: %v", err)
	}
	job, err := r.store.Job(t.Context(), id)
	if err != nil || job.Counts[muster.Queued] != 3 {
		t.Errorf("the job is %+v (%v)", job.Counts, err)
	}
}

// BenchmarkWorkerLists asks for the list of 1,000 workers 100 times at once.
func BenchmarkWorkerLists(b *testing.B) {
	r := start(b)
	for i := range 1000 {
		h := hello(muster.WorkerID(fmt.Sprintf("w%d", i)))
		if _, _, err := r.Open(b.Context(), h, func(*link.ToWorker) {}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if ws, err := r.Workers(b.Context()); err != nil || len(ws) != 1000 {
					b.Errorf("%d workers: %v", len(ws), err)
				}
			})
		}
		all.Wait()
	}
}
