package engine

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lru"
	"github.com/muster-dev/muster/internal/sched"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/tasklog"
)

// Store is what the engine needs of the store: it is the only writer, and it reads ended tasks
// for retries, the worker of an attempt, and what a worker uploaded.
type Store interface {
	store.Writer
	Job(ctx context.Context, id muster.JobID) (muster.Job, error)
	Tasks(ctx context.Context, q store.TaskQuery) ([]muster.Task, string, error)
	Attempts(ctx context.Context, id muster.TaskID) ([]muster.Attempt, error)
	FindIdempotencyKey(ctx context.Context, owner, key string) (store.IdempotencyKey, bool, error)
	Ungranted(ctx context.Context, h store.Grantee, sha256 []string) ([]string, error)
	CacheEntry(ctx context.Context, project, key string) (muster.CacheEntry, bool, error)
	RemovableJobs(ctx context.Context, ids []muster.JobID) ([]store.RemovableJob, error) // those that exist; does not wait for readers
}

// Publisher receives every committed change. Publish must not block.
type Publisher interface {
	Publish(events []muster.Event)
}

// Logs stores the logs that workers send.
type Logs interface {
	AppendChunk(ctx context.Context, a muster.AttemptID, c *tasklog.Chunk, limit int64) (int64, error)
	Size(ctx context.Context, a muster.AttemptID) (int64, error)
	Archive(ctx context.Context, a muster.AttemptID) (bool, error)
	Remove(ctx context.Context, job muster.JobID) error // does not wait until the files are deleted
}

// Blobs is the store of saved checkpoints and artifacts.
type Blobs interface {
	// Touch returns the size of a blob, and keeps it for the reference that is about to be committed.
	Touch(ctx context.Context, sha256 string) (int64, error)
	Open(ctx context.Context, sha256 string) (io.ReadSeekCloser, error)
	Quarantine(ctx context.Context, sha256 string, read io.ReadSeekCloser) (bool, error)
}

// Secrets keeps the secrets of projects.
type Secrets interface {
	// Values returns the values of a task's secrets for a worker with tags, without delay. Its errors are NotFound if there is no such secret;
	// others may pass, or do not apply to other workers.
	Values(project string, secrets []muster.Secret, tags []string) ([]muster.SecretValue, error)
	// Version returns a text that differs for each value that a secret was given, and false if there is no such secret.
	Version(project, name string) (string, bool)
}

// Config configures an Engine.
type Config struct {
	Store  Store
	Logs   Logs
	Blobs  Blobs
	Events Publisher
	Sched  sched.Config
	// Secrets are given to tasks that name them.
	Secrets Secrets
	// KindVersion identifies the definition of a kind for the result cache; "" means that it never changes. It may be nil.
	KindVersion func(kind string, workers func() []muster.Worker) string
	// PlainSecrets lets workers on other machines have secrets. Else only those that connect over the loopback interface have them.
	PlainSecrets bool
	// Addresses are networks in which workers may name their address, besides the one that they connect from.
	Addresses []netip.Prefix
	// URLs signs the URLs of artifacts that tasks get.
	URLs URLSigner
	// OnBatch is called with each batch by the engine's goroutine, and must not block. It may be nil.
	OnBatch func(sched.Batch)
	// OnCopy is called when two processes used the identity of a worker at once, and why says how. When it returns, the worker opens no session, also
	// if it returns an error, which says that this is not stored. It may be nil.
	OnCopy func(ctx context.Context, worker muster.WorkerID, why string) error
	Log    *slog.Logger
}

// Engine owns the scheduler's state. All methods are safe for concurrent use once Run was
// started; they return after the commit.
type Engine struct {
	cfg      Config
	inbox    *inbox
	start    time.Time
	ready    chan struct{}
	firstJob muster.JobID // first job number that this process may assign; Run's goroutine only

	storeErr    atomic.Pointer[error] // why the engine handles no requests now, or nil
	batchStart  atomic.Int64          // start of the current batch, in nanoseconds since start, or 0
	watchers    []*jobWatcher         // Run's goroutine only
	progress    progressCache
	logErrors   rate.Sometimes
	checkpoints *lru.Cache[muster.TaskID, *completeTree] // the last complete one of each task

	mu       sync.Mutex
	sessions sessions

	needs     needsCache
	trees     treeCache
	addresses addressPolicy
}

// New makes an engine. Start it with Run.
func New(cfg Config) *Engine {
	return &Engine{
		cfg:         cfg,
		inbox:       newInbox(),
		start:       time.Now(),
		ready:       make(chan struct{}),
		logErrors:   rate.Sometimes{Interval: logInterval},
		progress:    newProgressCache(),
		sessions:    newSessions(),
		needs:       newNeedsCache(),
		addresses:   newAddressPolicy(cfg.Addresses),
		trees:       newTreeCache(cfg.Blobs),
		checkpoints: lru.New[muster.TaskID](maxCheckpointFiles, (*completeTree).cost),
	}
}

// Ready returns a channel that is closed once the state was loaded for the first time.
func (e *Engine) Ready() <-chan struct{} { return e.ready }

// Backoff after a commit that failed.
const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
)

// Run handles requests until ctx ends. It returns an error only if the state cannot be
// loaded at the start; after that it retries after every failure of the store.
func (e *Engine) Run(ctx context.Context) error {
	defer e.endSessions(muster.Unavailable, "the server is shutting down")
	defer e.inbox.close(muster.Errorf(muster.Unavailable, "not done, safe to retry: the server is shutting down"))
	pause := minPause
	for loaded := false; ; {
		st, err := e.load(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !loaded {
			return err
		}
		if err == nil {
			if !loaded {
				loaded, e.firstJob = true, st.NextJob()
				close(e.ready)
			}
			var commits int
			e.storeErr.Store(nil)
			commits, err = e.loop(ctx, st)
			e.batchStart.Store(0)
			if ctx.Err() != nil {
				return nil
			}
			if commits > 0 {
				pause = minPause
			}
		}
		e.storeErr.Store(&err)
		e.cfg.Log.Error("store failed, reloading", slog.Any("error", err), slog.Duration("pause", pause))
		e.endSessions(muster.Unavailable, "the server could not write to its store; reconnect in a moment")
		e.failRequests(ctx, err, pause)
		pause = min(2*pause, maxPause)
	}
}

func (e *Engine) load(ctx context.Context) (*sched.State, error) {
	began := time.Now()
	snap, err := e.cfg.Store.Load(ctx)
	if err != nil {
		return nil, err
	}
	st, err := sched.Rebuild(e.cfg.Sched, e.now(), snap)
	if err != nil {
		return nil, err
	}
	e.progress.reset(snap.Tasks)
	e.cfg.Log.Info("state loaded", slog.Int("jobs", len(snap.Jobs)), slog.Int("tasks", len(snap.Tasks)),
		slog.Int("workers", len(snap.Workers)), slog.Duration("took", time.Since(began)))
	return st, nil
}

// loop handles requests with one state, until ctx ends or a commit fails. It returns the
// number of successful steps.
func (e *Engine) loop(ctx context.Context, st *sched.State) (commits int, err error) {
	var requests []request
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		e.setTimer(timer, st.NextTick())
		select {
		case <-ctx.Done():
			return commits, ctx.Err()
		case <-e.inbox.wake:
		case <-timer.C:
		}
		e.batchStart.Store(int64(max(1, time.Since(e.start))))
		requests = e.inbox.drain(requests)
		for rest := requests; ; {
			n := untilBarrier(rest)
			if err := e.step(ctx, st, rest[:n]); err != nil {
				replyAll(rest[n:], notDone(err))
				return commits, err
			}
			commits++
			if rest = rest[n:]; len(rest) == 0 {
				break
			}
		}
		clear(requests)
		e.batchStart.Store(0)
	}
}

// slowBatch is how long a batch may take before the engine counts as stuck.
const slowBatch = 10 * time.Second

// Health returns an Unavailable error that says why the engine does not work now, or nil. It does
// not wait for the engine.
func (e *Engine) Health() error {
	select {
	case <-e.ready:
	default:
		return muster.Errorf(muster.Unavailable, "the engine is loading its state")
	}
	if err := e.storeErr.Load(); err != nil {
		return muster.Errorf(muster.Unavailable, "the engine cannot write to its store: %w", *err)
	}
	if began := e.batchStart.Load(); began != 0 {
		if busy := time.Since(e.start) - time.Duration(began); busy > slowBatch {
			return muster.Errorf(muster.Unavailable, "the engine has been busy with one batch for %s", busy.Round(time.Second))
		}
	}
	return nil
}

// untilBarrier returns how many requests from the front may share a batch.
func untilBarrier(requests []request) int {
	for i := 1; i < len(requests); i++ {
		if requests[i].barrier {
			return i
		}
	}
	return len(requests)
}

func (e *Engine) setTimer(t *time.Timer, wake muster.Time) {
	if wake == 0 {
		t.Stop()
		return
	}
	t.Reset(max(0, wake.Sub(e.now()).Std()))
}

// step decides, commits and acts on one batch.
func (e *Engine) step(ctx context.Context, st *sched.State, requests []request) error {
	began, now := time.Now(), e.now()
	b := batch{errs: make([]error, len(requests))}
	for i, l := range requests {
		b.errs[i] = l.decide(st, now, &b)
	}
	if w := st.NextTick(); w != 0 && w <= now {
		if err := st.Apply(now, sched.Tick{}); err != nil {
			e.cfg.Log.Error("tick refused", slog.Any("error", err))
		}
	}
	e.lookUp(context.WithoutCancel(ctx), st, now, &b)
	st.Place(now)
	fx := st.Flush()
	e.notifyWatchers(&fx.Rows, &b.retention)
	decided, committed := time.Now(), time.Time{}
	rows := store.Batch{
		Rows: fx.Rows, IdempotencyKeys: b.keys, ScheduleRuns: b.runs, At: now,
		RemovedJobs: b.removed, Kept: b.kept, ExpiredLogs: b.expiredLogs, ExpiredArtifacts: b.expiredArtifacts,
	}
	if !rows.Empty() {
		e.setAsideLogs(context.WithoutCancel(ctx), fx.Commands)
		if err := e.cfg.Store.Commit(context.WithoutCancel(ctx), &rows); err != nil {
			for i, l := range requests {
				if b.errs[i] != nil {
					l.done(b.errs[i])
				} else {
					l.done(notDone(err))
				}
			}
			e.onBatch(sched.Batch{Began: began, Decided: decided, Committed: time.Now(), Events: len(requests), Failed: true, Effects: fx})
			return err
		}
		committed = time.Now()
		e.removeExpiredLogs(context.WithoutCancel(ctx), b.expiredLogs)
	}
	e.progress.update(fx.Progress, fx.Rows.Tasks)
	for i, l := range requests {
		l.done(b.errs[i])
	}
	e.send(fx.Commands)
	if len(fx.Events) > 0 {
		e.cfg.Events.Publish(fx.Events)
	}
	e.onBatch(sched.Batch{Began: began, Decided: decided, Committed: committed, Events: len(requests), Submitted: b.submitted, Effects: fx})
	return nil
}

func (e *Engine) onBatch(b sched.Batch) {
	if e.cfg.OnBatch != nil {
		e.cfg.OnBatch(b)
	}
}

// batch collects what requests of one batch share besides the state.
type batch struct {
	errs      []error
	submitted []sched.Submitted
	keys      []store.IdempotencyKey
	runs      []store.ScheduleRun
	retention
	workers []muster.Worker      // shared by all requests of the batch; nil until the first
	fleet   *sched.FleetSnapshot // like workers
}

// failRequests fails all requests with err until pause is over.
func (e *Engine) failRequests(ctx context.Context, err error, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		replyAll(e.inbox.drain(nil), notDone(err))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-e.inbox.wake:
		}
	}
}

func replyAll(requests []request, err error) {
	for _, l := range requests {
		l.done(err)
	}
}

// notDone wraps a failure of the store for callers.
func notDone(err error) error {
	if muster.CodeOf(err) == muster.StorageFull {
		return muster.Errorf(muster.StorageFull, "not done, the server's disk is full: %w", err)
	}
	return muster.Errorf(muster.Unavailable, "not done, safe to retry: the server could not write to its store: %w", err)
}

// now returns the engine's time: see the package comment.
func (e *Engine) now() muster.Time { return muster.NewTime(e.start.Add(time.Since(e.start))) }
