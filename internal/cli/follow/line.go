package follow

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/sched/explain"
)

// progressView is what is known of a job that goes on.
type progressView struct {
	job  muster.Job
	task muster.Task // its only one, or the one that told of itself last
	why  string      // it waits
}

// watch takes in what the task tells of itself, as it does. Nothing depends on
// it: if it breaks off, look still knows the state.
func (f *follower) watch(ctx context.Context) error {
	for e, err := range f.server.Events(ctx, client.EventQuery{Job: f.id}) {
		switch {
		case err != nil:
			return nil
		case e.Type == muster.EventResync:
			// What a lone task told before is known to the server only; of many the next event is as good.
			if t, err := f.server.Task(ctx, muster.TaskID{Job: f.id}); err == nil {
				f.take(func(v *progressView) { v.task = t })
			}
		case e.Type == muster.EventTask && e.Task != nil:
			f.take(func(v *progressView) { v.told(e) })
			f.shows(e)
		}
	}
	return nil
}

// shows says of each file that a task shows while it runs that it is there, once.
func (f *follower) shows(e muster.Event) {
	if e.Detail == nil {
		return
	}
	f.mu.Lock()
	job := f.seen.job
	f.mu.Unlock()
	for _, a := range e.Detail.Artifacts {
		if key := e.Task.String() + "/" + a.Name; len(f.shown) < mostShown && !f.shown[key] {
			f.shown[key] = true
			fmt.Fprintf(f.status.Above(f.app.Err), "muster: task %s shows %s while it runs: muster get %s fetches it\n", long(&job, *e.Task), term.Clean(a.Name), e.Task)
		}
	}
}

// mostShown is how many files are told of.
const mostShown = 20

func (f *follower) take(change func(*progressView)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.seen)
}

// told takes in an event about a task.
func (v *progressView) told(e muster.Event) {
	if v.task.ID != *e.Task {
		v.task = muster.Task{ID: *e.Task}
	}
	if v.task.State.UnmarshalText([]byte(e.State)) == nil && e.Detail != nil {
		v.task.Progress, v.task.Step, v.task.Metrics = e.Detail.Progress, e.Detail.Step, e.Detail.Metrics
	}
}

// look reads the job's state once a second, without a status line until it has begun. That it never can it says once.
func (f *follower) look(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	told := false
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
		why := ""
		if job.State == muster.JobQueued || job.State == muster.JobWaiting {
			if x, err := f.server.Explain(ctx, muster.TaskID{Job: f.id}); err == nil {
				why = x.Summary
				if x.Unschedulable() && !told {
					told = true
					fmt.Fprintln(f.status.Above(f.app.Err), never(f.id, &x))
				}
			}
		} else if !f.app.Err.Live {
			return nil
		}
		f.take(func(v *progressView) { v.job, v.why = job, why })
	}
}

// never says why a job cannot start as things are.
func never(id muster.JobID, x *explain.Explanation) string {
	why := x.Summary
	if len(x.Workers) == 1 {
		why = fmt.Sprintf("can never start with the only worker %s: %s", x.Workers[0].Name, x.Workers[0].Why)
	}
	return fmt.Sprintf("muster: job %s waits: %s; muster explain %s says more", id, term.Clean(why), id)
}

func (f *follower) line() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen.line(time.Since(f.began))
}

// barWidth is how many columns a bar takes.
const barWidth = 20

// line is the status line of a job that was followed for that long.
func (v *progressView) line(passed time.Duration) string {
	parts := []string{v.job.ID.String()}
	total := v.job.Counts.Total()
	switch {
	case total > 1:
		done := v.job.Counts.Finished()
		parts = append(parts, term.Bar(barWidth, float64(done)/float64(total)), fmt.Sprintf("%d/%d", done, total), frame.Counts(v.job.Counts, false))
	case v.task.Progress != nil:
		parts = append(parts, term.Bar(barWidth, *v.task.Progress), term.Percent(*v.task.Progress))
	case v.task.State != 0:
		parts = append(parts, v.task.State.String())
	default:
		parts = append(parts, string(v.job.State))
	}
	if total <= 1 {
		parts = append(parts, v.task.Step, frame.Metrics(v.task.Metrics))
	}
	parts = append(parts, v.why, term.Elapsed(passed))
	return strings.Join(frame.NonEmpty(parts), "  ")
}
