package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/wake"
)

// pendingIO is due work for the disk and the supervisor.
type pendingIO struct {
	save          []*attempt // whose reports are to be stored
	deleteReports []muster.AttemptID
	deleteLogs    []muster.AttemptID
	forget        []muster.AttemptID // by the supervisor
}

// queueSave stores the report of an attempt, unless the server has all of the attempt before. The lock is held.
func (tbl *attemptTable) queueSave(at *attempt, now time.Duration) {
	at.saveDeadline = now + saveDelay
	if len(tbl.reportsToSave) == 0 {
		wake.Set(tbl.ioWake)
	}
	tbl.reportsToSave = append(tbl.reportsToSave, at)
}

// dequeueIO returns the work that is due, or all of it. wait is how long until more is due, unless the table is woken.
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

// onSaved records the outcome of the work that dequeueIO returned.
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
		if at.dropped { // acknowledged meanwhile
			tbl.reportsToDelete = append(tbl.reportsToDelete, at.id)
			wake.Set(tbl.ioWake)
		}
	}
}

// saveRetryDelay is the pause after a report could not be stored.
const saveRetryDelay = 2 * time.Second

// ioLoop writes the table's pending changes to disk until ctx ends.
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
			a.log.Error("cannot store unacknowledged reports, they would not survive a crash of this worker",
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
		reports[i] = at.report // not changed any more
	}
	err = a.cfg.Reports.Update(reports, due.deleteReports)
	a.table.onSaved(due.save, due.deleteReports, err == nil)
	if err == nil {
		for _, r := range reports { // the supervisor need not keep them now
			due.forget = append(due.forget, r.Attempt)
		}
	}
	if len(due.forget) > 0 {
		a.cfg.Supervisor.Forget(due.forget...)
	}
	for _, id := range due.deleteLogs {
		a.readers.close(id)
		if err := a.cfg.Logs.RemoveAttempt(ctx, id); err != nil {
			a.log.Warn("cannot remove a delivered log", slog.String("attempt", id.String()), slog.Any("error", err))
		}
	}
	return wait, err
}
