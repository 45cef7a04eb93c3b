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
func (a *Agent) restore(ctx, life context.Context) error {
	reports, err := a.cfg.Keep.Reports()
	if err != nil {
		a.log.Error("some reports of an earlier life are lost", slog.Any("error", err))
	}
	for i := range reports {
		if err := a.restoreReport(ctx, &reports[i], true); err != nil {
			return err
		}
	}
	a.roster.lastContact(a.cfg.Supervisor.Contacted())
	held := a.cfg.Supervisor.Held()
	began, running := time.Now(), 0
	for i := range held {
		h := &held[i]
		switch {
		case a.roster.holds(h.Start.Attempt): // by its kept report
			a.cfg.Supervisor.Forget(h.Start.Attempt)
		case h.Report != nil:
			if err := a.restoreReport(ctx, h.Report, false); err != nil {
				return err
			}
		case a.adopt(life, h):
			running++
		}
	}
	if len(held) > 0 {
		a.log.Info("took up what an earlier life of this worker had started",
			slog.Int("running", running), slog.Int("ended", len(held)-running), slog.Duration("took", time.Since(began)))
	}
	return nil
}

// restoreReport takes up the report of an ended attempt, which is in the keep or
// is to be put there.
func (a *Agent) restoreReport(ctx context.Context, report *muster.Report, kept bool) error {
	size, err := a.cfg.Logs.Size(ctx, report.Attempt)
	if err != nil {
		return err
	}
	report.LogSize = min(report.LogSize, size)
	a.roster.restore(report, kept)
	return nil
}

// adopt goes on with an attempt that an earlier life started, and reports
// whether its process runs. One of which nothing can be made ends: the server learns
// from the hello that it is not here any more.
func (a *Agent) adopt(life context.Context, h *run.Held) bool {
	id := h.Start.Attempt
	t, err := h.Task()
	if err != nil {
		a.log.Error("an attempt of an earlier life is given up", slog.String("attempt", id.String()), slog.Any("error", err))
		a.roster.letGo(id)
		return false
	}
	ex := a.executors[t.Spec.Kind]
	if ex == nil {
		a.log.Error("an attempt of an earlier life is given up: this worker does not run its kind any more",
			slog.String("attempt", id.String()), slog.String("kind", t.Spec.Kind))
		a.roster.letGo(id)
		return false
	}
	if h.Frozen { // whoever froze it is gone, and will do it again if need be
		if err := a.cfg.Supervisor.Freeze(id, false); err != nil {
			a.log.Warn("a frozen attempt of an earlier life cannot be thawed", slog.String("attempt", id.String()), slog.Any("error", err))
		}
	}
	ctx, cancel := context.WithCancelCause(life)
	at := a.roster.adopt(h, t, cancel)
	a.tasks.Go(func() {
		defer cancel(nil)
		a.execute(ctx, ex, t, at)
	})
	return h.Exit == nil
}

// lastContact sets when an earlier life was last in contact with the server, so
// that its attempts gain nothing by the new one; 0 if there was none.
func (r *roster) lastContact(at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at > 0 {
		r.contact = min(r.contact, at)
	}
}

func (r *roster) holds(id muster.AttemptID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held[id] != nil
}

// restore takes up an ended attempt of an earlier life.
func (r *roster) restore(report *muster.Report, kept bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := &attempt{id: report.Attempt, roster: r, report: report, kept: kept, logSize: report.LogSize}
	at.complete(report)
	r.held[at.id] = at
	if !kept {
		r.unsaved = append(r.unsaved, at)
		token(r.saving)
	}
}

// adopt enters an attempt of an earlier life: it has its place already. One that
// outlived its lease is stopped, and nothing is said of it.
func (r *roster) adopt(h *run.Held, t *run.Task, cancel context.CancelCauseFunc) *attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := &attempt{
		id: t.Attempt, roster: r, grant: t.Grant, cancel: cancel, since: t.Assigned, leased: t.Assigned,
		pid: h.PID, started: h.Started, logSize: h.LogSize, ended: h.Exit != nil && !lostLease(h.Exit),
	}
	r.capacity.hold(&at.grant)
	r.enter(at, t.Spec)
	if at.overdue(r.clock(), r.contact) || lostLease(h.Exit) {
		r.log.Warn("the worker was away for longer than the attempt may go on; killing it",
			slog.String("attempt", at.id.String()), slog.Duration("grace", at.grace))
		r.forget(at, errLeaseEnded)
	}
	return at
}

// lostLease reports whether the supervisor ended the attempt for want of contact.
func lostLease(x *run.Exit) bool {
	return x != nil && x.Stopped != nil && x.Stopped.Outcome == muster.AttemptLost
}

// letGo has the supervisor end and forget an attempt.
func (r *roster) letGo(id muster.AttemptID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = append(r.over, id)
	r.trash = append(r.trash, id)
	token(r.saving)
}
