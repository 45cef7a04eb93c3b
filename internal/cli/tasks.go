package cli

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/cli/usage"
	"github.com/muster-dev/muster/internal/cli/watch"
	"github.com/muster-dev/muster/internal/client"
)

type tasksConfig struct {
	remote.QueryOptions
	all    bool
	states []string
	failed bool
	sort   []string
	limit  int
	watch  bool
}

var taskFields = []sortField[muster.Task]{
	{"id", compareTaskIDs},
	by("took", func(t *muster.Task) muster.Duration { return tookSoFar(t.StartedAt, t.FinishedAt) }),
	by("worker", func(t *muster.Task) string { return app.WorkerName(t.Worker, t.WorkerName) }),
	by("state", func(t *muster.Task) int { return slices.Index(muster.TaskStates[:], t.State) }),
}

func compareTaskIDs(a, b *muster.Task) int {
	return cmp.Or(cmp.Compare(a.ID.Job, b.ID.Job), cmp.Compare(a.ID.Num, b.ID.Num))
}

const defaultTaskRows = 200 // limit of a table

func (a *runner) tasksCommand() *cli.Command {
	c := &tasksConfig{}
	return a.NewCommand(app.Command{
		Name: "tasks", Usage: "List the tasks of jobs", Args: "JOB|TASK…", Complete: c.CompleteSelectors(), Category: app.CategoryWatch,
		Flags: c.Flags(
			app.Option{Name: "all", Short: "a", Usage: "List all tasks"}.BoolVar(&c.all),
			app.Option{Name: "state", Usage: "Only tasks in these states, such as running or failed", Complete: app.States(muster.TaskStates).List()}.ListVar(&c.states),
			app.Option{Name: "failed", Usage: "Only tasks that failed or timed out"}.BoolVar(&c.failed),
			app.Option{Name: "sort", Value: "fields", Usage: "Sort by these fields, with - before a field to reverse it: " + sortNames(taskFields), Complete: completeSort(taskFields)}.ListVar(&c.sort),
			app.Option{Name: "limit", Usage: fmt.Sprintf("Maximum number of tasks (default: %d in a table, else unlimited)", defaultTaskRows)}.IntVar(&c.limit, 1, math.MaxInt32),
			watch.Flag(&c.watch)),
		Run: func(ctx context.Context, args []string) error { return a.tasks(ctx, c, args) },
	})
}

func (a *runner) tasks(ctx context.Context, c *tasksConfig, args []string) error {
	if c.failed && len(c.states) > 0 {
		return muster.Errorf(muster.Invalid, "--failed and --state are mutually exclusive: use --state failed,timed_out and others")
	}
	if c.watch && len(c.sort) > 0 {
		return muster.Errorf(muster.Invalid, "--sort and --watch are mutually exclusive: use muster top, which sorts with s")
	}
	order, err := parseSort(c.sort, taskFields)
	if err != nil {
		return err
	}
	states, err := taskStates(c.states)
	if err != nil {
		return err
	}
	if c.failed {
		states = []muster.TaskState{muster.Failed, muster.TimedOut}
	}
	server, err := watch.Connect(&c.ServerOptions, c.watch)
	if err != nil {
		return err
	}
	sels, err := remote.ResolveSelectors(ctx, server, args)
	if err != nil {
		return err
	}
	var jobs remote.TaskJobs
	if c.Human() {
		if jobs, err = remote.LoadTaskJobs(ctx, server, sels); err != nil {
			return err
		}
	}
	limit := c.limit
	if limit == 0 && !c.all && c.Human() {
		limit = defaultTaskRows
	}
	events := client.EventQuery{Types: []muster.EventType{muster.EventTask}}
	if slices.IndexFunc(sels, func(s remote.Selector) bool { return s.Job != sels[0].Job }) < 0 {
		events.Job = sels[0].Job
	}
	l := watch.List[muster.Task]{
		Listing: app.Listing[muster.Task]{
			OutputOptions: c.OutputOptions, Limit: limit, DefaultLimit: c.limit == 0, Columns: taskColumns(c.Wide()), EmptyMessage: "no tasks match",
			ID:               func(t muster.Task) string { return t.ID.String() },
			Row:              func(t muster.Task, now time.Time) []string { return taskRow(t, jobs[t.Job], now) },
			TruncatedMessage: "more tasks are not shown: use --all, --limit or --state",
		},
		Watch: c.watch, Normalize: watch.Identity[muster.Task], Events: events,
		Fetch: func(ctx context.Context, limit int) iter.Seq2[muster.Task, error] {
			if order != nil {
				limit = 0 // all are read
			}
			return sorted(ctx, remote.TasksPage(ctx, server, sels, states, limit), order, "select fewer, or use --state")
		},
		FetchChanged: func(ctx context.Context, b live.Batch) iter.Seq2[muster.Task, error] {
			return changedTasks(ctx, server, b, sels, states)
		},
	}
	return l.Run(ctx, a.App, server)
}

// changedTasks yields the selected tasks of a batch.
func changedTasks(ctx context.Context, server *client.Client, b live.Batch, sels []remote.Selector, states []muster.TaskState) iter.Seq2[muster.Task, error] {
	spans := map[muster.JobID][]client.Span{}
	for _, e := range b.Events {
		if slices.ContainsFunc(sels, func(s remote.Selector) bool { return s.Contains(e.Task) }) {
			spans[e.Task.Job] = append(spans[e.Task.Job], client.Span{First: e.Task.Num, Last: e.Task.Num})
		}
	}
	return func(yield func(muster.Task, error) bool) {
		for _, job := range slices.Sorted(maps.Keys(spans)) {
			for chunk := range slices.Chunk(spans[job], 500) { // in one URL
				slices.SortFunc(chunk, func(a, b client.Span) int { return a.First - b.First })
				if !remote.YieldAll(server.Tasks(ctx, job, client.TaskQuery{States: states, Spans: chunk, Page: len(chunk)}), yield) {
					return
				}
			}
		}
	}
}

func taskStates(names []string) ([]muster.TaskState, error) {
	states := make([]muster.TaskState, len(names))
	for i, name := range names {
		if err := states[i].UnmarshalText([]byte(name)); err != nil {
			return nil, muster.Errorf(muster.Invalid, "unknown state %q: use one of %s", name, app.JoinComma(muster.TaskStates))
		}
	}
	return states, nil
}

func taskColumns(wide bool) []term.Column {
	columns := []term.Column{
		{Title: "TASK", NoTruncate: true},
		{Title: "NAME"},
		{Title: "ELEMENT"},
		{Title: "STATE", NoTruncate: true, Style: app.StateStyle},
		{Title: "DONE", AlignRight: true, NoTruncate: true},
		{Title: "TRY", AlignRight: true, NoTruncate: true},
		{Title: "WORKER"},
		{Title: "TOOK", AlignRight: true, NoTruncate: true},
		{Title: "NOTE"},
	}
	if wide {
		columns = append(columns, term.Column{Title: "KIND"}, term.Column{Title: "IMAGE", NoTruncate: true}, term.Column{Title: "METRICS"}, term.Column{Title: "RESULT OF"}, term.Column{Title: "CREATED"}, term.Column{Title: "STARTED"}, term.Column{Title: "FINISHED"})
		columns = append(columns, usage.Columns()...)
	}
	return columns
}

func taskRow(t muster.Task, job *muster.Job, now time.Time) []string {
	try := ""
	if t.Attempt > 1 {
		try = strconv.Itoa(t.Attempt)
	}
	return append([]string{
		app.TaskAddress(job, t.ID), t.Name, t.Element, t.State.String(), app.TaskProgress(&t), try, app.WorkerName(t.Worker, t.WorkerName),
		app.Elapsed(t.StartedAt, t.FinishedAt, now), app.TaskNote(&t), t.Kind, app.ShortImage(app.TaskImage(&t, job.Spec)), app.FormatMetrics(t.Metrics), origin(&t),
		app.FormatTime(t.CreatedAt), app.FormatTime(t.StartedAt), app.FormatTime(t.FinishedAt),
	}, usage.Cells(t.Usage)...)
}
