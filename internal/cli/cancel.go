package cli

import (
	"context"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/client"
)

func (a *runner) cancelCommand() *cli.Command {
	return a.changeCommand("cancel", "Cancel jobs, or some of their tasks",
		"Running tasks get a signal to stop, and are killed after their grace period. The command does not wait for that.",
		(*client.Client).Cancel)
}

func (a *runner) retryCommand() *cli.Command {
	return a.changeCommand("retry", "Retry tasks that ended without success",
		"For a job, queues all of its tasks that ended without success.",
		(*client.Client).Retry)
}

func (a *runner) changeCommand(name, usage, about string,
	change func(*client.Client, context.Context, muster.JobID, []client.Span) (muster.Job, error),
) *cli.Command {
	c := &remote.QueryOptions{}
	return a.NewCommand(app.Command{
		Name: name, Usage: usage, Description: about, Args: "JOB|TASK…", Complete: c.CompleteSelectors(), Category: app.CategoryWatch, Flags: c.Flags(),
		Run: func(ctx context.Context, args []string) error {
			server, sels, err := c.Select(ctx, args)
			if err != nil {
				return err
			}
			jobs := make([]muster.Job, len(sels))
			for i, sel := range sels {
				if jobs[i], err = change(server, ctx, sel.Job, sel.Spans); err != nil {
					return err
				}
			}
			return app.PrintItems(a.App, c.OutputOptions, jobs, jobID, func(j muster.Job) error {
				a.Messagef("job %s is %s: %s", j.ID, j.State, app.FormatCounts(j.Counts, false))
				return nil
			})
		},
	})
}
