package cli

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

type psConfig struct {
	remote
	format
	all     bool
	states  []string
	project string
	name    string
	labels  map[string]string
	limit   int
}

const psRows = 50 // of a table, if nothing else is asked for

func (c *psConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		option{name: "all", short: "a", usage: "list every job"}.on(&c.all),
		option{name: "state", usage: "only jobs in these `STATES`: waiting, queued, running, succeeded, failed, timed_out, cancelled"}.list(&c.states),
		option{name: "project", short: "p", usage: "only jobs of this `PROJECT`"}.variable().text(&c.project),
		option{name: "name", usage: "only jobs with this `TEXT` in their name"}.text(&c.name),
		option{name: "label", usage: "only jobs with this label, `NAME=VALUE`; may be repeated"}.pairs(&c.labels),
		option{name: "limit", usage: fmt.Sprintf("list at most `N` jobs (default: %d in a table, else all)", psRows)}.number(&c.limit, 1, math.MaxInt32),
	}, c.format.flags(), c.remote.flags())
}

func (a *app) psCommand() *cli.Command {
	c := &psConfig{}
	return a.command(command{
		name: "ps", usage: "list jobs: those that go on, then those that ended, newest first", category: watch, flags: c.flags(),
		run: func(ctx context.Context, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			return a.ps(ctx, c)
		},
	})
}

func (a *app) ps(ctx context.Context, c *psConfig) error {
	live, ended, err := jobStates(c.states)
	if err != nil {
		return err
	}
	server, err := c.connect()
	if err != nil {
		return err
	}
	limit := c.limit
	if limit == 0 && !c.all && c.people() {
		limit = psRows
	}
	query := client.JobQuery{Project: c.project, Name: c.name, Labels: c.labels}
	if limit > 0 {
		query.Page = limit + 1
	}
	now := time.Now()
	l := listing[muster.Job]{
		format: c.format,
		limit:  limit,
		id:     func(j muster.Job) string { return j.ID.String() },
		table:  term.NewTable(jobColumns(c.wide())...),
		row:    func(j muster.Job) []string { return jobRow(j, now) },
		empty:  "no jobs: submit one with muster run or muster submit",
		more:   "there are more jobs: --all lists every one, --limit and --state choose",
		rows: func(yield func(muster.Job, error) bool) {
			for _, states := range [][]muster.JobState{live, ended} {
				q := query
				q.States = states
				if len(states) > 0 && !pass(server.Jobs(ctx, q), yield) {
					return
				}
			}
		},
	}
	return l.write(a)
}

// pass yields what seq yields and reports whether more is wanted.
func pass[T any](seq iter.Seq2[T, error], yield func(T, error) bool) bool {
	for v, err := range seq {
		if !yield(v, err) || err != nil {
			return false
		}
	}
	return true
}

// jobStates splits the states that are asked for, all if none is, into those of
// jobs that go on and of jobs that ended.
func jobStates(names []string) (live, ended []muster.JobState, err error) {
	for _, s := range muster.JobStates {
		switch {
		case len(names) > 0 && !slices.Contains(names, string(s)):
		case s.Final():
			ended = append(ended, s)
		default:
			live = append(live, s)
		}
	}
	for _, name := range names {
		if !slices.Contains(muster.JobStates, muster.JobState(name)) {
			return nil, nil, muster.Errorf(muster.Invalid, "%q is no state of a job: write one of %s", name, words(muster.JobStates))
		}
	}
	return live, ended, nil
}

func jobColumns(wide bool) []term.Column {
	columns := []term.Column{
		{Title: "JOB", Right: true, Whole: true},
		{Title: "NAME"},
		{Title: "STATE", Whole: true, Style: stateStyle},
		{Title: "TASKS", Right: true, Whole: true},
		{Title: "FAILED", Right: true, Whole: true, Style: func(string) term.Style { return term.Red }},
		{Title: "TOOK", Right: true, Whole: true},
		{Title: "AGE", Right: true, Whole: true},
		{Title: "PROJECT"},
	}
	if wide {
		columns = append(columns, term.Column{Title: "KIND"}, term.Column{Title: "PRIORITY", Right: true}, term.Column{Title: "OWNER"}, term.Column{Title: "CREATED"})
	}
	return columns
}

func jobRow(j muster.Job, now time.Time) []string {
	failed := ""
	if n := j.Counts[muster.Failed] + j.Counts[muster.TimedOut]; n > 0 {
		failed = strconv.FormatInt(n, 10)
	}
	return []string{
		j.ID.String(), j.Name, string(j.State),
		fmt.Sprintf("%d/%d", j.Counts.Finished(), j.Counts.Total()), failed,
		took(j.StartedAt, j.FinishedAt, now), age(j.CreatedAt, now), j.Project,
		j.Kind, strconv.Itoa(j.Priority), j.Owner, j.CreatedAt.String(),
	}
}

// took says how long something has gone on, or went on if it has ended.
func took(from, to muster.Time, now time.Time) string {
	switch {
	case from == 0:
		return ""
	case to == 0:
		return term.Elapsed(now.Sub(from.Std()))
	default:
		return term.Elapsed(to.Sub(from).Std())
	}
}

func age(t muster.Time, now time.Time) string {
	if t == 0 {
		return ""
	}
	return term.Age(now.Sub(t.Std()))
}
