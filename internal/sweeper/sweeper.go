package sweeper

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/retention"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/wake"
)

// Store is the store.
type Store interface {
	store.RetentionReader
	store.PolicyStore
	store.RemovalStore
	store.BlobRefReader
	store.AuditStore
	store.CacheStore
	Workers(ctx context.Context) ([]muster.Worker, error)
}

// Engine is the engine.
type Engine interface {
	store.RetentionEngine
	// KeepJob exempts a job from retention, or ends that. NotFound.
	KeepJob(ctx context.Context, id muster.JobID, keep bool) error
	// Files returns the files of a tree. Errors are NotFound, and Invalid or TooLarge for blobs that are not trees.
	Files(ctx context.Context, tree string) ([]store.Blob, error)
}

// Logs are the logs of tasks.
type Logs interface {
	// Remove moves the logs of a job away.
	Remove(ctx context.Context, job muster.JobID) error
	// Sweep deletes up to limit files of removed logs, and returns their size and whether there are more.
	Sweep(limit int) (freed muster.Size, more bool, err error)
	// Jobs lists jobs that have a directory, by number, from the one after the given one, about limit of them; none at the end.
	Jobs(after muster.JobID, limit int) ([]muster.JobID, error)
	// JobTime returns when the logs of a job were created, or the zero time if it has none.
	JobTime(job muster.JobID) (time.Time, error)
}

// Blobs are the blobs.
type Blobs interface {
	Stat(ctx context.Context, sha256 string) (int64, error)
	Files(ctx context.Context, after string, limit int) ([]blob.File, error)
	RemoveUnused(ctx context.Context, sha256 string, since time.Time) (size int64, removed bool, err error)
	Now() time.Time
}

// Config configures a Sweeper.
type Config struct {
	Store  Store
	Engine Engine
	Logs   Logs
	Blobs  Blobs
	// Options are the limits that the administrator chose; nil fields are the built-in defaults.
	Options retention.Policy
	Server  retention.ServerPolicy
	Log     *slog.Logger
	// Observe is called after each batch with what it deleted; it may be nil.
	Observe func(Deleted)
}

// Deleted counts what a batch deleted.
type Deleted struct {
	Jobs, Tasks, Logs, Artifacts, LateReports, Workers, Blobs int64
	LogBytes, BlobBytes                                       muster.Size
}

// Intervals and sizes of batches.
const (
	passInterval   = time.Hour
	sweepInterval  = 6 * time.Hour
	orphanInterval = 24 * time.Hour

	jobBatch  = 16  // jobs of one transaction of the engine
	rowBatch  = 500 // rows of one transaction
	fileBatch = 100
	pageSize  = 200
)

// Sweeper deletes in the background. Its methods may be called at the same time.
type Sweeper struct {
	Config
	wake    chan struct{}
	batches chan struct{} // holds a value while a batch runs, or deletions are held
	planner chan struct{} // holds a value while a plan is made

	mu      sync.Mutex
	pruning []PruneQuery // requested, the oldest first
	delayed muster.Time  // deleting by age waits until then

	trouble backoff.Backoff
	failed  bool // since the last success, so that the log has one line
}

// New returns a Sweeper, which deletes while Run runs.
func New(cfg Config) *Sweeper {
	if cfg.Observe == nil {
		cfg.Observe = func(Deleted) {}
	}
	return &Sweeper{
		Config: cfg, wake: wake.New(), batches: make(chan struct{}, 1), planner: make(chan struct{}, 1),
		trouble: backoff.Backoff{Min: time.Second, Max: time.Minute},
	}
}

// Wake makes Run look for work now: jobs were removed, or policies changed.
func (s *Sweeper) Wake() { wake.Set(s.wake) }

// Hold waits until the running batch ends. Until release is called, nothing is deleted; jobs that users remove disappear, and
// their files stay.
func (s *Sweeper) Hold(ctx context.Context) (release func(), err error) {
	select {
	case s.batches <- struct{}{}:
		return sync.OnceFunc(func() { <-s.batches }), nil
	case <-ctx.Done():
		return nil, muster.Errorf(muster.Unavailable, "files are being deleted: try again: %w", context.Cause(ctx))
	}
}

// batch runs one batch, unless deletions are held, and then pauses in proportion to the time that it took of the database or disk.
func (s *Sweeper) batch(ctx context.Context, waiting muster.Duration, run func() (held time.Duration, err error)) error {
	release, err := s.Hold(ctx)
	if err != nil {
		return err
	}
	held, err := run()
	release()
	if err != nil {
		return err
	}
	return pause(ctx, held, waiting)
}

// pause sleeps so that work took its share of the time.
func pause(ctx context.Context, held time.Duration, waiting muster.Duration) error {
	share := retention.Share(waiting)
	return backoff.Sleep(ctx, time.Duration(float64(held)*(1/share-1)))
}

// timed measures how long run takes.
func timed(run func() error) (time.Duration, error) {
	start := time.Now()
	err := run()
	return time.Since(start), err
}

// Run deletes until ctx ends. Errors are logged and retried.
func (s *Sweeper) Run(ctx context.Context) error {
	s.announceStart(ctx)
	start := time.Now()
	next := schedule{pass: start, sweep: start.Add(retention.MinGrace.Std()), orphans: start.Add(retention.MinGrace.Std())}
	for ctx.Err() == nil {
		if err := s.runDue(ctx, &next); err != nil && ctx.Err() == nil {
			if !s.failed {
				s.Log.Error("cannot delete what the retention policies do not keep, retrying", slog.Any("error", err))
			}
			s.failed = true
			_ = s.trouble.Wait(ctx) // ctx is checked above
			continue
		}
		s.failed = false
		s.trouble.Reset()
		_ = wake.Wait(ctx, s.wake, time.Until(next.earliest())) // likewise
	}
	return nil
}

// announceStart warns if the built-in defaults are not in force yet.
func (s *Sweeper) announceStart(ctx context.Context) {
	start, _, err := s.Store.RetentionStart(ctx)
	if o := s.Options; err != nil || s.Engine.Now() >= start || o.Jobs != nil && o.Logs != nil && o.Artifacts != nil {
		return // the first pass reports errors
	}
	s.Log.Warn("jobs, logs and artifacts older than 30 days will be deleted: set --keep-jobs, --keep-logs and --keep-artifacts to change this",
		slog.String("from", start.String()))
}

// schedule is when the next pass of each kind begins.
type schedule struct{ pass, sweep, orphans time.Time }

func (n schedule) earliest() time.Time {
	first := n.pass
	for _, t := range []time.Time{n.sweep, n.orphans} {
		if t.Before(first) {
			first = t
		}
	}
	return first
}

// runDue does what is due. After an error it starts again with what was not done.
func (s *Sweeper) runDue(ctx context.Context, next *schedule) error {
	if err := s.deleteRemoved(ctx); err != nil {
		return err
	}
	if err := s.runPrunes(ctx); err != nil {
		return err
	}
	if now := time.Now(); !now.Before(next.pass) {
		if err := s.pass(ctx); err != nil {
			return err
		}
		next.pass = now.Add(passInterval)
	}
	if now := time.Now(); !now.Before(next.sweep) {
		if err := s.sweep(ctx, PruneQuery{}, &remover{s, s.Engine.Now()}); err != nil {
			return err
		}
		next.sweep = now.Add(sweepInterval)
	}
	if now := time.Now(); !now.Before(next.orphans) {
		if err := s.removeOrphans(ctx); err != nil {
			return err
		}
		next.orphans = now.Add(orphanInterval)
	}
	return s.deleteRemoved(ctx)
}

// runPrunes does the prunes that were requested.
func (s *Sweeper) runPrunes(ctx context.Context) error {
	for {
		s.mu.Lock()
		if len(s.pruning) == 0 {
			s.mu.Unlock()
			return nil
		}
		q := s.pruning[0]
		s.mu.Unlock()
		act := &remover{s, s.Engine.Now()}
		if err := s.decide(ctx, q, act); err != nil {
			return err
		}
		if err := s.sweep(ctx, q, act); err != nil {
			return err
		}
		s.mu.Lock()
		s.pruning = s.pruning[1:]
		s.mu.Unlock()
	}
}

// longPause is the time without passes after which deletions by age wait for a day: the clock may be wrong, or the owner was
// away and wants to look at results.
const (
	longPause  = muster.Duration(7 * 24 * time.Hour)
	pauseDelay = muster.Duration(24 * time.Hour)
)

// pass deletes jobs, logs, late reports, workers and keys.
func (s *Sweeper) pass(ctx context.Context) error {
	delayed, err := s.checkPause(ctx)
	if err != nil {
		return err
	}
	act := &remover{s, s.Engine.Now()}
	if err := s.decide(ctx, PruneQuery{}, act); err != nil {
		return err
	}
	if err := act.keys(ctx, nil); err != nil {
		return err
	}
	if err := s.removeAudit(ctx, act, delayed); err != nil || delayed {
		return err
	}
	if err := s.removeCache(ctx); err != nil {
		return err
	}
	return s.Store.SetLastPass(ctx, s.Engine.Now())
}

// removeCache deletes the results that have expired from the result cache. Their artifacts follow with the next sweep.
func (s *Sweeper) removeCache(ctx context.Context) error {
	for more := true; more; {
		err := s.batch(ctx, 0, func() (time.Duration, error) {
			return timed(func() error {
				n, err := s.Store.DeleteExpiredCacheEntries(ctx, s.Engine.Now(), rowBatch)
				more = n == rowBatch
				return err
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// checkPause reports whether deletions by age wait because there was no pass for long. The time of the last pass is then negative: minus the
// time when this was found, so that a restart does not forget it.
func (s *Sweeper) checkPause(ctx context.Context) (delayed bool, err error) {
	_, last, err := s.Store.RetentionStart(ctx)
	if err != nil {
		return false, err
	}
	now := s.Engine.Now()
	found := -last
	if last > 0 && now.Sub(last) > longPause || found > now {
		found = now
		if err := s.Store.SetLastPass(ctx, -now); err != nil {
			return false, err
		}
		s.Log.Warn("the last retention pass was long ago: deleting by age is delayed; check the clock of this machine",
			slog.String("last", max(last, 0).String()), slog.String("until", now.Add(pauseDelay).String()))
	}
	var until muster.Time
	if found > 0 && now < found.Add(pauseDelay) {
		until = found.Add(pauseDelay)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delayed = until
	return until > 0, nil
}

// delayedUntil returns until when deletions by age wait, or 0.
func (s *Sweeper) delayedUntil() muster.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.delayed
}
