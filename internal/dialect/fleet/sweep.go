package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// drop forgets the worker for good, with all that it holds.
func (w *Worker) drop(why string) {
	f := w.fleet
	w.mu.Lock()
	w.away, w.removed = why, true
	held := slices.Collect(maps.Values(w.tasks))
	w.left = held
	goodbye := w.goodbye
	w.mu.Unlock()
	for _, t := range held {
		t.end(ErrGivenUp, muster.Report{Outcome: muster.AttemptLost, Reason: muster.WorkerLost, Message: why})
		t.settle(false) // the report of one that was finished reaches the server no more
	}
	if goodbye != nil {
		goodbye()
	}
	token(w.wake)
	w.saving.Lock()
	if err := errors.Join(f.state.dropWorker(w.id), remove(w.folder())); err != nil {
		w.log.Error("a foreign worker cannot be removed from disk", slog.Any("error", err))
	}
	w.saving.Unlock()
	f.mu.Lock() // from now on another one may have its id
	if f.workers[w.id] == w {
		delete(f.workers, w.id)
	}
	f.mu.Unlock()
	w.goneOnce.Do(func() { close(w.gone) })
	w.log.Info("a foreign worker is forgotten", slog.String("why", why))
}

// clear removes the logs and reports of a worker that was removed. It has no session any more.
func (w *Worker) clear(ctx context.Context) {
	w.mu.Lock()
	removed, left := w.removed, w.left
	w.mu.Unlock()
	if !removed {
		return
	}
	parts, err := w.fleet.keep.AttemptsByWorker()
	errs := []error{err}
	for _, t := range left {
		errs = append(errs, t.removeLog(ctx))
	}
	for _, a := range parts[w.place] {
		errs = append(errs, w.fleet.logs.RemoveAttempt(ctx, a))
	}
	if err := errors.Join(append(errs, w.fleet.keep.RemoveWorkers(w.place))...); err != nil {
		w.log.Error("what a foreign worker left cannot be removed from disk", slog.Any("error", err))
	}
}

// sweep removes what a Fleet left that ended at the wrong moment. orphans are records of tasks whose workers are gone.
func (f *Fleet) sweep(orphans map[string]taskRecord) error {
	places := map[string]bool{}
	for _, w := range f.workers {
		places[w.place] = true
	}
	var errs []error
	for dir, known := range map[string]func(name string) bool{
		f.tasksDir():                         func(name string) bool { return f.tasks[name] != nil },
		filepath.Join(f.cfg.Dir, "workers"):  func(name string) bool { return places[name] },
		filepath.Join(f.cfg.Dir, uploadsDir): func(string) bool { return false },
	} {
		list, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, d := range list {
			if !known(d.Name()) {
				errs = append(errs, remove(filepath.Join(dir, d.Name())))
			}
		}
	}
	for id, r := range orphans {
		var rt run.Task
		_ = json.Unmarshal(r.Attempt, &rt)
		errs = append(errs, f.state.end(id, past{Worker: r.Worker, Cause: nameOf(ErrGivenUp), Task: rt.Attempt.Task.String()}))
	}
	return errors.Join(append(errs, f.sweepReports(places))...)
}

// sweepReports removes the reports of workers that are gone, and the logs of attempts that are neither held nor reported.
func (f *Fleet) sweepReports(places map[string]bool) error {
	parts, err := f.keep.AttemptsByWorker()
	if err != nil {
		return err
	}
	wanted := map[muster.AttemptID]bool{}
	for _, t := range f.tasks {
		wanted[t.run.Attempt] = true
	}
	var gone []string
	for place, attempts := range parts {
		if !places[place] {
			gone = append(gone, place)
			continue
		}
		for _, a := range attempts {
			wanted[a] = true
		}
	}
	return errors.Join(f.keep.RemoveWorkers(gone...), f.logs.Retain(func(a muster.AttemptID) bool { return wanted[a] }))
}
