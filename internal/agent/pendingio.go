package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
)

// pendingIO are what is due for the disk and for the supervisor.
type pendingIO struct {
	save          []*attempt         // whose reports go to the keep
	deleteReports []muster.AttemptID // whose reports leave it
	deleteLogs    []muster.AttemptID // whose logs are removed
	forget        []muster.AttemptID // that the supervisor forgets
}

// queueSave has the report of an attempt put into the keep, unless the server has all
// of the attempt before. The lock is held.
func (tbl *attemptTable) queueSave(at *attempt, now time.Duration) {
	at.saveDeadline = now + saveDelay
	if len(tbl.reportsToSave) == 0 {
		trySend(tbl.ioWake)
	}
	tbl.reportsToSave = append(tbl.reportsToSave, at)
}

// dequeueIO takes what is due. With all true everything is. Otherwise wait is how
// long until the next is, unless the roster says so earlier.
func (tbl *attemptTable) dequeueIO(all bool) (due pendingIO, wait time.Duration) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	now, n := tbl.clock(), 0
	wait = time.Hour
	for _, at := range tbl.reportsToSave {
		if !at.dropped {
			if tbl.connected && !all && now < at.saveDeadline {
				wait = at.saveDeadline - now
				break
			}
			due.save = append(due.save, at)
		}
		n++
	}
	clear(tbl.reportsToSave[:n])
	if tbl.reportsToSave = tbl.reportsToSave[n:]; len(tbl.reportsToSave) == 0 {
		tbl.reportsToSave = nil
	}
	due.deleteReports, due.deleteLogs, due.forget = tbl.reportsToDelete, tbl.logsToDelete, tbl.toForget
	tbl.reportsToDelete, tbl.logsToDelete, tbl.toForget = nil, nil, nil
	return due, wait
}

// saved takes note of the outcome of what dequeueIO returned.
func (tbl *attemptTable) onSaved(saved []*attempt, deleted []muster.AttemptID, ok bool) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	if !ok {
		tbl.reportsToSave = append(saved, tbl.reportsToSave...)
		tbl.reportsToDelete = append(deleted, tbl.reportsToDelete...)
		return
	}
	for _, at := range saved {
		at.persisted = true
		if at.dropped { // acknowledged in the meantime
			tbl.reportsToDelete = append(tbl.reportsToDelete, at.id)
			trySend(tbl.ioWake)
		}
	}
}

// saveRetryDelay is the pause after the keep could not be written.
const saveRetryDelay = 2 * time.Second

// ioLoop keeps the disk in step with the roster until ctx ends.
func (a *Agent) ioLoop(ctx context.Context) error {
	t := time.NewTimer(0)
	defer t.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.table.ioWake:
			if failed {
				continue // the timer says when to try again
			}
		case <-t.C:
		}
		wait, err := a.flushIO(ctx, false)
		if err != nil {
			a.log.Error("reports that are not acknowledged cannot be written to disk; they would not survive a crash of this worker",
				slog.Any("error", err))
			wait = saveRetryDelay
		}
		failed = err != nil
		t.Reset(wait)
	}
}

// flushIO writes what is due, or everything.
func (a *Agent) flushIO(ctx context.Context, all bool) (wait time.Duration, err error) {
	due, wait := a.table.dequeueIO(all)
	reports := make([]*muster.Report, len(due.save))
	for i, at := range due.save {
		reports[i] = at.report // no longer changed
	}
	err = a.cfg.Reports.Update(reports, due.deleteReports)
	a.table.onSaved(due.save, due.deleteReports, err == nil)
	if err == nil {
		for _, r := range reports { // which need no second keeper now
			due.forget = append(due.forget, r.Attempt)
		}
	}
	if len(due.forget) > 0 {
		a.cfg.Supervisor.Forget(due.forget...)
	}
	for _, id := range due.deleteLogs {
		a.readers.close(id)
		if err := a.cfg.Logs.RemoveAttempt(ctx, id); err != nil {
			a.log.Warn("a log that was delivered cannot be removed", slog.String("attempt", id.String()), slog.Any("error", err))
		}
	}
	return wait, err
}
