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
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/cli/watch"
	"github.com/muster-dev/muster/internal/client"
)

type psConfig struct {
	remote.Remote
	frame.Format
	all     bool
	states  []string
	project string
	name    string
	labels  map[string]string
	limit   int
	watch   bool
}

const psRows = 50 // of a table, if nothing else is asked for

func (c *psConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		frame.Option{Name: "all", Short: "a", Usage: "list every job"}.On(&c.all),
		frame.Option{Name: "state", Usage: "only jobs in these `STATES`: waiting, queued, running, succeeded, failed, timed_out, cancelled"}.List(&c.states),
		frame.Option{Name: "project", Short: "p", Usage: "only jobs of this `PROJECT`"}.Variable().Text(&c.project),
		frame.Option{Name: "name", Usage: "only jobs with this `TEXT` in their name"}.Text(&c.name),
		frame.Option{Name: "label", Usage: "only jobs with this label, `NAME=VALUE`; may be repeated"}.Pairs(&c.labels),
		frame.Option{Name: "limit", Usage: fmt.Sprintf("list at most `N` jobs (default: %d in a table, else all)", psRows)}.Number(&c.limit, 1, math.MaxInt32),
		watch.Flag(&c.watch),
	}, c.Format.Flags(), c.Remote.Flags())
}

func (a *app) psCommand() *cli.Command {
	c := &psConfig{}
	return a.Command(frame.Command{
		Name: "ps", Usage: "list jobs: active first, then finished, newest first", Category: frame.Watch, Flags: c.flags(),
		Run: func(ctx context.Context, args []string) error {
			if err := frame.NoArgs(args); err != nil {
				return err
			}
			return a.ps(ctx, c)
		},
	})
}

func (a *app) ps(ctx context.Context, c *psConfig) error {
	active, ended, err := jobStates(c.states)
	if err != nil {
		return err
	}
	limit := c.limit
	if limit == 0 && !c.all && c.People() {
		limit = psRows
	}
	if c.watch {
		return a.watchJobs(ctx, c, active, ended, limit)
	}
	server, err := c.Connect()
	if err != nil {
		return err
	}
	query := c.query(limit)
	now := time.Now()
	l := frame.Listing[muster.Job]{
		Format: c.Format,
		Limit:  limit,
		ID:     func(j muster.Job) string { return j.ID.String() },
		Table:  term.NewTable(jobColumns(c.Wide())...),
		Row:    func(j muster.Job) []string { return jobRow(j, now) },
		Empty:  c.empty(),
		More:   "there are more jobs: --all lists every one, --limit and --state choose",
		Rows:   remote.Jobs(ctx, server, query, active, ended),
	}
	return l.Write(a.App)
}

// query selects the jobs that are asked for, but for their states; limit is how many are wanted, 0 for all.
func (c *psConfig) query(limit int) client.JobQuery {
	q := client.JobQuery{Project: c.project, Name: c.name, Labels: c.labels}
	if limit > 0 {
		q.Page = limit + 1
	}
	return q
}

// watchJobs shows the jobs and each change of them.
func (a *app) watchJobs(ctx context.Context, c *psConfig, active, ended []muster.JobState, limit int) error {
	server, err := live.Connect(&c.Remote)
	if err != nil {
		return err
	}
	rows := watch.Rows[muster.Job]{
		Format:  c.Format,
		Columns: jobColumns(c.Wide()),
		Row:     jobRow,
		ID:      func(j muster.Job) string { return j.ID.String() },
		Stable:  watch.Unchanged[muster.Job],
		Empty:   c.empty(),
		Events:  client.EventQuery{Types: []muster.EventType{muster.EventJob}},
		All: func(ctx context.Context, most int) iter.Seq2[muster.Job, error] {
			most = watch.Fewer(limit, most)
			return watch.First(remote.Jobs(ctx, server, c.query(most), active, ended), most)
		},
		Some: func(ctx context.Context, b live.Batch) iter.Seq2[muster.Job, error] {
			return c.changed(ctx, server, b, active, ended)
		},
	}
	return rows.Run(ctx, a.App, server)
}

// changed lists active jobs, whose counts change without an event, and those of a batch that have finished.
func (c *psConfig) changed(ctx context.Context, server *client.Client, b live.Batch, active, ended []muster.JobState) iter.Seq2[muster.Job, error] {
	return func(yield func(muster.Job, error) bool) {
		if !remote.Pass(remote.Jobs(ctx, server, c.query(0), active), yield) {
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

// match reports whether a job is one of those asked for, whatever its state.
func (c *psConfig) match(j *muster.Job) bool {
	for name, text := range c.labels {
		if got, has := j.Labels[name]; !has || got != text {
			return false
		}
	}
	return (c.project == "" || j.Project == c.project) && strings.Contains(j.Name, c.name)
}

// empty says that there are no jobs, and whether others were left out.
func (c *psConfig) empty() string {
	if len(c.states)+len(c.labels) > 0 || c.name != "" || c.project != "" {
		return "no jobs match: muster ps without options lists those of every kind"
	}
	return "no jobs: submit one with muster run or muster submit"
}

// jobStates splits the states that are asked for, all if none is, into those of
// active and of finished jobs.
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
			return nil, nil, muster.Errorf(muster.Invalid, "%q is no state of a job: write one of %s", name, frame.Words(muster.JobStates))
		}
	}
	return active, ended, nil
}

func jobColumns(wide bool) []term.Column {
	columns := []term.Column{
		{Title: "JOB", Right: true, Whole: true},
		{Title: "NAME"},
		{Title: "STATE", Whole: true, Style: frame.StateStyle},
		{Title: "DONE", Right: true, Whole: true},
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
		j.ID.String(), j.Name, string(j.State), frame.JobDone(&j),
		fmt.Sprintf("%d/%d", j.Counts.Finished(), j.Counts.Total()), failed,
		frame.Took(j.StartedAt, j.FinishedAt, now), frame.Age(j.CreatedAt, now), j.Project,
		j.Kind, strconv.Itoa(j.Priority), cmp.Or(j.OwnerName, j.Owner), j.CreatedAt.String(),
	}
}
