package follow

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// progressView is the state of a running job.
type progressView struct {
	job    muster.Job
	task   muster.Task // the only one, or that of the last event
	reason string      // why the job waits
}

// watchEvents applies events of tasks. It ignores errors: pollJob reads the state, too.
func (f *follower) watchEvents(ctx context.Context) error {
	for e, err := range f.server.Events(ctx, client.EventQuery{Job: f.id}) {
		switch {
		case err != nil:
			return nil
		case e.Type == muster.EventResync:
			// Read what a single task has reported before; with many, the next event is enough.
			if t, err := f.server.Task(ctx, muster.TaskID{Job: f.id}); err == nil {
				f.update(func(v *progressView) { v.task = t })
			}
		case e.Type == muster.EventTask && e.Task != nil:
			f.update(func(v *progressView) { v.apply(e) })
			f.announceArtifacts(e)
		}
	}
	return nil
}

// announceArtifacts prints a message for each new artifact of a running task.
func (f *follower) announceArtifacts(e muster.Event) {
	if e.Detail == nil {
		return
	}
	f.mu.Lock()
	job := f.progress.job
	f.mu.Unlock()
	for _, a := range e.Detail.Artifacts {
		if key := e.Task.String() + "/" + a.Name; len(f.announced) < maxAnnounced && !f.announced[key] {
			f.announced[key] = true
			fmt.Fprintf(f.status.Above(f.app.Err), "muster: task %s published %s: muster get %s downloads it\n", taskLabel(&job, *e.Task), term.Sanitize(a.Name), app.TaskAddress(&job, *e.Task))
		}
	}
}

// maxAnnounced limits the announced artifacts.
const maxAnnounced = 20

func (f *follower) update(change func(*progressView)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.progress)
}

// apply applies an event of a task.
func (v *progressView) apply(e muster.Event) {
	if v.task.ID != *e.Task {
		v.task = muster.Task{ID: *e.Task}
	}
	if v.task.State.UnmarshalText([]byte(e.State)) == nil && e.Detail != nil {
		v.task.Progress, v.task.Step, v.task.Metrics = e.Detail.Progress, e.Detail.Step, e.Detail.Metrics
	}
}

// pollJob reads the job once a second, without a terminal until it has started, and warns if it waits.
func (f *follower) pollJob(ctx context.Context) error {
	warner := waitWarner{id: f.id, interactive: f.app.Err.Interactive}
	return pollWaiting(ctx, f.server, f.id, func(job muster.Job, x *muster.Explanation) (done bool) {
		reason := ""
		if x != nil {
			reason = app.LocalTimes(x.Summary)
			if text := warner.message(x, time.Now()); text != "" {
				fmt.Fprintln(f.status.Above(f.app.Err), text)
			}
		}
		f.update(func(v *progressView) { v.job, v.reason = job, reason })
		return !f.app.Err.Interactive && started(&job)
	})
}

// WarnWaiting writes why a job waits, as Follow does, until it has started or ctx ends.
func WarnWaiting(ctx context.Context, w io.Writer, interactive bool, server *client.Client, id muster.JobID) {
	warner := waitWarner{id: id, interactive: interactive}
	_ = pollWaiting(ctx, server, id, func(job muster.Job, x *muster.Explanation) (done bool) { // always nil
		if x != nil {
			if text := warner.message(x, time.Now()); text != "" {
				fmt.Fprintln(w, text)
			}
		}
		return started(&job)
	})
}

func started(job *muster.Job) bool {
	return job.State != muster.JobQueued && job.State != muster.JobWaiting
}

// pollWaiting reads a job once a second until visit returns true, with an explanation while it waits. It ignores errors and returns nil.
func pollWaiting(ctx context.Context, server *client.Client, id muster.JobID, visit func(muster.Job, *muster.Explanation) (done bool)) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		job, err := server.Job(ctx, id)
		if err != nil {
			continue
		}
		var explanation *muster.Explanation
		if !started(&job) {
			if x, err := server.Explain(ctx, muster.TaskID{Job: id}); err == nil {
				explanation = &x
			}
		}
		if visit(job, explanation) {
			return nil
		}
	}
}

// waitWarner decides when to print why a job waits: once if it can never start on the current workers; without a terminal, which
// has a status line, also after waitNotice and when another cause keeps it waiting, at most once in waitRepeat.
type waitWarner struct {
	id          muster.JobID
	interactive bool

	since   time.Time // first call
	never   bool      // has printed that the job can never start
	cause   string    // last printed, without numbers
	printed time.Time
}

const (
	waitNotice = 10 * time.Second
	waitRepeat = time.Minute
)

// message returns the line to print, "" for none.
func (w *waitWarner) message(x *muster.Explanation, now time.Time) string {
	if w.since.IsZero() {
		w.since = now
	}
	cause := strings.Trim(digits.Get().ReplaceAllString(x.Summary, ""), " ")
	switch {
	case x.Unschedulable() && !w.never:
		w.never = true
	case w.interactive, cause == w.cause, now.Sub(w.since) < waitNotice, !w.printed.IsZero() && now.Sub(w.printed) < waitRepeat:
		return ""
	}
	w.cause, w.printed = cause, now
	return waitMessage(w.id, x)
}

var digits = lazyregexp.New(`[0-9]+`)

// waitMessage explains why a job waits.
func waitMessage(id muster.JobID, x *muster.Explanation) string {
	reason := x.Summary
	if x.Unschedulable() && len(x.Workers) == 1 {
		reason = fmt.Sprintf("the only worker, %s, cannot run it: %s", x.Workers[0].Name, x.Workers[0].Why)
	}
	return fmt.Sprintf("muster: job %s waits: %s; for details, use muster explain %s", id, term.Sanitize(app.LocalTimes(reason)), id)
}

func (f *follower) line() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.progress.line(time.Since(f.started), f.app.Err.Width-1)
}

const (
	barWidth     = 20 // columns of a progress bar
	maxStepWidth = 40
	minReason    = 12 // columns of a reason that is worth showing
)

// line returns the status line, with the time since the start. Where it exceeds the width, it first leaves out the metrics, then the
// counts, the bar and the step, and cuts the reason, but not the command that explains it.
func (v *progressView) line(elapsed time.Duration, width int) string {
	var bar, done, counts, step, metrics string
	total := v.job.Counts.Total()
	switch {
	case total > 1:
		fraction := app.JobFraction(&v.job)
		bar = term.ProgressBar(barWidth, fraction)
		done = fmt.Sprintf("%d/%d %s", v.job.Counts.Finished(), total, term.FormatPercent(fraction))
		counts = app.FormatCounts(v.job.Counts, false)
	case v.task.Progress != nil:
		bar, done = term.ProgressBar(barWidth, *v.task.Progress), term.FormatPercent(*v.task.Progress)
	case v.task.State != 0:
		done = v.task.State.String()
	default:
		done = string(v.job.State)
	}
	if total <= 1 {
		step, metrics = term.Truncate(term.Sanitize(v.task.Step), maxStepWidth), app.FormatMetrics(v.task.Metrics)
	}
	explain, reason := "", term.Sanitize(v.reason)
	if reason != "" {
		explain = "muster explain " + v.job.ID.String()
	}
	join := func() string {
		why := explain
		if reason != "" {
			why = reason + "; " + explain
		}
		return strings.Join(app.NonEmpty([]string{v.job.ID.String(), bar, done, counts, step, why, metrics, term.FormatDuration(elapsed)}), "  ")
	}
	for _, part := range []*string{&metrics, &counts, &bar, &step} {
		if excess := term.Width(join()) - width; excess > 0 && (reason == "" || term.Width(reason)-excess < minReason) {
			*part = ""
		}
	}
	if excess := term.Width(join()) - width; excess > 0 && reason != "" {
		if reason = term.Truncate(reason, max(0, term.Width(reason)-excess)); term.Width(reason) < minReason {
			reason = ""
		}
	}
	return join()
}
