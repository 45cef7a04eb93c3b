package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// restore takes up what earlier lives left: reports that are kept, and the
// attempts that the supervisor holds.
func (a *Agent) restore(ctx, runCtx context.Context) error {
	reports, err := a.cfg.Reports.Reports()
	if err != nil {
		a.log.Error("some reports of an earlier life are lost", slog.Any("error", err))
	}
	for i := range reports {
		if err := a.restoreReport(ctx, &reports[i], true); err != nil {
			return err
		}
	}
	a.table.restoreContact(a.cfg.Supervisor.LastContact())
	recovered := a.cfg.Supervisor.Recovered()
	began, running := time.Now(), 0
	for i := range recovered {
		h := &recovered[i]
		switch {
		case a.table.has(h.Start.Attempt): // by its kept report
			a.cfg.Supervisor.Forget(h.Start.Attempt)
		case h.Report != nil:
			if err := a.restoreReport(ctx, h.Report, false); err != nil {
				return err
			}
		case a.adopt(runCtx, h):
			running++
		}
	}
	if len(recovered) > 0 {
		a.log.Info("took up what an earlier life of this worker had started",
			slog.Int("running", running), slog.Int("ended", len(recovered)-running), slog.Duration("took", time.Since(began)))
	}
	return nil
}

// restoreReport takes up the report of an ended attempt, which is in the keep or
// is to be put there.
func (a *Agent) restoreReport(ctx context.Context, report *muster.Report, persisted bool) error {
	size, err := a.cfg.Logs.Size(ctx, report.Attempt)
	if err != nil {
		return err
	}
	report.LogSize = min(report.LogSize, size)
	a.table.addReport(report, persisted)
	return nil
}

// adopt goes on with an attempt that an earlier life started, and reports
// whether its process runs. One of which nothing can be made ends: the server learns
// from the hello that it is not here any more.
func (a *Agent) adopt(runCtx context.Context, h *run.Recovered) bool {
	id := h.Start.Attempt
	t, err := h.Task()
	if err != nil {
		a.log.Error("an attempt of an earlier life is given up", slog.String("attempt", id.String()), slog.Any("error", err))
		a.table.discard(id)
		return false
	}
	ex := a.executors[t.Spec.Kind]
	if ex == nil {
		a.log.Error("an attempt of an earlier life is given up: this worker does not run its kind any more",
			slog.String("attempt", id.String()), slog.String("kind", t.Spec.Kind))
		a.table.discard(id)
		return false
	}
	if h.Frozen { // whoever froze it is gone, and will do it again if need be
		if err := a.cfg.Supervisor.Freeze(id, false); err != nil {
			a.log.Warn("a frozen attempt of an earlier life cannot be thawed", slog.String("attempt", id.String()), slog.Any("error", err))
		}
	}
	ctx, cancel := context.WithCancelCause(runCtx)
	at := a.table.addRecovered(h, t, cancel)
	a.tasks.Go(func() {
		defer cancel(nil)
		a.execute(ctx, ex, t, at)
	})
	return h.Exit == nil
}

// restoreContact sets when an earlier life was last in contact with the server, so
// that its attempts gain nothing by the new one; 0 if there was none.
func (tbl *attemptTable) restoreContact(at time.Duration) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	if at > 0 {
		tbl.lastContact = min(tbl.lastContact, at)
	}
}

func (tbl *attemptTable) has(id muster.AttemptID) bool {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	return tbl.held[id] != nil
}

// addReport takes up an ended attempt of an earlier life.
func (tbl *attemptTable) addReport(report *muster.Report, persisted bool) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	at := &attempt{id: report.Attempt, table: tbl, report: report, persisted: persisted, logSize: report.LogSize}
	at.complete(report)
	tbl.held[at.id] = at
	if !persisted {
		tbl.reportsToSave = append(tbl.reportsToSave, at)
		trySend(tbl.ioWake)
	}
}

// addRecovered enters an attempt of an earlier life: it has its place already. One that
// outlived its lease is stopped, and nothing is said of it.
func (tbl *attemptTable) addRecovered(h *run.Recovered, t *run.Task, cancel context.CancelCauseFunc) *attempt {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	at := &attempt{
		id: t.Attempt, table: tbl, grant: t.Grant, cancel: cancel, assignedAt: t.Assigned, leaseStart: t.Assigned,
		pid: h.PID, started: h.Started, logSize: h.LogSize, endedInTime: h.Exit != nil && !leaseLost(h.Exit),
	}
	tbl.capacity.forceReserve(&at.grant)
	tbl.track(at, t.Spec)
	if at.leaseExpired(tbl.clock(), tbl.lastContact) || leaseLost(h.Exit) {
		tbl.log.Warn("the worker was away for longer than the attempt may go on; killing it",
			slog.String("attempt", at.id.String()), slog.Duration("grace", at.grace))
		tbl.drop(at, errLeaseEnded)
	}
	return at
}

// leaseLost reports whether the supervisor ended the attempt for want of contact.
func leaseLost(x *run.Exit) bool {
	return x != nil && x.Stopped != nil && x.Stopped.Outcome == muster.AttemptLost
}

// discard has the supervisor end and forget an attempt.
func (tbl *attemptTable) discard(id muster.AttemptID) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	tbl.toForget = append(tbl.toForget, id)
	tbl.logsToDelete = append(tbl.logsToDelete, id)
	trySend(tbl.ioWake)
}
