package bridge

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
)

// fleetEvery is how often a bridge looks for new workers.
const fleetEvery = 15 * time.Second

// each runs a bridge for each worker of the fleet, also for those that join later. A bridge whose worker is gone takes nothing more, and ends
// once all of its jobs are reported. One that fails is started again, unless the others would fail the same way.
type each struct {
	adapter Adapter
	env     Env
	every   time.Duration
	running map[muster.WorkerID]*one
}

// one is the bridge of one worker.
type one struct {
	stop func()        // it takes nothing more
	done chan struct{} // closed when it has ended
}

func (e *each) serve(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		t := time.NewTicker(e.every)
		defer t.Stop()
		for {
			workers, err := e.env.Client.Workers(ctx)
			switch {
			case ctx.Err() != nil:
				return nil
			case hopeless(err):
				return err
			case err != nil:
				e.env.Log.Warn("the workers of the fleet cannot be listed; trying again", slog.Any("error", err))
			default:
				e.follow(ctx, group, workers)
			}
			select {
			case <-t.C:
			case <-ctx.Done():
				return nil
			}
		}
	})
	err := group.Wait()
	for _, b := range e.running {
		b.stop()
	}
	return err
}

// follow starts bridges for workers that have none, and stops those whose worker is gone.
func (e *each) follow(ctx context.Context, group *errgroup.Group, workers []muster.Worker) {
	present := map[muster.WorkerID]bool{}
	for i := range workers {
		if workers[i].State != muster.WorkerGone {
			present[workers[i].ID] = true
		}
	}
	for id, b := range e.running {
		select {
		case <-b.done:
			b.stop()
			delete(e.running, id)
		default:
			if !present[id] {
				b.stop()
			}
		}
	}
	for i := range workers {
		if w := &workers[i]; present[w.ID] && e.running[w.ID] == nil {
			e.start(ctx, group, w)
		}
	}
}

func (e *each) start(ctx context.Context, group *errgroup.Group, w *muster.Worker) {
	env := e.env
	env.Worker, env.ID = w.Name, string(w.ID)
	env.Dir = filepath.Join(e.env.Dir, "each", filepath.Base(string(w.ID)))
	env.Log = e.env.Log.With(slog.String("worker", w.Name))
	b := &one{done: make(chan struct{})}
	env.Taking, b.stop = context.WithCancel(e.env.Taking)
	e.running[w.ID] = b
	group.Go(func() error {
		defer close(b.done)
		err := serveOne(ctx, e.adapter, env)
		if hopeless(err) || muster.CodeOf(err) == muster.Invalid {
			return err
		}
		if err != nil {
			env.Log.Error("the bridge of a worker failed; trying again", slog.Any("error", err))
		}
		return nil
	})
}

// hopeless reports whether err says that a key is refused, which trying again does not change.
func hopeless(err error) bool {
	code := muster.CodeOf(err)
	return err != nil && (code == muster.Unauthenticated || code == muster.Forbidden)
}
