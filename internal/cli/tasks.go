package cli

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

type tasksConfig struct {
	remote
	format
	all    bool
	states []string
	limit  int
}

const taskRows = 200 // of a table, if nothing else is asked for

func (c *tasksConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		option{name: "all", short: "a", usage: "list every task"}.on(&c.all),
		option{name: "state", usage: "only tasks in these `STATES`, such as running or failed"}.list(&c.states),
		option{name: "limit", usage: fmt.Sprintf("list at most `N` tasks (default: %d in a table, else all)", taskRows)}.number(&c.limit, 1, math.MaxInt32),
	}, c.format.flags(), c.remote.flags())
}

func (a *app) tasksCommand() *cli.Command {
	c := &tasksConfig{}
	return a.command(command{
		name: "tasks", usage: "list the tasks of jobs", args: "JOB|TASK…", category: watch, flags: c.flags(),
		run: func(ctx context.Context, args []string) error { return a.tasks(ctx, c, args) },
	})
}

func (a *app) tasks(ctx context.Context, c *tasksConfig, args []string) error {
	states, err := taskStates(c.states)
	if err != nil {
		return err
	}
	server, err := c.connect()
	if err != nil {
		return err
	}
	sels, err := selection(ctx, server, args)
	if err != nil {
		return err
	}
	limit := c.limit
	if limit == 0 && !c.all && c.people() {
		limit = taskRows
	}
	now := time.Now()
	l := listing[muster.Task]{
		format: c.format,
		limit:  limit,
		id:     func(t muster.Task) string { return t.ID.String() },
		table:  term.NewTable(taskColumns(c.wide())...),
		row:    func(t muster.Task) []string { return taskRow(t, now) },
		empty:  "no tasks match",
		more:   "there are more tasks: --all lists every one, --limit and --state choose",
		rows:   tasksOf(ctx, server, sels, states),
	}
	return l.write(a)
}

// tasksOf lists the tasks that the selectors name, in any state if states is
// empty. A selector for which there is no task at all is an error.
func tasksOf(ctx context.Context, server *client.Client, sels []selector, states []muster.TaskState) iter.Seq2[muster.Task, error] {
	return func(yield func(muster.Task, error) bool) {
		for _, sel := range sels {
			n := 0
			rows := server.Tasks(ctx, sel.Job, client.TaskQuery{Spans: sel.Spans, States: states, Page: 1000})
			counted := func(t muster.Task, err error) bool {
				n++
				return yield(t, err)
			}
			if !pass(rows, counted) {
				return
			}
			if n == 0 && len(states) == 0 {
				yield(muster.Task{}, muster.Errorf(muster.NotFound, "there is no task %s: muster job %d says how many tasks the job has", sel, sel.Job))
				return
			}
		}
	}
}

func taskStates(names []string) ([]muster.TaskState, error) {
	states := make([]muster.TaskState, len(names))
	for i, name := range names {
		if err := states[i].UnmarshalText([]byte(name)); err != nil {
			return nil, muster.Errorf(muster.Invalid, "%q is no state of a task: write one of %s", name, words(muster.TaskStates))
		}
	}
	return states, nil
}

// words lists names with commas.
func words[T any](all []T) string {
	parts := make([]string, len(all))
	for i, v := range all {
		parts[i] = fmt.Sprint(v)
	}
	return strings.Join(parts, ", ")
}

func taskColumns(wide bool) []term.Column {
	columns := []term.Column{
		{Title: "TASK", Whole: true},
		{Title: "NAME"},
		{Title: "ELEMENT"},
		{Title: "STATE", Whole: true, Style: stateStyle},
		{Title: "DONE", Right: true, Whole: true},
		{Title: "TRY", Right: true, Whole: true},
		{Title: "WORKER"},
		{Title: "TOOK", Right: true, Whole: true},
		{Title: "NOTE"},
	}
	if wide {
		columns = append(columns, term.Column{Title: "KIND"}, term.Column{Title: "METRICS"}, term.Column{Title: "CREATED"}, term.Column{Title: "STARTED"}, term.Column{Title: "FINISHED"})
	}
	return columns
}

func taskRow(t muster.Task, now time.Time) []string {
	done, try := "", ""
	if t.Progress != nil {
		done = term.Percent(*t.Progress)
	}
	if t.Attempt > 1 {
		try = strconv.Itoa(t.Attempt)
	}
	return []string{
		t.ID.String(), t.Name, t.Element, t.State.String(), done, try, string(t.Worker),
		took(t.StartedAt, t.FinishedAt, now), taskNote(&t), t.Kind, metrics(t.Metrics),
		t.CreatedAt.String(), t.StartedAt.String(), t.FinishedAt.String(),
	}
}

// taskNote is what a person wants to know next: why it failed, or what it does.
func taskNote(t *muster.Task) string {
	switch {
	case t.State == muster.Succeeded:
		return ""
	case t.Message != "":
		return t.Message
	case t.Reason == muster.ExitCode && t.ExitCode != nil:
		return fmt.Sprintf("exit code %d", *t.ExitCode)
	case t.Reason != muster.NoReason:
		return string(t.Reason)
	default:
		return t.Step
	}
}

func metrics(m map[string]float64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, name+"="+strconv.FormatFloat(m[name], 'g', 4, 64))
	}
	return strings.Join(parts, " ")
}
