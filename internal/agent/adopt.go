package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/wake"
)

// restore recovers the state of the previous process of this worker: stored reports, and the attempts that the supervisor holds.
func (a *Agent) restore(ctx, runCtx context.Context) error {
	reports, err := a.cfg.Reports.Reports()
	if err != nil {
		a.log.Error("some stored reports are unreadable and lost", slog.Any("error", err))
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
		case a.table.has(h.Start.Attempt): // its report is stored
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
		a.log.Info("recovered attempts from the previous worker process",
			slog.Int("running", running), slog.Int("ended", len(recovered)-running), slog.Duration("took", time.Since(began)))
	}
	return nil
}

// restoreReport holds the report of an attempt that ended before this process started. persisted says that the report store has it.
func (a *Agent) restoreReport(ctx context.Context, report *muster.Report, persisted bool) error {
	size, err := a.cfg.Logs.Size(ctx, report.Attempt)
	if err != nil {
		return err
	}
	report.LogSize = min(report.LogSize, size)
	a.table.addReport(report, persisted)
	return nil
}

// adopt continues an attempt of the previous process and reports whether its task still runs. An attempt that cannot be continued is
// discarded: the next hello does not list it.
func (a *Agent) adopt(runCtx context.Context, h *run.Recovered) bool {
	id := h.Start.Attempt
	t, err := h.Task()
	if err != nil {
		a.log.Error("recovered attempt discarded", slog.String("attempt", id.String()), slog.Any("error", err))
		a.table.discard(id)
		return false
	}
	ex := a.executors[t.Spec.Kind]
	if ex == nil {
		a.log.Error("recovered attempt discarded: this worker no longer runs its kind",
			slog.String("attempt", id.String()), slog.String("kind", t.Spec.Kind))
		a.table.discard(id)
		return false
	}
	if h.Frozen { // the process that froze it has exited; a later policy decision may freeze it again
		if err := a.cfg.Supervisor.Freeze(id, false); err != nil {
			a.log.Warn("cannot thaw a recovered attempt", slog.String("attempt", id.String()), slog.Any("error", err))
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

// restoreContact sets the time of the previous process's last contact with the server, so that a restart does not extend leases; 0 for none.
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

// addReport holds an attempt that ended before this process started.
func (tbl *attemptTable) addReport(report *muster.Report, persisted bool) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	at := &attempt{id: report.Attempt, table: tbl, report: report, persisted: persisted, logSize: report.LogSize}
	at.complete(report)
	tbl.held[at.id] = at
	if !persisted {
		tbl.reportsToSave = append(tbl.reportsToSave, at)
		wake.Set(tbl.ioWake)
	}
}

// addRecovered holds an attempt of the previous process, whose resources are in use already. An attempt whose lease has ended is dropped.
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
		tbl.log.Warn("lease ended without contact to the server, killing the attempt",
			slog.String("attempt", at.id.String()), slog.Duration("grace", at.grace))
		tbl.drop(at, run.ErrLeaseEnded)
	}
	return at
}

// leaseLost reports whether the supervisor ended the attempt because its lease ended.
func leaseLost(x *run.Exit) bool {
	return x != nil && x.Stopped != nil && x.Stopped.Outcome == muster.AttemptLost
}

// discard makes the supervisor end and forget an attempt.
func (tbl *attemptTable) discard(id muster.AttemptID) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	tbl.toForget = append(tbl.toForget, id)
	tbl.logsToDelete = append(tbl.logsToDelete, id)
	wake.Set(tbl.ioWake)
}
