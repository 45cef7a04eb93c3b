package follow

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
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
			fmt.Fprintf(f.status.WriterAbove(f.app.Err), "muster: task %s published %s: muster get %s downloads it\n", taskLabel(&job, *e.Task), term.Sanitize(a.Name), app.TaskAddress(&job, *e.Task))
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

// pollJob reads the job once a second, without a terminal until it has started. It warns once if the job can never start.
func (f *follower) pollJob(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	warned := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		job, err := f.server.Job(ctx, f.id)
		if err != nil {
			continue
		}
		reason := ""
		if job.State == muster.JobQueued || job.State == muster.JobWaiting {
			if x, err := f.server.Explain(ctx, muster.TaskID{Job: f.id}); err == nil {
				reason = x.Summary
				if x.Unschedulable() && !warned {
					warned = true
					fmt.Fprintln(f.status.WriterAbove(f.app.Err), neverStartsMessage(f.id, &x))
				}
			}
		} else if !f.app.Err.Interactive {
			return nil
		}
		f.update(func(v *progressView) { v.job, v.reason = job, reason })
	}
}

// neverStartsMessage explains why a job can never start on the current workers.
func neverStartsMessage(id muster.JobID, x *muster.Explanation) string {
	reason := x.Summary
	if len(x.Workers) == 1 {
		reason = fmt.Sprintf("the only worker, %s, cannot run it: %s", x.Workers[0].Name, x.Workers[0].Why)
	}
	return fmt.Sprintf("muster: job %s waits: %s; for details, use muster explain %s", id, term.Sanitize(reason), id)
}

func (f *follower) line() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.progress.line(time.Since(f.started))
}

// barWidth is the width of a progress bar in columns.
const barWidth = 20

// line returns the status line, with the time since the start.
func (v *progressView) line(elapsed time.Duration) string {
	parts := []string{v.job.ID.String()}
	total := v.job.Counts.Total()
	switch {
	case total > 1:
		done := v.job.Counts.Finished()
		parts = append(parts, term.ProgressBar(barWidth, float64(done)/float64(total)), fmt.Sprintf("%d/%d", done, total), app.FormatCounts(v.job.Counts, false))
	case v.task.Progress != nil:
		parts = append(parts, term.ProgressBar(barWidth, *v.task.Progress), term.FormatPercent(*v.task.Progress))
	case v.task.State != 0:
		parts = append(parts, v.task.State.String())
	default:
		parts = append(parts, string(v.job.State))
	}
	if total <= 1 {
		parts = append(parts, v.task.Step, app.FormatMetrics(v.task.Metrics))
	}
	parts = append(parts, v.reason, term.FormatDuration(elapsed))
	return strings.Join(app.NonEmpty(parts), "  ")
}
