package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

type jobConfig struct {
	remote
	format
}

func (c *jobConfig) flags() []cli.Flag { return slices.Concat(c.format.flags(), c.remote.flags()) }

func (a *app) jobCommand() *cli.Command {
	c := &jobConfig{}
	return a.command(command{
		name: "job", usage: "show jobs in detail, with their stages", args: "JOB…", category: watch, flags: c.flags(),
		about: "With -o json or yaml one job is written as an object and several as a list.",
		run:   func(ctx context.Context, args []string) error { return a.job(ctx, c, args) },
	})
}

// jobView is a job with its only task, if it has just one: what people look at.
type jobView struct {
	muster.Job
	task *muster.Task
}

func (a *app) job(ctx context.Context, c *jobConfig, args []string) error {
	server, err := c.connect()
	if err != nil {
		return err
	}
	ids, err := jobsOf(ctx, server, args)
	if err != nil {
		return err
	}
	views := make([]jobView, len(ids))
	for i, id := range ids {
		if views[i].Job, err = server.Job(ctx, id); err != nil {
			return err
		}
		if views[i].Counts.Total() == 1 && c.people() {
			if views[i].task, err = onlyTask(ctx, server, id); err != nil {
				return err
			}
		}
	}
	return showSome(a, c.format, views, func(v jobView) string { return v.ID.String() }, func(v jobView) error { return a.drawJob(v, c.wide()) })
}

func onlyTask(ctx context.Context, server *client.Client, id muster.JobID) (*muster.Task, error) {
	t, err := server.Task(ctx, muster.TaskID{Job: id})
	return &t, err
}

func (a *app) drawJob(v jobView, wide bool) error {
	now := time.Now()
	f := facts{app: a}
	f.add("job", v.ID.String())
	f.add("name", v.Name)
	f.add("project", v.Project)
	f.add("state", a.out.Paint(stateStyle(string(v.State)), string(v.State)))
	f.add("priority", strconv.Itoa(v.Priority))
	f.add("owner", v.Owner)
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(v.Labels)) {
		labels = append(labels, name+"="+v.Labels[name])
	}
	f.add("labels", strings.Join(labels, " "))
	f.add("created", since(v.CreatedAt, now))
	f.add("took", took(v.StartedAt, v.FinishedAt, now))
	if v.task != nil {
		f.task(v.task)
		return f.draw()
	}
	if err := f.draw(); err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	table := term.NewTable(
		term.Column{Title: "STAGE"}, term.Column{Title: "TASKS", Whole: true}, term.Column{Title: "STATE", Whole: true, Style: stateStyle},
		term.Column{Title: "DONE", Right: true, Whole: true}, term.Column{Title: "COUNTS"},
	)
	for _, g := range v.Groups {
		span := selector{Job: v.ID, Spans: []client.Span{{First: g.First, Last: g.First + g.Size - 1}}}
		table.Row(g.Name, span.String(), string(g.Counts.State()), fmt.Sprintf("%d/%d", g.Counts.Finished(), g.Size), counts(g.Counts, wide))
	}
	return table.Draw(a.out)
}

// counts says how many tasks are in which state, leaving out what is 0 unless
// all is asked for.
func counts(c muster.Counts, all bool) string {
	var parts []string
	for _, s := range muster.TaskStates {
		if c[s] > 0 || all {
			parts = append(parts, fmt.Sprintf("%d %s", c[s], s))
		}
	}
	return strings.Join(parts, ", ")
}

func since(t muster.Time, now time.Time) string {
	if t == 0 {
		return ""
	}
	return fmt.Sprintf("%s ago (%s)", term.Age(now.Sub(t.Std())), t)
}

// facts is a list of names and values, one on each line. Empty values are left
// out.
type facts struct {
	app   *app
	names []string
	texts []string
}

func (f *facts) add(name, text string) {
	if text != "" {
		f.names = append(f.names, name)
		f.texts = append(f.texts, text)
	}
}

// task adds what there is to know of one task.
func (f *facts) task(t *muster.Task) {
	f.add("task", t.ID.String())
	f.add("kind", t.Kind)
	f.add("worker", term.Clean(string(t.Worker)))
	if t.Attempt > 1 {
		f.add("attempt", strconv.Itoa(t.Attempt))
	}
	if t.Progress != nil {
		f.add("progress", term.Percent(*t.Progress))
	}
	f.add("step", term.Clean(t.Step))
	f.add("metrics", term.Clean(metrics(t.Metrics)))
	f.add("reason", string(t.Reason))
	f.add("message", term.Clean(t.Message))
	if t.ExitCode != nil {
		f.add("exit code", strconv.Itoa(*t.ExitCode))
	}
	if t.Usage != nil {
		f.add("used", fmt.Sprintf("%.2f cores, %s memory", t.Usage.CPUAvg, t.Usage.MemoryPeak))
	}
	if len(t.Result) > 0 {
		f.add("result", term.Clean(string(t.Result)))
	}
	for _, art := range t.Artifacts {
		f.add("artifact", fmt.Sprintf("%s (%s)", term.Clean(art.Name), muster.Size(art.Size)))
	}
}

func (f *facts) draw() error {
	width := 0
	for _, name := range f.names {
		width = max(width, len(name))
	}
	for i, name := range f.names {
		text := f.texts[i]
		if !strings.Contains(text, "\x1b") { // only what is short is painted
			text = term.Fit(term.Clean(text), max(f.app.out.Width-width-2, 0))
		}
		if err := write(f.app.out, fmt.Appendf(nil, "%s  %s\n", f.app.out.Paint(term.Bold, fmt.Sprintf("%-*s", width, name)), text)); err != nil {
			return err
		}
	}
	return nil
}
