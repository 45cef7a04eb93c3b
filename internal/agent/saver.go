package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
)

// chores are what is due for the disk and for the supervisor.
type chores struct {
	put    []*attempt         // whose reports go to the keep
	remove []muster.AttemptID // whose reports leave it
	trash  []muster.AttemptID // whose logs are removed
	over   []muster.AttemptID // that the supervisor forgets
}

// saveReport has the report of an attempt put into the keep, unless the server has all
// of the attempt before. The lock is held.
func (r *roster) saveReport(at *attempt, now time.Duration) {
	at.saveBy = now + saveAfter
	if len(r.unsaved) == 0 {
		token(r.saving)
	}
	r.unsaved = append(r.unsaved, at)
}

// toSave takes what is due. With all true everything is. Otherwise wait is how
// long until the next is, unless the roster says so earlier.
func (r *roster) toSave(all bool) (c chores, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, n := r.clock(), 0
	wait = time.Hour
	for _, at := range r.unsaved {
		if !at.gone {
			if r.connected && !all && now < at.saveBy {
				wait = at.saveBy - now
				break
			}
			c.put = append(c.put, at)
		}
		n++
	}
	clear(r.unsaved[:n])
	if r.unsaved = r.unsaved[n:]; len(r.unsaved) == 0 {
		r.unsaved = nil
	}
	c.remove, c.trash, c.over = r.unsave, r.trash, r.over
	r.unsave, r.trash, r.over = nil, nil, nil
	return c, wait
}

// saved takes note of the outcome of what toSave returned.
func (r *roster) savedThem(put []*attempt, remove []muster.AttemptID, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !ok {
		r.unsaved = append(put, r.unsaved...)
		r.unsave = append(remove, r.unsave...)
		return
	}
	for _, at := range put {
		at.kept = true
		if at.gone { // acknowledged in the meantime
			r.unsave = append(r.unsave, at.id)
			token(r.saving)
		}
	}
}

// saveRetry is the pause after the keep could not be written.
const saveRetry = 2 * time.Second

// save keeps the disk in step with the roster until ctx ends.
func (a *Agent) save(ctx context.Context) error {
	t := time.NewTimer(0)
	defer t.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.roster.saving:
			if failed {
				continue // the timer says when to try again
			}
		case <-t.C:
		}
		wait, err := a.saveOnce(ctx, false)
		if err != nil {
			a.log.Error("reports that are not acknowledged cannot be written to disk; they would not survive a crash of this worker",
				slog.Any("error", err))
			wait = saveRetry
		}
		failed = err != nil
		t.Reset(wait)
	}
}

// saveOnce writes what is due, or everything.
func (a *Agent) saveOnce(ctx context.Context, all bool) (wait time.Duration, err error) {
	c, wait := a.roster.toSave(all)
	reports := make([]*muster.Report, len(c.put))
	for i, at := range c.put {
		reports[i] = at.report // no longer changed
	}
	err = a.cfg.Keep.Change(reports, c.remove)
	a.roster.savedThem(c.put, c.remove, err == nil)
	if err == nil {
		for _, r := range reports { // which need no second keeper now
			c.over = append(c.over, r.Attempt)
		}
	}
	if len(c.over) > 0 {
		a.cfg.Supervisor.Forget(c.over...)
	}
	for _, id := range c.trash {
		a.readers.close(id)
		if err := a.cfg.Logs.RemoveAttempt(ctx, id); err != nil {
			a.log.Warn("a log that was delivered cannot be removed", slog.String("attempt", id.String()), slog.Any("error", err))
		}
	}
	return wait, err
}
