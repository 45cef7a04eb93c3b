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
	"github.com/muster-dev/muster/internal/wake"
)

func (w *Worker) remove(reason string) {
	f := w.fleet
	w.mu.Lock()
	w.inactive, w.removed = reason, true
	held := slices.Collect(maps.Values(w.tasks))
	w.heldAtRemoval = held
	leave := w.leaveSession
	w.mu.Unlock()
	for _, t := range held {
		_ = t.abort(ErrAbandoned, muster.Report{Outcome: muster.AttemptLost, Reason: muster.WorkerLost, Message: reason})
		t.acknowledge(false) // a report that is not sent yet is lost
	}
	if leave != nil {
		leave()
	}
	wake.Set(w.wake)
	w.saveMu.Lock()
	if err := errors.Join(f.store.dropWorker(w.id), removeAll(w.dir())); err != nil {
		w.log.Error("cannot remove a foreign worker from disk", slog.Any("error", err))
	}
	w.saveMu.Unlock()
	f.mu.Lock() // afterwards another worker may have the id
	if f.workers[w.id] == w {
		delete(f.workers, w.id)
	}
	f.mu.Unlock()
	w.removedOnce.Do(func() { close(w.removedCh) })
	w.log.Info("foreign worker removed", slog.String("why", reason))
}

// removeFiles removes the logs and reports of a removed worker after its session has ended.
func (w *Worker) removeFiles(ctx context.Context) {
	w.mu.Lock()
	removed, tasks := w.removed, w.heldAtRemoval
	w.mu.Unlock()
	if !removed {
		return
	}
	byDir, err := w.fleet.reports.AttemptsByWorker()
	errs := []error{err}
	for _, t := range tasks {
		errs = append(errs, t.removeLog(ctx))
	}
	for _, a := range byDir[w.dirName] {
		errs = append(errs, w.fleet.logs.RemoveAttempt(ctx, a))
	}
	if err := errors.Join(append(errs, w.fleet.reports.RemoveWorkers(w.dirName))...); err != nil {
		w.log.Error("cannot remove the files of a foreign worker", slog.Any("error", err))
	}
}

// sweep removes files and records that a crash left behind. unowned has the tasks of removed workers.
func (f *Fleet) sweep(unowned map[string]*taskRecord) error {
	dirs := map[string]bool{}
	for _, w := range f.workers {
		dirs[w.dirName] = true
	}
	var errs []error
	for dir, known := range map[string]func(name string) bool{
		f.tasksDir():                         func(name string) bool { return f.tasks[name] != nil },
		filepath.Join(f.cfg.Dir, "workers"):  func(name string) bool { return dirs[name] },
		filepath.Join(f.cfg.Dir, uploadsDir): func(string) bool { return false },
	} {
		list, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, d := range list {
			if !known(d.Name()) {
				errs = append(errs, removeAll(filepath.Join(dir, d.Name())))
			}
		}
	}
	for id, r := range unowned {
		var rt run.Task
		_ = json.Unmarshal(r.Attempt, &rt)
		errs = append(errs, f.store.moveToFinished(id, finishedTask{Worker: r.Worker, Cause: causeNames[ErrAbandoned], Task: rt.Attempt.Task.String()}))
	}
	return errors.Join(append(errs, f.sweepReports(dirs))...)
}

// sweepReports removes the reports of removed workers, and the logs of attempts that have neither a task nor a report.
func (f *Fleet) sweepReports(dirs map[string]bool) error {
	byDir, err := f.reports.AttemptsByWorker()
	if err != nil {
		return err
	}
	wanted := map[muster.AttemptID]bool{}
	for _, t := range f.tasks {
		wanted[t.run.Attempt] = true
	}
	var stale []string
	for dir, attempts := range byDir {
		if !dirs[dir] {
			stale = append(stale, dir)
			continue
		}
		for _, a := range attempts {
			wanted[a] = true
		}
	}
	return errors.Join(f.reports.RemoveWorkers(stale...), f.logs.Retain(func(a muster.AttemptID) bool { return wanted[a] }))
}
