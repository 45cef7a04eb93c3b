package engine_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/testkit"
)

// cancelled submits a job of n tasks and cancels it.
func (r *env) cancelled(t *testing.T, n int64) muster.JobID {
	t.Helper()
	id := r.submit(t, n)
	if err := r.Cancel(t.Context(), id, nil); err != nil {
		t.Fatal(err)
	}
	return id
}

// retire is one of the methods that retire jobs.
type retire func(ids ...muster.JobID) (retired []muster.JobID)

func (r *env) retiring(t *testing.T, name string) retire {
	t.Helper()
	method := map[string]func(muster.JobID) ([]muster.JobID, int, error){
		"remove": func(id muster.JobID) ([]muster.JobID, int, error) {
			return r.RemoveJobs(t.Context(), []muster.JobID{id})
		},
		"logs": func(id muster.JobID) ([]muster.JobID, int, error) {
			return r.ExpireLogs(t.Context(), []muster.JobID{id})
		},
		"artifacts": func(id muster.JobID) ([]muster.JobID, int, error) {
			return r.ExpireArtifacts(t.Context(), []muster.JobID{id})
		},
	}[name]
	return func(ids ...muster.JobID) (retired []muster.JobID) {
		t.Helper()
		for _, id := range ids {
			list, done, err := method(id)
			if err != nil || done != 1 {
				t.Fatalf("%s %s: decided about %d, %v", name, id, done, err)
			}
			retired = append(retired, list...)
		}
		return retired
	}
}

func (r *env) total(t *testing.T) int64 {
	t.Helper()
	fleet, err := r.Fleet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return fleet.All.Counts.Total()
}

// TestLiveAndKeptJobsAreNotRetired checks which jobs are removed and expire, that a list is decided in parts, and that the totals are the
// same after a restart.
func TestLiveAndKeptJobsAreNotRetired(t *testing.T) {
	r := start(t)
	live, kept, ended := r.submit(t, 2), r.cancelled(t, 3), r.cancelled(t, 4)
	if err := r.KeepJob(t.Context(), 99, true); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("keeping an unknown job: %v", err)
	}
	for range 2 {
		if err := r.KeepJob(t.Context(), kept, true); err != nil {
			t.Fatal(err)
		}
		if err := r.KeepJob(t.Context(), live, true); err != nil {
			t.Fatal(err)
		}
	}
	for _, what := range []string{"logs", "artifacts", "remove"} {
		if got := r.retiring(t, what)(live, kept, ended, 99); !slices.Equal(got, []muster.JobID{ended}) {
			t.Errorf("%s: %v, want only job %s", what, got, ended)
		}
	}
	if _, err := r.store.Job(t.Context(), ended); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("the removed job: %v", err)
	}
	if got := r.total(t); got != 5 {
		t.Errorf("%d tasks are counted, want 5", got)
	}
	// A kept job that is retried and ends again is still kept, until that is ended.
	if err := r.Retry(t.Context(), kept, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.Cancel(t.Context(), kept, nil); err != nil {
		t.Fatal(err)
	}
	r = r.restart(t)
	if got := r.total(t); got != 5 {
		t.Errorf("%d tasks are counted after a restart, want 5", got)
	}
	if got := r.retiring(t, "remove")(kept); got != nil {
		t.Errorf("a kept job was removed after a retry and a restart: %v", got)
	}
	if err := r.KeepJob(t.Context(), kept, false); err != nil {
		t.Fatal(err)
	}
	many := []muster.JobID{kept, kept}
	for range 20 {
		many = append(many, r.cancelled(t, 1))
	}
	removed, done, err := r.RemoveJobs(t.Context(), many)
	if err != nil || done != 16 || len(removed) != 15 { // one is listed twice
		t.Errorf("one call removed %d jobs and decided about %d, %v", len(removed), done, err)
	}
	rest, _, err := r.RemoveJobs(t.Context(), many[done:])
	if err != nil || len(removed)+len(rest) != 21 || r.total(t) != 2 {
		t.Errorf("%d and %d jobs were removed, %v; %d tasks are left", len(removed), len(rest), err, r.total(t))
	}
}

// TestRemovalOfManyStagesIsSplit checks that one call does not delete the rows of many large jobs.
func TestRemovalOfManyStagesIsSplit(t *testing.T) {
	r := start(t)
	var ids []muster.JobID
	for range 3 {
		s := &muster.Spec{}
		for i := range 150 {
			s.Tasks = append(s.Tasks, muster.TaskSpec{Name: "s" + strings.Repeat("x", i), Kind: muster.KindNoop})
		}
		id, err := r.Submit(t.Context(), s.Normalize(), store.IdempotencyKey{})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Cancel(t.Context(), id, nil); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	for len(ids) > 0 {
		removed, done, err := r.RemoveJobs(t.Context(), ids)
		if err != nil || done != 1 || !slices.Equal(removed, ids[:1]) {
			t.Fatalf("%v were removed, %d decided, %v", removed, done, err)
		}
		ids = ids[done:]
	}
}

// TestRetryDuringRetirement retires a job while the rows for its retry are read: the retry must not bring back what was deleted.
func TestRetryDuringRetirement(t *testing.T) {
	for what, want := range map[string]muster.Code{"remove": muster.NotFound, "artifacts": muster.Conflict, "logs": ""} {
		t.Run(what, func(t *testing.T) {
			r := start(t)
			id := r.submit(t, 3)
			for _, num := range []int{1, 0, 2} { // one by one, so that one read has all tasks
				if err := r.Cancel(t.Context(), id, []muster.Span{{First: num, Last: num}}); err != nil {
					t.Fatal(err)
				}
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
			if got := r.retiring(t, what)(id); len(got) != 1 {
				t.Errorf("%s was refused during the read of a retry", what)
			}
			close(resume)
			if err := <-retried; err == nil && want != "" || err != nil && muster.CodeOf(err) != want {
				t.Errorf("the retry: %v, want %q", err, want)
			}
			// And in the other order.
			if what == "logs" {
				if got := r.retiring(t, what)(id); got != nil {
					t.Error("the logs of a job that was retried expired")
				}
				job, err := r.store.Job(t.Context(), id)
				if err != nil || job.Counts[muster.Queued] != 3 || job.LogsRemovedAt == 0 {
					t.Errorf("the job is %+v, its logs expired at %d (%v)", job.Counts, job.LogsRemovedAt, err)
				}
			}
			total := r.total(t)
			if r = r.restart(t); r.total(t) != total {
				t.Errorf("%d tasks are counted after a restart, %d before", r.total(t), total)
			}
		})
	}
}

// TestLogsOfARetryAreKept lets logs expire, retries the job, and checks that the logs of the retry stay.
func TestLogsOfARetryAreKept(t *testing.T) {
	r := start(t)
	id := r.submit(t, 1)
	p := r.connect(t)
	run := func(n int, text string) muster.AttemptID {
		t.Helper()
		a := muster.AttemptID{Task: muster.TaskID{Job: id}, N: n}
		p.next(t, "an offer", assigns)
		now := muster.NewTime(time.Now())
		err := p.Handle(t.Context(), &link.ToServer{
			Logs:     []link.LogChunk{{Attempt: a, Data: []byte(text)}},
			Finished: []muster.Report{{Attempt: a, Outcome: muster.AttemptFailed, Reason: muster.ExitCode, StartedAt: now, FinishedAt: now, LogSize: int64(len(text))}},
		})
		if err != nil {
			t.Fatal(err)
		}
		r.awaitEnd(t, id)
		return a
	}
	size := func(a muster.AttemptID, want int64) {
		t.Helper()
		if n, err := r.logs.Size(t.Context(), a); n != want || err != nil {
			t.Errorf("the log of %s has %d bytes, %v; want %d", a, n, err, want)
		}
	}
	stored := func(want muster.Size) {
		t.Helper()
		if job, err := r.store.Job(t.Context(), id); job.Usage.LogBytes != want || err != nil {
			t.Errorf("the logs of the job take %s, %v; want %s", job.Usage.LogBytes, err, want)
		}
	}
	old := run(1, "old")
	size(old, 3)
	stored(3 + muster.LogOverhead)
	if got := r.retiring(t, "logs")(id); len(got) != 1 {
		t.Fatal("the logs did not expire")
	}
	size(old, 0)
	stored(0)
	if err := r.Retry(t.Context(), id, nil); err != nil {
		t.Fatal(err)
	}
	if got := r.retiring(t, "logs")(id); got != nil {
		t.Error("the logs of a live job expired")
	}
	again := run(2, "second")
	size(old, 0)
	size(again, 6)
	stored(6 + muster.LogOverhead)
}

func (r *env) awaitEnd(t *testing.T, id muster.JobID) {
	t.Helper()
	testkit.Await(t, "the job ends", func() bool {
		job, err := r.store.Job(t.Context(), id)
		return err == nil && job.State.Final()
	})
}

// TestFailedCommitRetiresNothing checks that a job whose removal was not stored is there, and counted.
func TestFailedCommitRetiresNothing(t *testing.T) {
	r := start(t)
	id := r.cancelled(t, 3)
	a := muster.AttemptID{Task: muster.TaskID{Job: id}, N: 1}
	if _, err := r.logs.Append(t.Context(), a, 0, []byte("log")); err != nil {
		t.Fatal(err)
	}
	for what, call := range map[string]func([]muster.JobID) error{
		"removal": func(ids []muster.JobID) error { _, _, err := r.RemoveJobs(t.Context(), ids); return err },
		"logs":    func(ids []muster.JobID) error { _, _, err := r.ExpireLogs(t.Context(), ids); return err },
	} {
		r.fault.FailCommit(1)
		if err := call([]muster.JobID{id}); muster.CodeOf(err) != muster.Unavailable {
			t.Errorf("%s: %v", what, err)
		}
		if job, err := r.store.Job(t.Context(), id); err != nil || job.LogsRemovedAt != 0 {
			t.Errorf("after a failed %s: %+v, %v", what, job.JobRetention, err)
		}
		if n, err := r.logs.Size(t.Context(), a); n != 3 || err != nil {
			t.Errorf("after a failed %s the log has %d bytes, %v", what, n, err)
		}
	}
	r.eventually(t) // the engine has reloaded
	if got := r.total(t); got < 3 {
		t.Errorf("%d tasks are counted", got)
	}
	if got := r.retiring(t, "remove")(id); len(got) != 1 {
		t.Error("the removal cannot be repeated")
	}
}

// TestIdempotencyKeyOfARemovedJob checks that a repeated request does not submit a removed job again.
func TestIdempotencyKeyOfARemovedJob(t *testing.T) {
	r := start(t)
	by := store.IdempotencyKey{Owner: "me", Key: "k", Digest: "d"}
	id, err := r.Submit(t.Context(), spec(1), by)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Cancel(t.Context(), id, nil); err != nil {
		t.Fatal(err)
	}
	r.retiring(t, "remove")(id)
	r = r.restart(t)
	if again, err := r.Submit(t.Context(), spec(1), by); again != id || err != nil {
		t.Errorf("the repeated request returns job %s, %v; want %s", again, err, id)
	}
	if next := r.submit(t, 1); next != id+1 {
		t.Errorf("the next job is %s", next)
	}
}

// TestReportsAfterARemoval has a worker that reports, and sends the log of, an attempt of a job that was removed: both are acknowledged and dropped.
func TestReportsAfterARemoval(t *testing.T) {
	r := start(t)
	id := r.submit(t, 1)
	p := r.connect(t)
	p.next(t, "an offer", assigns)
	a := muster.AttemptID{Task: muster.TaskID{Job: id}, N: 1}
	now := muster.NewTime(time.Now())
	report := link.ToServer{Finished: []muster.Report{{Attempt: a, Outcome: muster.AttemptSucceeded, StartedAt: now, FinishedAt: now}}}
	if err := p.Handle(t.Context(), &report); err != nil {
		t.Fatal(err)
	}
	r.awaitEnd(t, id)
	r.retiring(t, "remove")(id)
	r = r.restart(t) // forgets that the attempt was the worker's
	p = r.connect(t, a)
	report.Logs = []link.LogChunk{{Attempt: a, Data: []byte("late")}}
	if err := p.Handle(t.Context(), &report); err != nil {
		t.Fatal(err)
	}
	p.next(t, "an acknowledgement of the log", func(f *link.ToWorker) bool {
		return slices.ContainsFunc(f.LogAck, func(ack link.LogAck) bool { return ack.Attempt == a && ack.Size == 4 })
	})
	if late, err := r.store.LateReports(t.Context(), id); len(late) != 0 || err != nil {
		t.Errorf("late reports of a removed job: %v, %v", late, err)
	}
	if n, err := r.logs.Size(t.Context(), a); n != 0 || err != nil {
		t.Errorf("the log of a removed job has %d bytes, %v", n, err)
	}
}

// TestRemoveDeparted checks that a worker that is only unreachable stays.
func TestRemoveDeparted(t *testing.T) {
	r := start(t)
	p := r.connect(t)
	check := func(want int) {
		t.Helper()
		removed, err := r.RemoveDeparted(t.Context(), []muster.WorkerID{"w1", "unknown"})
		if len(removed) != want || err != nil {
			t.Errorf("removed %v, %v; want %d", removed, err, want)
		}
	}
	check(0)
	p.Close(false)
	check(0)
	p = r.connect(t)
	p.Close(true)
	testkit.Await(t, "the worker is gone", func() bool {
		workers, err := r.store.Workers(t.Context())
		return err == nil && len(workers) == 1 && workers[0].State == muster.WorkerGone
	})
	r = r.restart(t)
	check(1)
	if workers, err := r.store.Workers(t.Context()); len(workers) != 0 || err != nil {
		t.Errorf("workers: %v, %v", workers, err)
	}
}
