package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/cli/usage"
	"github.com/muster-dev/muster/internal/client"
)

type jobConfig struct {
	remote.QueryOptions
	late bool
}

func (a *runner) jobCommand() *cli.Command {
	c := &jobConfig{}
	return a.NewCommand(app.Command{
		Name: "job", Usage: "Show details of jobs and their stages", Args: "JOB…", Complete: c.CompleteJobs(), Category: app.CategoryWatch,
		Flags: c.Flags(
			app.Option{Name: "late", Usage: "Show reports that arrived after their attempt was lost"}.WithEnv().BoolVar(&c.late)),
		Description: "With -o json or yaml, one job is an object and several are a list.",
		Run:         func(ctx context.Context, args []string) error { return a.job(ctx, c, args) },
	})
}

func jobID(j muster.Job) string { return j.ID.String() }

// jobView is a job with its task, if it has only one, for people.
type jobView struct {
	muster.Job
	task     *muster.Task
	attempts []muster.Attempt // of task, if it was retried or is queued
}

func (a *runner) job(ctx context.Context, c *jobConfig, args []string) error {
	server, err := c.Connect()
	if err != nil {
		return err
	}
	ids, err := remote.ResolveJobs(ctx, server, args)
	if err != nil {
		return err
	}
	if c.late {
		return a.lateReports(ctx, c, server, ids)
	}
	views := make([]jobView, len(ids))
	for i, id := range ids {
		if views[i].Job, err = server.Job(ctx, id); err != nil {
			return err
		}
		if views[i].Counts.Total() == 1 && c.Human() {
			if err := views[i].loadOnlyTask(ctx, server); err != nil {
				return err
			}
		}
	}
	return app.PrintItems(a.App, c.OutputOptions, views, func(v jobView) string { return v.ID.String() }, app.WithBlankLines(a.App, func(v jobView) error { return a.drawJob(v, c.Wide()) }))
}

// loadOnlyTask adds the only task and its attempts.
func (v *jobView) loadOnlyTask(ctx context.Context, server *client.Client) error {
	t, err := server.Task(ctx, muster.TaskID{Job: v.ID})
	if err != nil {
		return err
	}
	v.task = &t
	if t.Attempt > 1 || t.State == muster.Queued {
		v.attempts, err = server.Attempts(ctx, t.ID)
	}
	return err
}

// formatParams lists the values of a job's parameters.
func formatParams(params map[string]muster.Param) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(params)) {
		p := params[name]
		value := p.Value
		if value == nil {
			value = p.Default
		}
		all = append(all, name+"="+strings.Trim(string(value), `"`))
	}
	return strings.Join(all, " ")
}

func (a *runner) drawJob(v jobView, wide bool) error {
	now := time.Now()
	f := app.Details{App: a.App}
	f.Add("job", v.ID.String())
	f.Add("name", v.Name)
	f.Add("project", v.Project)
	state := app.JobStateText(&v.Job)
	f.AddPainted("state", app.StateStyle(state), state)
	f.Add("priority", strconv.Itoa(v.Priority))
	owner := term.Sanitize(cmp.Or(v.OwnerName, v.Owner))
	if v.OwnerName != "" && wide {
		owner += " (" + v.Owner + ")"
	}
	f.Add("owner", owner)
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(v.Labels)) {
		labels = append(labels, name+"="+v.Labels[name])
	}
	if v.Spec != nil && len(v.Spec.Tasks) > 0 {
		f.Add("signed by", term.Sanitize(v.Spec.Tasks[0].SignedBy))
	}
	f.Add("labels", strings.Join(labels, " "))
	if v.Spec != nil {
		f.Add("params", formatParams(v.Spec.Params))
	}
	f.Add("created", app.FormatPast(v.CreatedAt, now))
	if v.StartedAt != 0 {
		f.Add("queued", "for "+term.FormatDuration(v.StartedAt.Sub(v.CreatedAt).Std()))
	}
	f.Add("started", app.FormatTime(v.StartedAt))
	f.Add("finished", app.FormatTime(v.FinishedAt))
	f.Add("took", app.Elapsed(v.StartedAt, v.FinishedAt, now))
	f.Add("kept since", app.FormatPast(v.KeptAt, now))
	f.Add("logs deleted", app.FormatPast(v.LogsRemovedAt, now))
	f.Add("artifacts deleted", app.FormatPast(v.ArtifactsRemovedAt, now))
	f.Add("cost", usage.FormatCost(&muster.Usage{Cost: v.Cost}))
	if v.task != nil {
		addTaskDetails(&f, &v, now)
		return f.Draw()
	}
	f.Add("progress", app.JobProgress(&v.Job))
	if v.Spec != nil && len(v.Groups) == 1 && len(v.Spec.Tasks) == 1 {
		addSpecDetails(&f, &v.Spec.Tasks[0])
	}
	if err := f.Draw(); err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	if err := v.drawStages(a.App, wide, now); err != nil || !wide || v.Spec == nil || len(v.Groups) < 2 {
		return err
	}
	for i := range v.Spec.Tasks {
		f := app.Details{App: a.App}
		f.Add("stage", v.Spec.Tasks[i].Name)
		f.Add("kind", v.Spec.Tasks[i].Kind)
		addSpecDetails(&f, &v.Spec.Tasks[i])
		fmt.Fprintln(a.Out)
		if err := f.Draw(); err != nil {
			return err
		}
	}
	return nil
}

// drawStages draws the table of stages.
func (v *jobView) drawStages(a *app.App, wide bool, now time.Time) error {
	table := term.NewTable(
		term.Column{Title: "STAGE"}, term.Column{Title: "NEEDS"}, term.Column{Title: "TASKS", NoTruncate: true}, term.Column{Title: "STATE", NoTruncate: true, Style: app.StateStyle},
		term.Column{Title: "DONE", AlignRight: true, NoTruncate: true}, term.Column{Title: "COUNTS"}, term.Column{Title: "TOOK", AlignRight: true}, term.Column{Title: "IMAGE"}, term.Column{Title: "COMMAND"},
	)
	for _, g := range v.Groups {
		span := remote.Selector{Job: v.ID, Spans: []client.Span{{First: g.First, Last: g.First + g.Size - 1}}}
		needs, command := "", ""
		if v.Spec != nil && g.Index < len(v.Spec.Tasks) && len(v.Groups) > 1 {
			t := &v.Spec.Tasks[g.Index]
			needs, command = strings.Join(t.Needs, ","), formatCommand(t)
		}
		tasks, done := span.String(), fmt.Sprintf("%d/%d", g.Counts.Finished(), g.Size)
		if g.Unsized {
			tasks, done = tasks+"-?", "0/?"
		}
		table.AddRow(g.Name, needs, tasks, g.Counts.StageState(), done, app.FormatCounts(g.Counts, wide),
			app.Elapsed(g.StartedAt, g.FinishedAt, now), app.ShortImage(app.TaskImage(&muster.Task{Group: g.Index}, v.Spec)), command)
	}
	return table.Draw(a.Out)
}

// addTaskDetails adds the details of a job's only task.
func addTaskDetails(f *app.Details, v *jobView, now time.Time) {
	t := v.task
	f.Add("task", app.TaskAddress(&v.Job, t.ID))
	f.Add("kind", t.Kind)
	f.Add("image", app.TaskImage(t, v.Spec))
	if v.Spec != nil && t.Group < len(v.Spec.Tasks) {
		addSpecDetails(f, &v.Spec.Tasks[t.Group])
	}
	f.Add("result of", origin(t))
	if t.Cached {
		f.Add("cached", "yes")
	}
	f.Add("worker", term.Sanitize(app.WorkerName(t.Worker, t.WorkerName)))
	for i := range v.attempts {
		f.Add(fmt.Sprintf("attempt %d", v.attempts[i].ID.N), app.FormatAttempt(&v.attempts[i], now))
	}
	f.Add("progress", app.TaskProgress(t))
	f.Add("step", term.Sanitize(app.TaskStep(t)))
	f.Add("metrics", term.Sanitize(app.FormatMetrics(t.Metrics)))
	f.Add("reason", string(t.Reason))
	f.AddLines("message", app.LocalTimes(t.Message))
	if t.ExitCode != nil {
		f.Add("exit code", strconv.Itoa(*t.ExitCode))
	}
	if t.Usage != nil {
		usage.AddDetails(f, t.Usage)
	}
	if len(t.Result) > 0 {
		f.Add("result", term.Sanitize(string(t.Result)))
	}
	for _, art := range t.Artifacts {
		f.Add("artifact", fmt.Sprintf("%s (%s)", term.Sanitize(art.Name), muster.Size(art.Size)))
	}
}

// origin returns the task whose result a task has, or "".
func origin(t *muster.Task) string {
	if t.Origin == (muster.TaskID{}) {
		return ""
	}
	return t.Origin.String()
}

// lateReports prints the reports that arrived after their attempt was lost.
func (a *runner) lateReports(ctx context.Context, c *jobConfig, server *client.Client, ids []muster.JobID) error {
	l := app.Listing[muster.LateReport]{
		OutputOptions: c.OutputOptions,
		ID:            func(r muster.LateReport) string { return r.Attempt.String() },
		Columns:       []term.Column{{Title: "ATTEMPT", NoTruncate: true}, {Title: "WORKER"}, {Title: "OUTCOME", NoTruncate: true}, {Title: "REASON"}, {Title: "ARRIVED", AlignRight: true, NoTruncate: true}, {Title: "MESSAGE"}},
		Row: func(r muster.LateReport, now time.Time) []string {
			return []string{r.Attempt.String(), app.WorkerName(r.Worker, r.WorkerName), string(r.Outcome), string(r.Reason), app.Age(r.At, now), app.Headline(r.Message)}
		},
		EmptyMessage: "no late reports",
		Rows: func(yield func(muster.LateReport, error) bool) {
			for _, id := range ids {
				list, err := server.LateReports(ctx, id)
				if err != nil {
					yield(muster.LateReport{}, err)
					return
				}
				for _, r := range list {
					if !yield(r, nil) {
						return
					}
				}
			}
		},
	}
	return l.Write(a.App)
}
