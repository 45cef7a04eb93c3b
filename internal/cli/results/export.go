package results

import (
	"context"
	"path/filepath"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/client"
)

// Command returns the command results.
func Command(a *app.App) *cli.Command {
	return a.NewCommand(app.Command{
		Name: "results", Usage: "Export the results of all jobs", Category: app.CategoryResults,
		Commands: []*cli.Command{exportCommand(a)},
	})
}

type exportConfig struct {
	remote.ServerOptions
	query client.JobQuery
	since muster.Time
	force bool
}

func exportCommand(a *app.App) *cli.Command {
	c := &exportConfig{}
	return a.NewCommand(app.Command{
		Name: "export", Usage: "Write the results of all jobs to one file", Args: "FILE",
		Examples: []app.HelpRow{
			{Name: "muster results export all.parquet", Usage: "Export everything that this key may see"},
			{Name: "muster results export week.csv -p vision --since 7d", Usage: "Export the jobs of a project of the last week as CSV"},
		},
		Flags: append([]cli.Flag{
			app.Option{Name: "project", Short: "p", Usage: "Only jobs of this project", Complete: c.CompleteProjects()}.StringVar(&c.query.Project),
			app.Option{Name: "since", Usage: "Only jobs created since then: a time ago (10m, 3d), 15:04, 2026-11-27, or RFC 3339"}.SinceVar(&c.since),
			app.Option{Name: "force", Short: "f", Usage: "Replace an existing file without asking"}.BoolVar(&c.force),
		}, c.Flags()...),
		Description: "The name of the file decides about the format: .parquet or .csv. DuckDB, pandas, Polars and Spark read Parquet files. " +
			"There is a row for each task that succeeded, failed or timed out, oldest job first, also of jobs that are still running. " +
			"The columns are those of muster result --parquet.",
		Run: func(ctx context.Context, args []string) error { return c.export(ctx, a, args) },
	})
}

// exportedStates are the states of tasks that may have a result.
var exportedStates = []muster.TaskState{muster.Succeeded, muster.Failed, muster.TimedOut}

func (c *exportConfig) export(ctx context.Context, a *app.App, args []string) error {
	ctx, stop := app.SignalContext(ctx)
	defer stop()
	if len(args) != 1 {
		return muster.Errorf(muster.Invalid, "muster results export takes the path of one file to write")
	}
	to := Target{File: args[0], Force: c.force}
	switch filepath.Ext(to.File) {
	case ".parquet":
		to.Format = Parquet
	case ".csv":
		to.Format = CSV
	default:
		return muster.Errorf(muster.Invalid, "%s is neither .parquet nor .csv: the end of the name decides about the format", to.File)
	}
	server, err := c.Connect()
	if err != nil {
		return err
	}
	q := c.query
	q.Oldest, q.Page = true, 1000
	if c.since != 0 {
		q.Since = c.since.Std()
	}
	return write(ctx, a, to, func(yield func(row, error) bool) {
		for j, err := range server.Jobs(ctx, q) {
			if err != nil {
				yield(row{}, err)
				return
			}
			if !yieldJob(ctx, server, j, yield) {
				return
			}
		}
	})
}

// yieldJob yields the rows of a job, and reports whether to continue. A job that was removed meanwhile has none.
func yieldJob(ctx context.Context, server *client.Client, listed muster.Job, yield func(row, error) bool) bool {
	if listed.Counts[muster.Succeeded]+listed.Counts[muster.Failed]+listed.Counts[muster.TimedOut] == 0 {
		return true
	}
	job, err := readJob(ctx, server, listed.ID)
	if err == nil {
		for t, taskErr := range server.Tasks(ctx, listed.ID, client.TaskQuery{States: exportedStates, Page: 1000}) {
			if err = taskErr; err != nil {
				break
			}
			if !yield(row{job, &t}, nil) {
				return false
			}
		}
	}
	if err == nil || muster.CodeOf(err) == muster.NotFound {
		return true
	}
	yield(row{}, err)
	return false
}
