package cli

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/cli/watch"
	"github.com/muster-dev/muster/internal/client"
)

type psConfig struct {
	remote.QueryOptions
	all     bool
	states  []string
	project string
	name    string
	labels  map[string]string
	kind    string
	since   muster.Time
	until   muster.Time
	failed  bool
	own     bool
	owner   string // id of the caller's key, with own
	sort    []string
	limit   int
	watch   bool
}

var jobFields = []sortField[muster.Job]{
	by("id", func(j *muster.Job) muster.JobID { return j.ID }),
	by("name", func(j *muster.Job) string { return j.Name }),
	by("state", func(j *muster.Job) int { return slices.Index(muster.JobStates, j.State) }),
	by("created", func(j *muster.Job) muster.Time { return j.CreatedAt }),
	by("started", func(j *muster.Job) muster.Time { return j.StartedAt }),
	by("took", func(j *muster.Job) muster.Duration { return tookSoFar(j.StartedAt, j.FinishedAt) }),
	by("tasks", func(j *muster.Job) int64 { return j.Counts.Total() }),
	by("failed", func(j *muster.Job) int64 { return j.Counts[muster.Failed] + j.Counts[muster.TimedOut] }),
	by("priority", func(j *muster.Job) int { return j.Priority }),
	by("project", func(j *muster.Job) string { return j.Project }),
}

// tookSoFar returns the time from a start to an end, or to now; -1 before the start.
func tookSoFar(from, to muster.Time) muster.Duration {
	switch {
	case from == 0:
		return -1
	case to == 0:
		return muster.NewTime(time.Now()).Sub(from)
	default:
		return to.Sub(from)
	}
}

const defaultJobRows = 50 // limit of a table

func (a *runner) psCommand() *cli.Command {
	c := &psConfig{}
	return a.NewCommand(app.Command{
		Examples: []app.HelpRow{
			{Name: "muster ps --state running", Usage: "List the running jobs"},
			{Name: "muster ps --failed --since 1d", Usage: "List the jobs since yesterday that failed or timed out"},
			{Name: "muster ps --mine --sort -took", Usage: "List your own jobs, the longest first"},
			{Name: "muster ps --watch", Usage: "Show jobs and their changes"},
		},
		Name: "ps", Usage: "List jobs: active first, then finished, newest first", Category: app.CategoryWatch,
		Flags: c.Flags(
			app.Option{Name: "all", Short: "a", Usage: "List all jobs"}.BoolVar(&c.all),
			app.Option{Name: "state", Usage: "Only jobs in these states: waiting, queued, running, succeeded, failed, timed_out, cancelled", Complete: app.States(muster.JobStates).List()}.ListVar(&c.states),
			app.Option{Name: "failed", Usage: "Only jobs that failed or timed out"}.BoolVar(&c.failed),
			app.Option{Name: "mine", Usage: "Only jobs that were submitted with this API key"}.BoolVar(&c.own),
			app.Option{Name: "since", Usage: "Only jobs created since then: a time ago (10m, 3d), 15:04, 2026-11-27, or RFC 3339"}.SinceVar(&c.since),
			app.Option{Name: "until", Usage: "Only jobs created until then"}.SinceVar(&c.until),
			app.Option{Name: "kind", Usage: "Only jobs whose tasks have this kind", Complete: c.CompleteKinds()}.StringVar(&c.kind),
			app.Option{Name: "sort", Value: "fields", Usage: "Sort by these fields, with - before a field to reverse it: " + sortNames(jobFields), Complete: completeSort(jobFields)}.ListVar(&c.sort),
			app.Option{Name: "project", Short: "p", Usage: "Only jobs of this project", Complete: c.CompleteProjects()}.WithEnv().StringVar(&c.project),
			app.Option{Name: "name", Usage: "Only jobs whose name contains this text"}.StringVar(&c.name),
			app.Option{Name: "label", Usage: "Only jobs with this label; may be repeated"}.MapVar(&c.labels),
			app.Option{Name: "limit", Usage: fmt.Sprintf("Maximum number of jobs (default: %d in a table, else unlimited)", defaultJobRows)}.IntVar(&c.limit, 1, math.MaxInt32),
			watch.Flag(&c.watch)),
		Run: func(ctx context.Context, _ []string) error { return a.ps(ctx, c) },
	})
}

func (a *runner) ps(ctx context.Context, c *psConfig) error {
	if c.failed && len(c.states) > 0 {
		return muster.Errorf(muster.Invalid, "--failed and --state are mutually exclusive: use --state failed,timed_out and others")
	}
	if c.failed {
		c.states = []string{string(muster.JobFailed), string(muster.JobTimedOut)}
	}
	if c.watch && len(c.sort) > 0 {
		return muster.Errorf(muster.Invalid, "--sort and --watch are mutually exclusive: use muster top, which sorts with s")
	}
	order, err := parseSort(c.sort, jobFields)
	if err != nil {
		return err
	}
	active, ended, err := jobStates(c.states)
	if err != nil {
		return err
	}
	limit := c.limit
	if limit == 0 && !c.all && c.Human() {
		limit = defaultJobRows
	}
	server, err := watch.Connect(&c.ServerOptions, c.watch)
	if err != nil {
		return err
	}
	if c.own {
		me, err := server.Whoami(ctx)
		if err != nil {
			return err
		}
		c.owner = me.Key
	}
	l := watch.List[muster.Job]{
		Listing: app.Listing[muster.Job]{
			OutputOptions: c.OutputOptions, Limit: limit, DefaultLimit: c.limit == 0, ID: jobID, Columns: jobColumns(c.Wide()), Row: jobRow, EmptyMessage: c.emptyMessage(),
			TruncatedMessage: "more jobs are not shown: use --all, --limit or --state",
		},
		Watch: c.watch, Normalize: watch.Identity[muster.Job], Events: client.EventQuery{Types: []muster.EventType{muster.EventJob}},
		Fetch: func(ctx context.Context, limit int) iter.Seq2[muster.Job, error] {
			if order != nil {
				limit = 1000 // all are read
			}
			return sorted(ctx, remote.Jobs(ctx, server, c.query(limit), active, ended), order, "narrow it with --since or --state")
		},
		FetchChanged: func(ctx context.Context, b live.Batch) iter.Seq2[muster.Job, error] {
			return c.changedJobs(ctx, server, b, active, ended)
		},
	}
	return l.Run(ctx, a.App, server)
}

// query returns the query for the selected jobs, without their states, and the size of a page; 0 is the default.
func (c *psConfig) query(page int) client.JobQuery {
	q := client.JobQuery{Project: c.project, Name: c.name, Labels: c.labels, Kind: c.kind, Owner: c.owner, Page: page}
	if c.since != 0 {
		q.Since = c.since.Std()
	}
	if c.until != 0 {
		q.Until = c.until.Std()
	}
	return q
}

// changedJobs yields active jobs, whose counts change without events, and the finished jobs of a batch.
func (c *psConfig) changedJobs(ctx context.Context, server *client.Client, b live.Batch, active, ended []muster.JobState) iter.Seq2[muster.Job, error] {
	return func(yield func(muster.Job, error) bool) {
		if !remote.YieldAll(remote.Jobs(ctx, server, c.query(0), active), yield) {
			return
		}
		for _, e := range b.Events {
			if !slices.Contains(ended, muster.JobState(e.State)) {
				continue
			}
			job, err := server.Job(ctx, e.Job)
			if muster.CodeOf(err) == muster.NotFound || err == nil && !c.match(&job) {
				continue
			}
			job.Spec, job.Groups = nil, nil // as in a list
			if !yield(job, err) || err != nil {
				return
			}
		}
	}
}

// match reports whether a job is selected, in any state.
func (c *psConfig) match(j *muster.Job) bool {
	for name, text := range c.labels {
		if got, has := j.Labels[name]; !has || got != text {
			return false
		}
	}
	return (c.project == "" || j.Project == c.project) && strings.Contains(j.Name, c.name) && (c.kind == "" || j.Kind == c.kind) &&
		(c.owner == "" || j.Owner == c.owner) && j.CreatedAt >= c.since && (c.until == 0 || j.CreatedAt <= c.until)
}

// emptyMessage is the message for an empty list.
func (c *psConfig) emptyMessage() string {
	if len(c.states)+len(c.labels) > 0 || c.name != "" || c.project != "" || c.kind != "" || c.own || c.since != 0 || c.until != 0 {
		return "no jobs match: muster ps without options lists all"
	}
	return "no jobs: submit one with muster run or muster submit"
}

// jobStates splits the named states, by default all, into those of active and of finished jobs.
func jobStates(names []string) (active, ended []muster.JobState, err error) {
	for _, s := range muster.JobStates {
		switch {
		case len(names) > 0 && !slices.Contains(names, string(s)):
		case s.Final():
			ended = append(ended, s)
		default:
			active = append(active, s)
		}
	}
	for _, name := range names {
		if !slices.Contains(muster.JobStates, muster.JobState(name)) {
			return nil, nil, muster.Errorf(muster.Invalid, "unknown state %q: use one of %s", name, app.JoinComma(muster.JobStates))
		}
	}
	return active, ended, nil
}

func jobColumns(wide bool) []term.Column {
	columns := []term.Column{
		{Title: "JOB", AlignRight: true, NoTruncate: true},
		{Title: "NAME"},
		{Title: "STATE", NoTruncate: true, Style: app.StateStyle},
		{Title: "DONE", AlignRight: true, NoTruncate: true},
		{Title: "TASKS", AlignRight: true, NoTruncate: true},
		{Title: "FAILED", AlignRight: true, NoTruncate: true, Style: func(string) term.Style { return term.Red }},
		{Title: "TOOK", AlignRight: true, NoTruncate: true},
		{Title: "AGE", AlignRight: true, NoTruncate: true},
		{Title: "PROJECT"},
	}
	if wide {
		columns = append(columns, term.Column{Title: "KIND"}, term.Column{Title: "PRIORITY", AlignRight: true}, term.Column{Title: "OWNER"}, term.Column{Title: "CREATED"})
	}
	return columns
}

func jobRow(j muster.Job, now time.Time) []string {
	failed := ""
	if n := j.Counts[muster.Failed] + j.Counts[muster.TimedOut]; n > 0 {
		failed = strconv.FormatInt(n, 10)
	}
	return []string{
		j.ID.String(), j.Name, app.JobStateText(&j), app.JobProgress(&j),
		fmt.Sprintf("%d/%d%s", j.Counts.Finished(), j.Counts.Total(), strings.Repeat("+", min(j.Unsized, 1))), failed,
		app.Elapsed(j.StartedAt, j.FinishedAt, now), app.Age(j.CreatedAt, now), j.Project,
		j.Kind, strconv.Itoa(j.Priority), cmp.Or(j.OwnerName, j.Owner), app.FormatTime(j.CreatedAt),
	}
}
