package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/engine"
	"github.com/muster-dev/muster/internal/eventbus"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/sched"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/store/faulty"
	"github.com/muster-dev/muster/internal/store/sqlite"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/testkit"
)

// splitStore is a real store whose writes can be made to fail.
type splitStore struct {
	*faulty.Writer

	read *sqlite.Store
	hold *atomic.Pointer[func()] // called after rows of tasks were read
}

func (h splitStore) Job(ctx context.Context, id muster.JobID) (muster.Job, error) {
	return h.read.Job(ctx, id)
}

func (h splitStore) Tasks(ctx context.Context, q store.TaskQuery) ([]muster.Task, string, error) {
	tasks, next, err := h.read.Tasks(ctx, q)
	if f := h.hold.Load(); f != nil {
		(*f)()
	}
	return tasks, next, err
}

func (h splitStore) Attempts(ctx context.Context, id muster.TaskID) ([]muster.Attempt, error) {
	return h.read.Attempts(ctx, id)
}

func (h splitStore) FindIdempotencyKey(ctx context.Context, owner, key string) (store.IdempotencyKey, bool, error) {
	return h.read.FindIdempotencyKey(ctx, owner, key)
}

func (h splitStore) CacheEntry(ctx context.Context, project, key string) (muster.CacheEntry, bool, error) {
	return h.read.CacheEntry(ctx, project, key)
}

func (h splitStore) RemovableJobs(ctx context.Context, ids []muster.JobID) ([]store.RemovableJob, error) {
	return h.read.RemovableJobs(ctx, ids)
}

func (h splitStore) Ungranted(ctx context.Context, holder store.Grantee, sha256 []string) ([]string, error) {
	return h.read.Ungranted(ctx, holder, sha256)
}

// env is an engine over a real store.
type env struct {
	*engine.Engine

	store *sqlite.Store
	fault *faulty.Writer
	hold  atomic.Pointer[func()] // see halves
	logs  *tasklog.Dir
	blobs *blob.Dir
	dir   string
	stop  func()
}

func start(tb testing.TB, change ...func(*engine.Config)) *env {
	tb.Helper()
	return startIn(tb, tb.TempDir(), change...)
}

// restart stops the engine and returns one over the same files.
func (r *env) restart(tb testing.TB) *env {
	tb.Helper()
	r.stop()
	return startIn(tb, r.dir)
}

func startIn(tb testing.TB, dir string, change ...func(*engine.Config)) *env {
	tb.Helper()
	st, err := sqlite.Open(tb.Context(), filepath.Join(dir, "muster.db"), sqlite.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	logs, err := tasklog.OpenDir(filepath.Join(dir, "logs"))
	if err != nil {
		tb.Fatal(err)
	}
	blobs, err := blob.OpenDir(filepath.Join(dir, "blobs"))
	if err != nil {
		tb.Fatal(err)
	}
	r := &env{store: st, fault: faulty.New(st), logs: logs, blobs: blobs, dir: dir}
	cfg := engine.Config{
		Store: splitStore{r.fault, st, &r.hold}, Logs: logs, Blobs: blobs, Events: eventbus.New("test"),
		Sched: sched.Config{Heartbeat: muster.Duration(time.Second), HeartbeatTimeout: muster.Duration(time.Hour)}, Log: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&cfg)
	}
	r.Engine = engine.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			tb.Errorf("the engine ended: %v", err)
		}
	})
	r.stop = func() {
		cancel()
		running.Wait()
		if err := st.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	}
	tb.Cleanup(r.stop)
	<-r.Ready()
	return r
}

// spec is a valid, normalized job of n tasks that do nothing.
func spec(n int64) *muster.Spec {
	s := (&muster.Spec{Tasks: []muster.TaskSpec{{
		Kind: muster.KindNoop, Array: &muster.Array{Ranges: []muster.Range{{First: 0, Last: n - 1, Step: 1}}},
	}}}).Normalize()
	return s
}

// testSession is the worker's side of a session, without a network.
type testSession struct {
	link.Session

	welcome *link.Welcome
	frames  chan *link.ToWorker
}

func (r *env) connect(t *testing.T, held ...muster.AttemptID) *testSession {
	t.Helper()
	p := &testSession{frames: make(chan *link.ToWorker, 1000)}
	hello := &link.Hello{
		Version: link.Version, Worker: "w1", Name: "one", Held: held,
		Offer: muster.Offer{Kinds: []string{muster.KindNoop}, Resources: muster.Resources{CPUs: 4, Slots: 4, Memory: 1 << 30}},
	}
	var err error
	p.Session, p.welcome, err = r.Open(t.Context(), hello, func(f *link.ToWorker) { p.frames <- f })
	if err != nil {
		t.Fatalf("hello: %v", err)
	}
	return p
}

// next returns the first frame that want accepts.
func (p *testSession) next(t *testing.T, desc string, match func(*link.ToWorker) bool) *link.ToWorker {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case f := <-p.frames:
			if match(f) {
				return f
			}
		case <-deadline:
			t.Fatalf("no frame with %s came", desc)
		}
	}
}

func assigns(f *link.ToWorker) bool { return len(f.Assign) > 0 }

func (r *env) submit(t *testing.T, n int64) muster.JobID {
	t.Helper()
	id, err := r.Submit(t.Context(), spec(n), store.IdempotencyKey{Owner: "me"})
	if err != nil {
		t.Fatalf("submit: %v", err)
	}
	return id
}

func succeeded(a muster.AttemptID) muster.Report {
	return muster.Report{Attempt: a, Outcome: muster.AttemptSucceeded, StartedAt: 1, FinishedAt: 2}
}

// TestTaskLifecycle runs tasks in a session: the specs are sent once and before the offers, and a report is acknowledged when it is on disk.
func TestTaskLifecycle(t *testing.T) {
	r := start(t)
	p := r.connect(t)
	id := r.submit(t, 8)
	specs, finished := 0, 0
	for finished < 8 {
		f := p.next(t, "offers", assigns)
		specs += len(f.Specs)
		var reports []muster.Report
		for _, a := range f.Assign {
			if a.Ref != 1 || specs != 1 {
				t.Fatalf("offer %+v after %d specs", a, specs)
			}
			reports = append(reports, succeeded(a.Attempt))
		}
		if err := p.Handle(t.Context(), &link.ToServer{Finished: reports}); err != nil {
			t.Fatal(err)
		}
		// The acknowledgement precedes the next offers: both follow one commit.
		ack := p.next(t, "acknowledgements", func(f *link.ToWorker) bool { return len(f.FinishedAck) > 0 })
		for _, a := range ack.FinishedAck {
			task, err := r.store.Task(t.Context(), a.Task)
			if err != nil || task.State != muster.Succeeded {
				t.Errorf("%s is acknowledged and %s on disk (%v)", a, task.State, err)
			}
		}
		finished += len(ack.FinishedAck)
	}
	job, err := r.store.Job(t.Context(), id)
	if err != nil || job.State != muster.JobSucceeded {
		t.Errorf("the job is %s (%v)", job.State, err)
	}
}

// TestFailedCommit makes one commit fail: the caller gets "not done", the session ends,
// and nothing of it is stored.
func TestFailedCommit(t *testing.T) {
	r := start(t)
	p := r.connect(t)
	before := r.submit(t, 1)
	p.next(t, "an offer", assigns)
	r.fault.FailCommit(1)
	_, err := r.Submit(t.Context(), spec(1), store.IdempotencyKey{Owner: "me", Key: "k", Digest: "d"})
	if muster.CodeOf(err) != muster.Unavailable {
		t.Fatalf("a submission whose commit failed was answered with %v", err)
	}
	bye := p.next(t, "a goodbye", func(f *link.ToWorker) bool { return f.Goodbye != nil })
	if bye.Goodbye.Code != muster.Unavailable {
		t.Errorf("goodbye is %+v", bye.Goodbye)
	}
	if err := p.Handle(t.Context(), &link.ToServer{Renew: &link.Renew{}}); err == nil {
		t.Error("the ended session still accepts frames")
	}
	again := r.eventually(t)
	if again != before+1 {
		t.Errorf("the next job is %d: the refused one used a number", again)
	}
	if _, ok, err := r.store.FindIdempotencyKey(t.Context(), "me", "k"); ok || err != nil {
		t.Errorf("the refused submission's key exists: %v (%v)", ok, err)
	}
	// The worker reconnects with the attempt that it holds and continues.
	held := muster.AttemptID{Task: muster.TaskID{Job: before}, N: 1}
	if p = r.connect(t, held); len(p.welcome.Keep) != 1 || len(p.welcome.Stop) != 0 {
		t.Errorf("welcome is %+v", p.welcome)
	}
}

// TestUndetermined has a call that is cancelled during the commit: the error differs from that of a request that was not executed.
func TestUndetermined(t *testing.T) {
	r := start(t)
	r.fault.Delay(300 * time.Millisecond)
	for try := 1; ; try++ { // it may be done before the caller gives up
		ctx, cancel := context.WithCancel(t.Context())
		before := r.fault.Commits()
		done := make(chan error, 1)
		go func() {
			_, err := r.Submit(ctx, spec(1), store.IdempotencyKey{Owner: "me"})
			done <- err
		}()
		for r.fault.Commits() == before {
			time.Sleep(time.Millisecond)
		}
		cancel()
		err := <-done
		if err == nil && try < 100 {
			continue
		}
		if muster.CodeOf(err) != muster.Undetermined {
			t.Errorf("a call that was cancelled during the commit got %v", err)
		}
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Submit(ctx, spec(1), store.IdempotencyKey{Owner: "me"}); muster.CodeOf(err) != muster.Unavailable && muster.CodeOf(err) != muster.Undetermined {
		t.Errorf("a cancelled call got %v", err)
	}
}

// TestPingDuringStoreFailure checks that an engine whose disk is full is alive, and one that waits for a commit is not.
func TestPingDuringStoreFailure(t *testing.T) {
	r := start(t)
	ping := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return r.Ping(ctx)
	}
	r.fault.SetError(muster.Errorf(muster.StorageFull, "no space"))
	if _, err := r.Submit(t.Context(), spec(1), store.IdempotencyKey{Owner: "me"}); muster.CodeOf(err) != muster.StorageFull {
		t.Fatalf("got %v", err)
	}
	for range 20 {
		if err := ping(time.Minute); err != nil {
			t.Fatalf("while the store fails: %v", err)
		}
	}
	r.fault.ClearError()
	r.eventually(t)
	r.fault.Delay(500 * time.Millisecond)
	before := r.fault.Commits()
	done := make(chan error, 1)
	go func() {
		_, err := r.Submit(t.Context(), spec(1), store.IdempotencyKey{Owner: "me"})
		done <- err
	}()
	testkit.Await(t, "the commit begins", func() bool { return r.fault.Commits() > before })
	if err := ping(time.Millisecond); err == nil {
		t.Error("an engine that waits for a commit is alive")
	}
	testkit.NoError(t, <-done)
}

// eventually submits until the engine has reloaded.
func (r *env) eventually(t *testing.T) muster.JobID {
	t.Helper()
	for {
		id, err := r.Submit(t.Context(), spec(1), store.IdempotencyKey{Owner: "me"})
		if err == nil {
			return id
		}
		if code := muster.CodeOf(err); code != muster.Unavailable && code != muster.StorageFull {
			t.Fatal(err)
		}
	}
}

// TestDiskFull checks that requests fail while the disk is full, and succeed afterwards.
func TestDiskFull(t *testing.T) {
	r := start(t)
	r.fault.SetError(muster.Errorf(muster.StorageFull, "no space"))
	for range 3 {
		_, err := r.Submit(t.Context(), spec(1), store.IdempotencyKey{Owner: "me"})
		if muster.CodeOf(err) != muster.StorageFull {
			t.Fatalf("a submission to a full disk was answered with %v", err)
		}
	}
	r.healthy(t, false)
	r.fault.ClearError()
	r.eventually(t)
	r.healthy(t, true)
}

// healthy waits until the engine is healthy, or not.
func (r *env) healthy(t *testing.T, want bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for (r.Health() == nil) != want {
		if time.Now().After(deadline) {
			t.Fatalf("the engine's health is %v", r.Health())
		}
		time.Sleep(time.Millisecond)
	}
}

// TestIdempotency submits twice under one key, also at the same time.
func TestIdempotency(t *testing.T) {
	r := start(t)
	by := store.IdempotencyKey{Owner: "me", Key: "k", Digest: "d"}
	var mu sync.Mutex
	ids := map[muster.JobID]bool{}
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			id, err := r.Submit(t.Context(), spec(1), by)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			ids[id] = true
		})
	}
	callers.Wait()
	if len(ids) != 1 {
		t.Errorf("one key created the jobs %v", ids)
	}
	by.Digest = "other"
	if _, err := r.Submit(t.Context(), spec(2), by); muster.CodeOf(err) != muster.Conflict {
		t.Errorf("another request under the same key was answered with %v", err)
	}
	by.Owner = "you"
	if id, err := r.Submit(t.Context(), spec(2), by); err != nil || ids[id] {
		t.Errorf("another owner's key created job %d (%v)", id, err)
	}
}

// TestIdempotencyEnds checks that keys expire.
func TestIdempotencyEnds(t *testing.T) {
	r := start(t)
	first := r.submit(t, 1)
	by := store.IdempotencyKey{Owner: "me", Key: "k", Digest: "d", Job: first, At: muster.NewTime(time.Now()).Add(-store.IdempotencyTTL)}
	if err := r.store.Commit(t.Context(), &store.Batch{IdempotencyKeys: []store.IdempotencyKey{by}}); err != nil {
		t.Fatal(err)
	}
	by.Digest = "other"
	if id, err := r.Submit(t.Context(), spec(2), by); err != nil || id == first {
		t.Errorf("a key of last week was answered with job %d (%v)", id, err)
	}
}

// TestTakeover checks that a new session of a worker ends the previous one, whose end does
// not affect the new one.
func TestTakeover(t *testing.T) {
	r := start(t)
	old := r.connect(t)
	next := r.connect(t)
	bye := old.next(t, "a goodbye", func(f *link.ToWorker) bool { return f.Goodbye != nil })
	if bye.Goodbye.Code != muster.Conflict {
		t.Errorf("goodbye is %+v", bye.Goodbye)
	}
	old.Close(false)
	r.submit(t, 1)
	next.next(t, "an offer", assigns)
	workers, err := r.Workers(t.Context())
	if err != nil || len(workers) != 1 || workers[0].State != muster.WorkerActive {
		t.Errorf("workers are %+v (%v)", workers, err)
	}
}

// TestRetry retries an ended job.
func TestRetry(t *testing.T) {
	r := start(t)
	id := r.submit(t, 3)
	if err := r.Cancel(t.Context(), id, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.Cancel(t.Context(), id, nil); muster.CodeOf(err) != muster.Conflict {
		t.Errorf("cancelling an ended job: %v", err)
	}
	if err := r.Cancel(t.Context(), id+1, nil); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("cancelling no job: %v", err)
	}
	if err := r.Retry(t.Context(), id, nil); err != nil {
		t.Fatal(err)
	}
	p := r.connect(t)
	if f := p.next(t, "offers", assigns); len(f.Assign) != 3 {
		t.Errorf("offers are %+v", f.Assign)
	}
}

// TestLogs stores log bytes once, and asks again for missing ones.
func TestLogs(t *testing.T) {
	r := start(t)
	p := r.connect(t)
	id := r.submit(t, 1)
	p.next(t, "an offer", assigns)
	a := muster.AttemptID{Task: muster.TaskID{Job: id}, N: 1}
	for _, step := range []struct {
		offset int64
		data   string
		size   int64
	}{{0, "abc", 3}, {0, "abcd", 4}, {9, "zzz", 4}, {4, "ef", 6}} {
		if err := p.Handle(t.Context(), &link.ToServer{Logs: []link.LogChunk{{Attempt: a, Offset: step.offset, Data: []byte(step.data)}}}); err != nil {
			t.Fatal(err)
		}
		ack := p.next(t, "a log acknowledgement", func(f *link.ToWorker) bool { return len(f.LogAck) > 0 })
		if ack.LogAck[0].Size != step.size {
			t.Errorf("after %q at %d the server has %d bytes, want %d", step.data, step.offset, ack.LogAck[0].Size, step.size)
		}
	}
}

// TestShutdown checks the error of callers after the shutdown.
func TestShutdown(t *testing.T) {
	r := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Explain(ctx, muster.TaskID{Job: 1}); !errors.Is(err, context.Canceled) && muster.CodeOf(err) != muster.NotFound {
		t.Errorf("a cancelled call got %v", err)
	}
}
