package bridge

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	core "github.com/muster-dev/muster/internal/dialect/bridge"
)

const reconcileInterval = 15 * time.Second

// workerBridges runs a bridge for each worker of the fleet, also for those that join later. The bridge of a worker that has left takes no
// new jobs and ends once its jobs are reported, also if the worker left while no bridge ran. A failed bridge is restarted, unless the others would fail, too.
type workerBridges struct {
	adapter  Adapter
	env      Deps
	interval time.Duration
	running  map[muster.WorkerID]*workerBridge
}

type workerBridge struct {
	stop func()        // ends AcceptCtx
	done chan struct{} // closed when the bridge has ended
}

func (e *workerBridges) serve(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		for ctx.Err() == nil {
			workers, err := e.env.Client.Workers(ctx)
			switch {
			case ctx.Err() != nil:
			case isRefused(err):
				return err
			case err != nil:
				e.env.Log.Warn("listing the workers failed, retrying", slog.Any("error", err))
			default:
				e.reconcile(ctx, group, workers)
			}
			_ = backoff.Sleep(ctx, e.interval)
		}
		return nil
	})
	err := group.Wait()
	for _, b := range e.running {
		b.stop()
	}
	return err
}

// reconcile starts bridges for workers without one, and stops those of workers that have left.
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

// pendingWorkers returns the workers whose bridges ended with unreported jobs.
func (e *workerBridges) pendingWorkers() []muster.WorkerID {
	entries, err := os.ReadDir(filepath.Join(e.env.Dir, perWorkerDir))
	if err != nil {
		return nil // no bridge has run
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
			deps.Log.Error("bridge of a worker failed, restarting it", slog.Any("error", err))
		}
		return nil
	})
	return b
}

// isRefused reports whether err means that the key was rejected.
func isRefused(err error) bool {
	code := muster.CodeOf(err)
	return err != nil && (code == muster.Unauthenticated || code == muster.Forbidden)
}
