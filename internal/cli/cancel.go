package cli

import (
	"context"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/client"
)

// changeConfig is for the commands that change jobs: cancel and retry.
type changeConfig struct {
	remote.ServerOptions
	app.OutputOptions
}

func (c *changeConfig) flags() []cli.Flag {
	return slices.Concat(c.OutputOptions.Flags(), c.ServerOptions.Flags())
}

func (a *runner) cancelCommand() *cli.Command {
	return a.changeCommand("cancel", "stop jobs, or some of their tasks",
		"Tasks that run are asked to end, and killed after their grace period; the command does not wait for that.",
		(*client.Client).Cancel)
}

func (a *runner) retryCommand() *cli.Command {
	return a.changeCommand("retry", "run ended tasks that did not succeed again",
		"Of a whole job, all tasks that ended without success are queued again.",
		(*client.Client).Retry)
}

func (a *runner) changeCommand(name, usage, about string,
	change func(*client.Client, context.Context, muster.JobID, []client.Span) (muster.Job, error),
) *cli.Command {
	c := &changeConfig{}
	return a.NewCommand(app.Command{
		Name: name, Usage: usage, Description: about, Args: "JOB|TASK…", Category: app.CategoryWatch, Flags: c.flags(),
		Run: func(ctx context.Context, args []string) error {
			server, err := c.Connect()
			if err != nil {
				return err
			}
			sels, err := remote.ResolveSelectors(ctx, server, args)
			if err != nil {
				return err
			}
			jobs := make([]muster.Job, len(sels))
			for i, sel := range sels {
				if jobs[i], err = change(server, ctx, sel.Job, sel.Spans); err != nil {
					return err
				}
			}
			return app.PrintItems(a.App, c.OutputOptions, jobs, func(j muster.Job) string { return j.ID.String() }, func(j muster.Job) error {
				a.Messagef("job %s is %s: %s", j.ID, j.State, app.FormatCounts(j.Counts, false))
				return nil
			})
		},
	})
}
