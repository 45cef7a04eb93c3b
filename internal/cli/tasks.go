package cli

import (
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
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/cli/usage"
	"github.com/muster-dev/muster/internal/cli/watch"
	"github.com/muster-dev/muster/internal/client"
)

type tasksConfig struct {
	remote.Remote
	frame.Format
	all    bool
	states []string
	limit  int
	watch  bool
}

const taskRows = 200 // of a table, if nothing else is asked for

func (c *tasksConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		frame.Option{Name: "all", Short: "a", Usage: "list every task"}.On(&c.all),
		frame.Option{Name: "state", Usage: "only tasks in these `STATES`, such as running or failed"}.List(&c.states),
		frame.Option{Name: "limit", Usage: fmt.Sprintf("list at most `N` tasks (default: %d in a table, else all)", taskRows)}.Number(&c.limit, 1, math.MaxInt32),
		watch.Flag(&c.watch),
	}, c.Format.Flags(), c.Remote.Flags())
}

func (a *app) tasksCommand() *cli.Command {
	c := &tasksConfig{}
	return a.Command(frame.Command{
		Name: "tasks", Usage: "list the tasks of jobs", Args: "JOB|TASK…", Category: frame.Watch, Flags: c.flags(),
		Run: func(ctx context.Context, args []string) error { return a.tasks(ctx, c, args) },
	})
}

func (a *app) tasks(ctx context.Context, c *tasksConfig, args []string) error {
	states, err := taskStates(c.states)
	if err != nil {
		return err
	}
	connect := c.Connect
	if c.watch {
		connect = func() (*client.Client, error) { return live.Connect(&c.Remote) }
	}
	server, err := connect()
	if err != nil {
		return err
	}
	sels, err := remote.Selection(ctx, server, args)
	if err != nil {
		return err
	}
	specs := map[muster.JobID]*muster.Spec{}
	if c.Wide() {
		for _, sel := range sels { // what tasks ask for stands in their jobs
			job, err := server.Job(ctx, sel.Job)
			if err != nil {
				return err
			}
			specs[sel.Job] = job.Spec
		}
	}
	limit := c.limit
	if limit == 0 && !c.all && c.People() {
		limit = taskRows
	}
	if c.watch {
		return a.watchTasks(ctx, c, server, sels, states, specs, limit)
	}
	now := time.Now()
	l := frame.Listing[muster.Task]{
		Format: c.Format,
		Limit:  limit,
		ID:     func(t muster.Task) string { return t.ID.String() },
		Table:  term.NewTable(taskColumns(c.Wide())...),
		Row:    func(t muster.Task) []string { return taskRow(t, specs[t.Job], now) },
		Empty:  "no tasks match",
		More:   "there are more tasks: --all lists every one, --limit and --state choose",
		Rows:   remote.TasksOf(ctx, server, sels, states),
	}
	return l.Write(a.App)
}

// watchTasks shows the tasks and each change of them.
func (a *app) watchTasks(ctx context.Context, c *tasksConfig, server *client.Client, sels []remote.Selector, states []muster.TaskState, specs map[muster.JobID]*muster.Spec, limit int) error {
	query := client.EventQuery{Types: []muster.EventType{muster.EventTask}}
	if slices.IndexFunc(sels, func(s remote.Selector) bool { return s.Job != sels[0].Job }) < 0 {
		query.Job = sels[0].Job
	}
	rows := watch.Rows[muster.Task]{
		Format:  c.Format,
		Columns: taskColumns(c.Wide()),
		Row:     func(t muster.Task, now time.Time) []string { return taskRow(t, specs[t.Job], now) },
		ID:      func(t muster.Task) string { return t.ID.String() },
		Stable:  watch.Unchanged[muster.Task],
		Empty:   "no tasks match",
		Events:  query,
		All: func(ctx context.Context, most int) iter.Seq2[muster.Task, error] {
			most = watch.Fewer(limit, most)
			return watch.First(remote.TasksOfPage(ctx, server, sels, states, most), most)
		},
		Some: func(ctx context.Context, b live.Batch) iter.Seq2[muster.Task, error] {
			return changedTasks(ctx, server, b, sels, states)
		},
	}
	return rows.Run(ctx, a.App, server)
}

// changedTasks lists the tasks of a batch that are asked for.
func changedTasks(ctx context.Context, server *client.Client, b live.Batch, sels []remote.Selector, states []muster.TaskState) iter.Seq2[muster.Task, error] {
	spans := map[muster.JobID][]client.Span{}
	for _, e := range b.Events {
		if slices.ContainsFunc(sels, func(s remote.Selector) bool { return s.Has(e.Task) }) {
			spans[e.Task.Job] = append(spans[e.Task.Job], client.Span{First: e.Task.Num, Last: e.Task.Num})
		}
	}
	return func(yield func(muster.Task, error) bool) {
		for _, job := range slices.Sorted(maps.Keys(spans)) {
			for some := range slices.Chunk(spans[job], 500) { // in one URL
				slices.SortFunc(some, func(a, b client.Span) int { return a.First - b.First })
				if !remote.Pass(server.Tasks(ctx, job, client.TaskQuery{States: states, Spans: some, Page: len(some)}), yield) {
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
			return nil, muster.Errorf(muster.Invalid, "%q is no state of a task: write one of %s", name, frame.Words(muster.TaskStates))
		}
	}
	return states, nil
}

func taskColumns(wide bool) []term.Column {
	columns := []term.Column{
		{Title: "TASK", Whole: true},
		{Title: "NAME"},
		{Title: "ELEMENT"},
		{Title: "STATE", Whole: true, Style: frame.StateStyle},
		{Title: "DONE", Right: true, Whole: true},
		{Title: "TRY", Right: true, Whole: true},
		{Title: "WORKER"},
		{Title: "TOOK", Right: true, Whole: true},
		{Title: "NOTE"},
	}
	if wide {
		columns = append(columns, term.Column{Title: "KIND"}, term.Column{Title: "IMAGE", Whole: true}, term.Column{Title: "METRICS"}, term.Column{Title: "CREATED"}, term.Column{Title: "STARTED"}, term.Column{Title: "FINISHED"})
		columns = append(columns, usage.Columns()...)
	}
	return columns
}

func taskRow(t muster.Task, spec *muster.Spec, now time.Time) []string {
	try := ""
	if t.Attempt > 1 {
		try = strconv.Itoa(t.Attempt)
	}
	return append([]string{
		t.ID.String(), t.Name, t.Element, t.State.String(), frame.Done(&t), try, string(t.Worker),
		frame.Took(t.StartedAt, t.FinishedAt, now), frame.TaskNote(&t), t.Kind, frame.Image(frame.ImageOf(&t, spec)), frame.Metrics(t.Metrics),
		t.CreatedAt.String(), t.StartedAt.String(), t.FinishedAt.String(),
	}, usage.Cells(t.Usage)...)
}
