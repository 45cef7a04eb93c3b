package cli

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
)

type editConfig struct {
	remote.QueryOptions
	priority *int
	hold     bool
	release  bool
}

func (a *runner) editCommand() *cli.Command {
	c := &editConfig{}
	priority := app.Option{Name: "priority", Value: "int", Usage: "New priority, from 0 to 100, higher first"}
	return a.NewCommand(app.Command{
		Examples: []app.HelpRow{
			{Name: "muster edit 17 --priority 90", Usage: "Let job 17 start before others"},
			{Name: "muster edit 17 --hold", Usage: "Start no more of its tasks until muster edit 17 --release"},
		},
		Name: "edit", Usage: "Change the priority of jobs, or hold and release them", Args: "JOB…", Complete: c.CompleteJobs(), Category: app.CategoryWatch,
		Flags: c.Flags(
			app.Var(priority, &c.priority, parsePriority, app.FormatOptional[int]),
			app.Option{Name: "hold", Usage: "Start no tasks of the job until it is released; running tasks continue"}.BoolVar(&c.hold),
			app.Option{Name: "release", Usage: "Let a held job start"}.BoolVar(&c.release)),
		Description: "To change a spec, use muster rerun --set, which submits a new job.",
		Run:         func(ctx context.Context, args []string) error { return a.edit(ctx, c, args) },
	})
}

func (a *runner) edit(ctx context.Context, c *editConfig, args []string) error {
	change := wire.JobEdit{Priority: c.priority}
	switch {
	case c.hold && c.release:
		return muster.Errorf(muster.Invalid, "--hold and --release are mutually exclusive: use one of them")
	case c.hold || c.release:
		change.Held = &c.hold
	case c.priority == nil:
		return muster.Errorf(muster.Invalid, "nothing to change: use --priority, --hold or --release")
	}
	server, err := c.Connect()
	if err != nil {
		return err
	}
	ids, err := remote.ResolveJobs(ctx, server, args)
	if err != nil {
		return err
	}
	jobs := make([]muster.Job, len(ids))
	for i, id := range ids {
		if jobs[i], err = server.EditJob(ctx, id, change); err != nil {
			return err
		}
	}
	return app.PrintItems(a.App, c.OutputOptions, jobs, jobID, func(j muster.Job) error {
		held := ""
		if j.Held {
			held = fmt.Sprintf(", held: muster edit %s --release lets it start", j.ID)
		}
		a.Messagef("job %s: priority %d%s", j.ID, j.Priority, held)
		return nil
	})
}
