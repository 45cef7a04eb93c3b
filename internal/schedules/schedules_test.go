package schedules_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/audit"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/cron"
	"github.com/muster-dev/muster/internal/engine"
	"github.com/muster-dev/muster/internal/eventbus"
	"github.com/muster-dev/muster/internal/sched"
	"github.com/muster-dev/muster/internal/schedules"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/store/sqlite"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/testkit"
)

// crash makes the process of a test end at one of its writes.
type crash struct {
	mu     sync.Mutex
	writes int
	at     int  // the write at which the process ends; 0 means none
	after  bool // the write is on disk, but its answer is lost
	ended  bool
}

var errEnded = muster.Errorf(muster.Unavailable, "the process has ended")

func (c *crash) write(do func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return errEnded
	}
	if c.writes++; c.writes != c.at {
		return do()
	}
	c.ended = true
	if c.after {
		if err := do(); err != nil {
			return err
		}
	}
	return errEnded
}

func (c *crash) hasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// crashStore is a real store of a process that may end at any write.
type crashStore struct {
	*sqlite.Store

	crash *crash
}

func (s crashStore) Commit(ctx context.Context, b *store.Batch) error {
	return s.crash.write(func() error { return s.Store.Commit(ctx, b) })
}

func (s crashStore) RecordRun(ctx context.Context, r store.ScheduleRun) error {
	return s.crash.write(func() error { return s.Store.RecordRun(ctx, r) })
}

func (s crashStore) SetScheduleNext(ctx context.Context, id store.ScheduleID, paused bool, next, updatedAt muster.Time) error {
	return s.crash.write(func() error { return s.Store.SetScheduleNext(ctx, id, paused, next, updatedAt) })
}

// records are the audit records of a test.
type records struct{ list []audit.Record }

func (r *records) Add(rec audit.Record)   { r.list = append(r.list, rec) }
func (r *records) Count(rec audit.Record) { r.list = append(r.list, rec) }

// world is a scheduler with a real engine and a real store. No worker takes its jobs.
type world struct {
	*schedules.Scheduler

	t     *testing.T
	dir   string
	store *sqlite.Store
	crash *crash
	clock time.Time
	audit records
	admit []muster.FieldError
	stop  func()
	lose  bool // the engine's next answer is lost

	delayed func() error // the submission with the lost answer
}

var owner = auth.Principal{KeyID: "k-ci", Name: "ci", Role: auth.Submitter}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), clock: time.Date(2026, 1, 1, 0, 10, 0, 0, time.UTC), crash: &crash{}}
	w.start()
	t.Cleanup(func() { w.stop() })
	w.setKey("submitter", 0)
	return w
}

func (w *world) setKey(role string, expires muster.Time) {
	w.t.Helper()
	if err := w.store.PutKeys(w.t.Context(), store.Key{ID: owner.KeyID, Name: "ci", Hash: strings.Repeat("a", 64), Role: role, CreatedAt: 1, ExpiresAt: expires}); err != nil {
		w.t.Fatal(err)
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// start starts a process over the files of the world.
func (w *world) start() {
	w.t.Helper()
	w.store = must(sqlite.Open(context.Background(), filepath.Join(w.dir, "muster.db"), sqlite.Options{}))(w.t)
	st := crashStore{w.store, w.crash}
	logs := must(tasklog.OpenDir(filepath.Join(w.dir, "logs")))(w.t)
	e := engine.New(engine.Config{
		Store: st, Logs: logs, Blobs: must(blob.OpenDir(filepath.Join(w.dir, "blobs")))(w.t), Events: eventbus.New("test"),
		Sched: sched.Config{Heartbeat: muster.Duration(time.Second)}, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := e.Run(ctx); err != nil {
			w.t.Errorf("the engine ended: %v", err)
		}
	})
	<-e.Ready()
	w.stop = func() {
		cancel()
		running.Wait()
		if err := w.store.Close(); err != nil {
			w.t.Errorf("close: %v", err)
		}
	}
	w.Scheduler = schedules.New(schedules.Config{
		Store: st, Engine: lossyEngine{e, w}, Audit: &w.audit, Now: func() time.Time { return w.clock }, Log: slog.New(slog.DiscardHandler),
		Admit: func(*muster.Spec) []muster.FieldError { return w.admit },
	})
}

// lossyEngine is an engine whose answer may be lost: what it was asked for is done later.
type lossyEngine struct {
	*engine.Engine

	w *world
}

func (e lossyEngine) SubmitRun(ctx context.Context, spec *muster.Spec, by store.IdempotencyKey, run store.ScheduleRun) (muster.JobID, error) {
	if e.w.lose {
		e.w.lose = false
		e.w.delayed = func() error {
			_, err := e.Engine.SubmitRun(ctx, spec, by, run)
			return err
		}
		return 0, muster.Errorf(muster.Undetermined, "no answer in time")
	}
	if delayed := e.w.delayed; delayed != nil {
		e.w.delayed = nil
		if err := delayed(); err != nil {
			return 0, err
		}
	}
	return e.Engine.SubmitRun(ctx, spec, by, run)
}

func (w *world) put(change func(*store.Schedule)) schedules.View {
	w.t.Helper()
	v := store.Schedule{
		Project: "default", Name: "hourly", Cron: "0 * * * *", Missed: "skip", Overlap: "allow", Spec: (&muster.Spec{Tasks: []muster.TaskSpec{{Kind: muster.KindNoop}}}).Normalize(),
	}
	if change != nil {
		change(&v)
	}
	return must(w.Put(w.t.Context(), v, owner, false))(w.t)
}

// run decides all that is due. After a crash it starts another process.
func (w *world) run() {
	w.t.Helper()
	for range 1000 {
		wait, err := w.Step(w.t.Context())
		switch {
		case err != nil && w.crash.hasEnded():
			w.stop()
			w.crash = &crash{}
			w.start()
		case err != nil:
			w.t.Fatal(err)
		case wait > 0:
			return
		}
	}
	w.t.Fatal("the decisions do not end")
}

// jobs lists the times of the jobs that were submitted, by number, with the states of those that are final.
func (w *world) jobs() (list []string) {
	w.t.Helper()
	jobs, _, err := w.store.Jobs(w.t.Context(), store.JobQuery{OldestFirst: true, Limit: 1000, Labels: map[string]string{schedules.LabelName: "hourly"}})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, j := range jobs {
		if j.Owner != owner.KeyID {
			w.t.Errorf("job %s belongs to %q", j.ID, j.Owner)
		}
		text := strings.TrimSuffix(strings.TrimPrefix(j.Labels[schedules.LabelTime], "2026-01-"), ":00.000Z")
		if j.State.Final() {
			text += " " + string(j.State)
		}
		list = append(list, text)
	}
	return list
}

// runs lists what is remembered, the oldest first.
func (w *world) runs() (list []string) {
	w.t.Helper()
	v := must(w.Show(w.t.Context(), "default", "hourly"))(w.t)
	for _, r := range slices.Backward(v.Runs) {
		text := fmt.Sprintf("%s %s %s", r.At.Std().Format("02T15:04"), r.Outcome, r.Message)
		if r.Job != 0 {
			text += "job " + r.Job.String()
		}
		list = append(list, strings.TrimSpace(text))
	}
	return list
}

func (w *world) at(day, hour, minute int) {
	w.clock = time.Date(2026, 1, day, hour, minute, 0, 0, time.UTC)
	w.run()
}

func equal(t *testing.T, name string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Each run has one job, whatever write the server is killed at, before or after the write is on disk.
func TestEachRunHasOneJobWhereverTheServerIsKilled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		missed, overlap string
		jobs            []string
	}{
		{"run-all", "allow", []string{"01T01:00", "01T02:00", "01T03:00", "01T04:00", "01T05:00"}},
		{"run-once", "replace", []string{"01T01:00 cancelled", "01T04:00 cancelled", "01T05:00"}},
		{"skip", "forbid", []string{"01T01:00"}},
	} {
		for _, after := range []bool{false, true} {
			for at := 1; ; at++ {
				w := newWorld(t)
				w.put(func(v *store.Schedule) { v.Missed, v.Overlap = c.missed, c.overlap })
				w.crash.at, w.crash.after = at, after
				first := w.crash
				w.at(1, 1, 0)
				w.at(1, 4, 30) // several runs were missed
				w.at(1, 5, 1)
				equal(t, fmt.Sprintf("%s, %s, killed at write %d, on disk: %t", c.missed, c.overlap, at, after), w.jobs(), c.jobs...)
				v := must(w.Show(t.Context(), "default", "hourly"))(t)
				if len(v.Upcoming) != schedules.Upcoming || v.Upcoming[0].Hour() != 6 {
					t.Errorf("next are %v", v.Upcoming)
				}
				if t.Failed() || !first.hasEnded() {
					break
				}
			}
		}
	}
}

// A submission with a lost answer is not made twice.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put(nil)
	w.clock = w.clock.Add(50 * time.Minute)
	w.lose = true
	if _, err := w.Step(t.Context()); muster.CodeOf(err) != muster.Undetermined {
		t.Fatalf("the answer is %v", err)
	}
	w.run()
	equal(t, "jobs", w.jobs(), "01T01:00")
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	t.Run("forbid skips a run while a job has not ended", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.put(func(v *store.Schedule) { v.Overlap = "forbid" })
		w.at(1, 1, 0)
		w.at(1, 2, 0)
		w.cancel(1)
		w.at(1, 3, 0)
		equal(t, "runs", w.runs(), "01T01:00 started job 1", "01T02:00 skipped job 1 has not ended", "01T03:00 started job 2")
	})
	t.Run("skip does not start missed runs, but a late one", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.put(nil)
		w.at(1, 4, 4)
		w.at(1, 7, 30)
		equal(t, "runs", w.runs(), "01T03:00 skipped 3 runs missed: the server did not run at their times", "01T04:00 started job 1", "01T07:00 skipped 3 runs missed: the server did not run at their times")
	})
	t.Run("jobs that have not ended are limited", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.put(func(v *store.Schedule) { v.Cron, v.Missed = "* * * * *", "run-all" })
		w.at(1, 3, 0)
		if jobs := w.jobs(); len(jobs) != cron.MaxActive || jobs[0] != "01T01:21" {
			t.Errorf("%d jobs, from %v", len(jobs), jobs[:1])
		}
		w.at(1, 3, 1)
		if runs := w.runs(); runs[len(runs)-1] != "01T03:01 skipped 100 jobs have not ended" {
			t.Errorf("the last run: %s", runs[len(runs)-1])
		}
		if _, err := w.Start(t.Context(), "default", "hourly", store.IdempotencyKey{Owner: "k"}); muster.CodeOf(err) != muster.Conflict {
			t.Errorf("one more: %v", err)
		}
	})
}

func (w *world) cancel(job muster.JobID) {
	w.t.Helper()
	e := must(w.store.Job(w.t.Context(), job))(w.t)
	if e.State.Final() {
		w.t.Fatalf("job %s has ended", job)
	}
	if err := w.Engine.Cancel(w.t.Context(), job, nil); err != nil {
		w.t.Fatal(err)
	}
}

// A run has the rights that the key of the owner has then.
func TestRightsAreThoseAtTheTimeOfTheRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put(nil)
	w.setKey("viewer", 0)
	w.at(1, 1, 0)
	w.setKey("submitter", muster.NewTime(w.clock.Add(30*time.Minute)))
	if v := must(w.Show(t.Context(), "default", "hourly"))(t); !strings.Contains(v.Problem, "expires at 2026-01-01T01:30") {
		t.Errorf("the problem: %q", v.Problem)
	}
	w.at(1, 2, 0)
	w.setKey("submitter", 0)
	w.at(1, 3, 0)
	if err := w.store.DeleteKey(t.Context(), owner.KeyID); err != nil {
		t.Fatal(err)
	}
	w.at(1, 4, 0)
	equal(t, "runs", w.runs(),
		`01T01:00 refused the key "ci" has the role viewer, which may not submit jobs: use a key with the role submitter`,
		`01T02:00 refused the key "ci", which created the schedule, has expired: create the schedule again with another key, and --replace`,
		`01T03:00 started job 1`,
		`01T04:00 refused the key "ci", which created the schedule, was revoked: create the schedule again with another key, and --replace`)
	equal(t, "jobs", w.jobs(), "01T03:00")
	var audited []string
	for _, r := range w.audit.list {
		audited = append(audited, strings.Join([]string{r.Operation, r.Object, r.Key, string(r.Outcome)}, " "))
	}
	equal(t, "audit", audited, "submit-job schedule/hourly k-ci denied", "submit-job schedule/hourly k-ci denied", "submit-job job/1 k-ci allowed", "submit-job schedule/hourly k-ci denied")
	if _, err := w.Start(t.Context(), "default", "hourly", store.IdempotencyKey{}); muster.CodeOf(err) != muster.Forbidden {
		t.Errorf("run now: %v", err)
	}
}

// A job that the server cannot run any more is refused, and the next run is tried.
func TestRefusedSpec(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put(nil)
	w.admit = []muster.FieldError{{Path: "tasks[0].secrets[0]", Message: strings.Repeat("é", 1000)}}
	w.at(1, 1, 0)
	w.admit = nil
	w.at(1, 2, 0)
	if runs := w.runs(); len(runs) != 2 || !strings.HasPrefix(runs[0], "01T01:00 refused the server cannot run the job of schedule hourly: tasks[0].secrets[0]") || len(runs[0]) > 1100 || runs[1] != "01T02:00 started job 1" {
		t.Errorf("runs: %v", runs)
	}
}

// While a schedule is paused it has no runs, and so no missed ones. Runs now are possible.
func TestPause(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put(func(v *store.Schedule) { v.Missed = "run-all" })
	w.at(1, 1, 0)
	for range 2 {
		if v := must(w.SetPaused(t.Context(), "default", "hourly", true))(t); !v.Paused || v.Upcoming != nil {
			t.Errorf("paused: %+v", v)
		}
	}
	w.at(1, 3, 30)
	by := store.IdempotencyKey{Owner: "k-other", Key: "a"}
	for range 2 { // as a client does that got no answer
		if id := must(w.Start(t.Context(), "default", "hourly", by))(t); id != 2 {
			t.Errorf("job %s", id)
		}
	}
	if v := must(w.SetPaused(t.Context(), "default", "hourly", false))(t); v.Paused || v.Upcoming[0].Hour() != 4 {
		t.Errorf("resumed: %+v", v)
	}
	w.at(1, 4, 0)
	equal(t, "runs", w.runs(), "01T01:00 started job 1", "01T03:30 started job 2", "01T04:00 started job 3")
	if err := w.Delete(t.Context(), "default", "hourly"); err != nil {
		t.Fatal(err)
	}
	w.at(1, 9, 0)
	if jobs := w.jobs(); len(jobs) != 3 {
		t.Errorf("jobs after the deletion: %v", jobs)
	}
}

// No run is repeated when the clock is set back; a schedule does not wait for a time that was wrong.
func TestClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put(nil)
	w.at(1, 2, 0)
	w.at(1, 0, 30) // back
	w.at(1, 1, 0)
	w.at(1, 2, 0)
	w.at(1, 3, 0)
	equal(t, "jobs", w.jobs(), "01T02:00", "01T03:00")
	w.at(20, 5, 0) // far ahead
	w.at(1, 3, 30) // and right again
	w.at(1, 4, 0)
	w.at(1, 5, 0)
	equal(t, "jobs", w.jobs(), "01T02:00", "01T03:00", "20T05:00", "01T04:00", "01T05:00")
}

func TestPutRejects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put(nil)
	good := must(w.Show(t.Context(), "default", "hourly"))(t).Schedule
	for name, c := range map[string]struct {
		change func(*store.Schedule)
		code   muster.Code
	}{
		"taken":       {func(*store.Schedule) {}, muster.Conflict},
		"cron":        {func(v *store.Schedule) { v.Cron = "x" }, muster.Invalid},
		"zone":        {func(v *store.Schedule) { v.Timezone = "Mars" }, muster.Invalid},
		"missed":      {func(v *store.Schedule) { v.Missed = "" }, muster.Invalid},
		"overlap":     {func(v *store.Schedule) { v.Overlap = "never" }, muster.Invalid},
		"signed":      {func(v *store.Schedule) { v.Spec = &muster.Spec{Signature: &muster.Signature{}} }, muster.InvalidSpec},
		"not allowed": {func(v *store.Schedule) { v.Missed, v.Overlap = "run-all", "replace" }, muster.Invalid},
	} {
		v := good
		c.change(&v)
		if _, err := w.Put(t.Context(), v, owner, false); muster.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	v := must(w.Put(t.Context(), good, auth.Principal{KeyID: "k-2", Name: "second"}, true))(t)
	if v.Owner != "k-2" || !strings.Contains(v.Problem, "was revoked") {
		t.Errorf("replaced: %+v", v)
	}
}

// Run starts what is due, and continues after errors.
func TestRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put(nil)
	w.clock = w.clock.Add(50 * time.Minute)
	w.lose = true
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	testkit.Await(t, "a run", func() bool { return len(w.runs()) == 1 })
	cancel()
	running.Wait()
	equal(t, "jobs", w.jobs(), "01T01:00")
}
