package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
)

// toSave takes what is due for the disk: reports to put, reports to remove, and
// logs to remove. With all true everything is due. Otherwise wait is how long
// until the next is, unless the roster says so earlier.
func (r *roster) toSave(all bool) (put []*attempt, remove, trash []muster.AttemptID, wait time.Duration) {
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
			put = append(put, at)
		}
		n++
	}
	clear(r.unsaved[:n])
	if r.unsaved = r.unsaved[n:]; len(r.unsaved) == 0 {
		r.unsaved = nil
	}
	remove, trash = r.unsave, r.trash
	r.unsave, r.trash = nil, nil
	return put, remove, trash, wait
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
		at.saved = true
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
	put, remove, trash, wait := a.roster.toSave(all)
	reports := make([]*muster.Report, len(put))
	for i, at := range put {
		reports[i] = at.report // no longer changed
	}
	err = a.cfg.Keep.Change(reports, remove)
	a.roster.savedThem(put, remove, err == nil)
	for _, id := range trash {
		if err := a.cfg.Logs.RemoveAttempt(ctx, id); err != nil {
			a.log.Warn("a log that was delivered cannot be removed", slog.String("attempt", id.String()), slog.Any("error", err))
		}
	}
	return wait, err
}
