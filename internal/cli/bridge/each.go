package bridge

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	core "github.com/muster-dev/muster/internal/dialect/bridge"
)

// fleetEvery is how often a bridge looks for new workers.
const fleetEvery = 15 * time.Second

// each runs a bridge for each worker of the fleet, also for those that join later. A bridge whose worker is gone takes nothing more, and ends
// once all of its jobs are reported; so does that of a worker that left while no bridge ran. One that fails is started again, unless the others would fail the same way.
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
			e.start(ctx, group, w.ID, w.Name)
		}
	}
	for _, id := range e.left() {
		if !present[id] && e.running[id] == nil {
			e.start(ctx, group, id, string(id)).stop()
		}
	}
}

// left lists the workers whose bridges ended before all of their jobs were reported.
func (e *each) left() []muster.WorkerID {
	entries, err := os.ReadDir(filepath.Join(e.env.Dir, eachDir))
	if err != nil {
		return nil // there was none yet
	}
	var list []muster.WorkerID
	for _, entry := range entries {
		for _, path := range core.Outboxes(filepath.Join(e.env.Dir, eachDir, entry.Name())) {
			if jobs, running, err := core.PendingIn(path); err == nil && !running && jobs > 0 {
				list = append(list, muster.WorkerID(entry.Name()))
			}
		}
	}
	return list
}

// eachDir has the folders of bridges below that of the command.
const eachDir = "each"

func (e *each) start(ctx context.Context, group *errgroup.Group, id muster.WorkerID, name string) *one {
	env := e.env
	env.Worker, env.ID = name, string(id)
	env.Dir = filepath.Join(e.env.Dir, eachDir, filepath.Base(string(id)))
	env.Log = e.env.Log.With(slog.String("worker", name))
	b := &one{done: make(chan struct{})}
	env.Taking, b.stop = context.WithCancel(e.env.Taking)
	e.running[id] = b
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
	return b
}

// hopeless reports whether err says that a key is refused, which trying again does not change.
func hopeless(err error) bool {
	code := muster.CodeOf(err)
	return err != nil && (code == muster.Unauthenticated || code == muster.Forbidden)
}
