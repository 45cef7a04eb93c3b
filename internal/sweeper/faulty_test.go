package sweeper_test

import (
	"context"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/store/sqlite"
	"github.com/muster-dev/muster/internal/tasklog"
)

// The sweeper's dependencies pause before and after each effect, so that clients act in between, and may be killed there.
const effectPause = 6 * time.Second

// around runs an effect, unless the server is dead.
func (w *world) around(p *process, effect func() error) error {
	if err := w.step(p, effectPause); err != nil {
		return err
	}
	if err := effect(); err != nil {
		return err
	}
	return w.step(p, effectPause)
}

type faultyStore struct {
	*sqlite.Store

	w *world
	p *process
}

func (s faultyStore) DeleteRemoved(ctx context.Context, ids []muster.JobID, _ int) (r store.Removed, err error) {
	err = s.w.around(s.p, func() (err error) {
		r, err = s.Store.DeleteRemoved(ctx, ids, 1+s.w.int(3))
		return err
	})
	return r, err
}

func (s faultyStore) DropGrants(ctx context.Context, sha256 []string, exists func(string) bool) (held time.Duration, err error) {
	err = s.w.around(s.p, func() (err error) {
		held, err = s.Store.DropGrants(ctx, sha256, exists)
		return err
	})
	return held, err
}

func (s faultyStore) UnfinishedSince(ctx context.Context) (map[muster.WorkerID]muster.Time, error) {
	if s.w.mutant == noWorkers {
		return nil, nil //nolint:nilnil // none
	}
	return s.Store.UnfinishedSince(ctx)
}

func (s faultyStore) SpecBlobs(ctx context.Context, after muster.JobID, _ int) ([]store.BlobRef, muster.JobID, bool, error) {
	if err := s.w.step(s.p, effectPause); err != nil {
		return nil, 0, false, err
	}
	return s.Store.SpecBlobs(ctx, after, 1+s.w.int(4))
}

func (s faultyStore) TaskBlobs(ctx context.Context, after muster.TaskID, _ int) ([]store.BlobRef, muster.TaskID, bool, error) {
	if err := s.w.step(s.p, effectPause); err != nil {
		return nil, after, false, err
	}
	if s.w.mutant == wrongOrder {
		return nil, after, true, nil // AttemptBlobs reads them
	}
	return s.Store.TaskBlobs(ctx, after, 1+s.w.int(4))
}

func (s faultyStore) AttemptBlobs(ctx context.Context, after muster.AttemptID, _ int) (page []store.BlobRef, next muster.AttemptID, done bool, err error) {
	if after == (muster.AttemptID{}) { // references move from tasks to attempts just now
		select {
		case s.p.urge <- struct{}{}:
		default: // all clients are busy
		}
	}
	if err := s.w.step(s.p, effectPause); err != nil {
		return nil, after, false, err
	}
	if s.w.mutant != wrongOrder {
		return s.Store.AttemptBlobs(ctx, after, 1+s.w.int(4))
	}
	all, _, _, err := s.Store.AttemptBlobs(ctx, after, 1_000_000)
	if err == nil {
		err = s.w.step(s.p, 12*time.Hour)
	}
	if err != nil {
		return nil, after, false, err
	}
	tasks, _, _, err := s.Store.TaskBlobs(ctx, muster.TaskID{}, 1_000_000)
	return append(all, tasks...), after, true, err
}

type faultyLogs struct {
	*tasklog.Dir

	w *world
	p *process
}

func (l faultyLogs) Remove(ctx context.Context, job muster.JobID) error {
	if l.w.mutant == removedRows {
		if _, err := l.p.store.DeleteRemoved(ctx, []muster.JobID{job}, 1000); err != nil {
			return err
		}
		if err := l.w.step(l.p, 12*time.Hour); err != nil {
			return err
		}
	}
	return l.w.around(l.p, func() error { return l.Dir.Remove(ctx, job) })
}

func (l faultyLogs) Sweep(int) (freed muster.Size, more bool, err error) {
	err = l.w.around(l.p, func() (err error) {
		freed, more, err = l.Dir.Sweep(1 + l.w.int(3))
		return err
	})
	return freed, more, err
}

type faultyBlobs struct {
	*blob.Dir

	w *world
	p *process
}

func (b faultyBlobs) Files(ctx context.Context, after string, limit int) ([]blob.File, error) {
	if err := b.w.step(b.p, effectPause); err != nil {
		return nil, err
	}
	return b.Dir.Files(ctx, after, limit)
}

func (b faultyBlobs) RemoveUnused(ctx context.Context, sum string, since time.Time) (size int64, removed bool, err error) {
	b.w.rival(b.p, sum) //nolint:contextcheck // another client
	err = b.w.around(b.p, func() (err error) {
		size, removed, err = b.Dir.RemoveUnused(ctx, sum, since)
		return err
	})
	return size, removed, err
}
