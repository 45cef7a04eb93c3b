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

// reconcileInterval is how often a bridge looks for new workers.
const reconcileInterval = 15 * time.Second

// workerBridges runs a bridge for each worker of the fleet, also for those that join later. A bridge whose worker is gone takes nothing more, and ends
// once all of its jobs are reported; so does that of a worker that left while no bridge ran. One that fails is started again, unless the others would fail the same way.
type workerBridges struct {
	adapter  Adapter
	env      Deps
	interval time.Duration
	running  map[muster.WorkerID]*workerBridge
}

// workerBridge is the bridge of one worker.
type workerBridge struct {
	stop func()        // it takes nothing more
	done chan struct{} // closed when it has ended
}

func (e *workerBridges) serve(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		t := time.NewTicker(e.interval)
		defer t.Stop()
		for {
			workers, err := e.env.Client.Workers(ctx)
			switch {
			case ctx.Err() != nil:
				return nil
			case isRefused(err):
				return err
			case err != nil:
				e.env.Log.Warn("the workers of the fleet cannot be listed; trying again", slog.Any("error", err))
			default:
				e.reconcile(ctx, group, workers)
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

// reconcile starts bridges for workers that have none, and stops those whose worker is gone.
func (e *workerBridges) reconcile(ctx context.Context, group *errgroup.Group, workers []muster.Worker) {
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
	for _, id := range e.pendingWorkers() {
		if !present[id] && e.running[id] == nil {
			e.start(ctx, group, id, string(id)).stop()
		}
	}
}

// pendingWorkers lists the workers whose bridges ended before all of their jobs were reported.
func (e *workerBridges) pendingWorkers() []muster.WorkerID {
	entries, err := os.ReadDir(filepath.Join(e.env.Dir, perWorkerDir))
	if err != nil {
		return nil // there was none yet
	}
	var list []muster.WorkerID
	for _, entry := range entries {
		for _, path := range core.FindOutboxes(filepath.Join(e.env.Dir, perWorkerDir, entry.Name())) {
			if jobs, running, err := core.CountPending(path); err == nil && !running && jobs > 0 {
				list = append(list, muster.WorkerID(entry.Name()))
			}
		}
	}
	return list
}

// perWorkerDir has the folders of bridges below that of the command.
const perWorkerDir = "each"

func (e *workerBridges) start(ctx context.Context, group *errgroup.Group, id muster.WorkerID, name string) *workerBridge {
	deps := e.env
	deps.Worker, deps.ID = name, string(id)
	deps.Dir = filepath.Join(e.env.Dir, perWorkerDir, filepath.Base(string(id)))
	deps.Log = e.env.Log.With(slog.String("worker", name))
	b := &workerBridge{done: make(chan struct{})}
	deps.AcceptCtx, b.stop = context.WithCancel(e.env.AcceptCtx)
	e.running[id] = b
	group.Go(func() error {
		defer close(b.done)
		err := runBridge(ctx, e.adapter, deps)
		if isRefused(err) || muster.CodeOf(err) == muster.Invalid {
			return err
		}
		if err != nil {
			deps.Log.Error("the bridge of a worker failed; trying again", slog.Any("error", err))
		}
		return nil
	})
	return b
}

// isRefused reports whether err says that a key is refused, which trying again does not change.
func isRefused(err error) bool {
	code := muster.CodeOf(err)
	return err != nil && (code == muster.Unauthenticated || code == muster.Forbidden)
}
