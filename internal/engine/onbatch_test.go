package engine_test

import (
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/engine"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/sched"
	"github.com/muster-dev/muster/internal/store"
)

// TestOnBatchIsCalled checks that OnBatch receives committed and failed batches.
func TestOnBatchIsCalled(t *testing.T) {
	var mu sync.Mutex
	var batches []sched.Batch
	accepted := make(chan struct{}, 10) // jobs: a batch is watched after its callers were answered
	r := start(t, func(c *engine.Config) {
		c.OnBatch = func(b sched.Batch) {
			mu.Lock()
			defer mu.Unlock()
			batches = append(batches, b)
			for range b.Submitted {
				accepted <- struct{}{}
			}
		}
	})
	p := r.connect(t)
	job := r.submit(t, 1)
	offer := p.next(t, "an offer", assigns).Assign[0].Attempt
	if err := p.Handle(t.Context(), &link.ToServer{Started: []link.Started{{Attempt: offer}}}); err != nil {
		t.Fatal(err)
	}
	if err := p.Handle(t.Context(), &link.ToServer{Finished: []muster.Report{{Attempt: offer, Outcome: muster.AttemptSucceeded, FinishedAt: 1}}}); err != nil {
		t.Fatal(err)
	}
	p.next(t, "an acknowledgement", func(f *link.ToWorker) bool { return len(f.FinishedAck) > 0 })
	if r.Sessions() != 1 || r.Backlog() < 0 {
		t.Errorf("%d sessions, %d events wait", r.Sessions(), r.Backlog())
	}
	r.fault.FailCommit(1)
	if _, err := r.Submit(t.Context(), spec(1), store.IdempotencyKey{}); err == nil {
		t.Fatal("a commit that fails is an error")
	}
	r.eventually(t)
	for range 2 {
		select {
		case <-accepted:
		case <-time.After(time.Minute):
			t.Fatal("the batch of a job was not watched")
		}
	}

	mu.Lock()
	defer mu.Unlock()
	var submitted, failed int
	var assigned []sched.Assign
	var started []sched.AttemptStarted
	var ended []sched.AttemptEnded
	var done []sched.JobEnded
	var entered muster.Counts
	for _, b := range batches {
		switch {
		case b.Failed:
			failed++
			continue
		case b.Decided.Before(b.Began) || !b.Committed.IsZero() && b.Committed.Before(b.Decided) || b.Events < 0:
			t.Errorf("a batch began at %s, was decided at %s and committed at %s", b.Began, b.Decided, b.Committed)
		}
		submitted += len(b.Submitted)
		for _, send := range b.Effects.Commands {
			if a, ok := send.(sched.Assign); ok && a.Attempt == offer {
				assigned = append(assigned, a)
			}
		}
		started = append(started, b.Effects.AttemptsStarted...)
		ended, done, entered = append(ended, b.Effects.AttemptsEnded...), append(done, b.Effects.JobsEnded...), entered.Add(b.Effects.Entered)
	}
	if failed != 1 || submitted != 2 { // the second by eventually
		t.Errorf("%d batches failed and %d jobs were submitted", failed, submitted)
	}
	if len(ended) != 1 || ended[0].Attempt != offer || ended[0].Outcome != muster.AttemptSucceeded || ended[0].UID == "" || ended[0].AssignedAt == 0 {
		t.Errorf("ended is %+v", ended)
	}
	if len(assigned) != 1 || assigned[0].QueuedAt == 0 || assigned[0].At != ended[0].AssignedAt {
		t.Errorf("assigned is %+v", assigned)
	}
	if len(started) != 1 || started[0].Attempt != offer || started[0].AssignedAt != ended[0].AssignedAt || started[0].At != ended[0].StartedAt {
		t.Errorf("started is %+v", started)
	}
	if len(done) != 1 || done[0].Job != job || done[0].State != muster.JobSucceeded || done[0].UID != ended[0].UID {
		t.Errorf("done is %+v", done)
	}
	if entered[muster.Queued] != 2 || entered[muster.Succeeded] != 1 || entered[muster.Assigned] < 1 {
		t.Errorf("tasks came into states as %v", entered)
	}
}
