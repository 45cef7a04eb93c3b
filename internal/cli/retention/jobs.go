// Package retention implements the commands that delete data and decide how long it is kept: rm, keep, unkeep, prune and retention.
package retention

import (
	"context"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/client"
)

// Commands returns the commands that change jobs.
func Commands(a *app.App) []*cli.Command {
	return []*cli.Command{rmCommand(a), keepCommand(a, "keep", true), keepCommand(a, "unkeep", false)}
}

// AdminCommands returns the commands that change what the server keeps.
func AdminCommands(a *app.App) []*cli.Command {
	return []*cli.Command{pruneCommand(a), policyCommand(a)}
}

func rmCommand(a *app.App) *cli.Command {
	c := &remote.ServerOptions{}
	force := false
	return a.NewCommand(app.Command{
		Name: "rm", Usage: "Delete ended jobs with their logs and artifacts", Args: "JOB…", Complete: c.CompleteJobs(), Category: app.CategoryWatch,
		Description: "The jobs disappear at once. Their files are deleted in the background, uploaded files and artifacts after a day unless another job uses them.",
		Flags:       append([]cli.Flag{app.Option{Name: "force", Short: "f", Usage: "Cancel jobs that have not ended, wait until they have, and delete them"}.BoolVar(&force)}, c.Flags()...),
		Examples: []app.HelpRow{
			{Name: "muster rm 17 18", Usage: "Delete two jobs"},
			{Name: "muster rm -f last", Usage: "Cancel the newest job and delete it"},
		},
		Run: func(ctx context.Context, args []string) error {
			ctx, stop := app.SignalContext(ctx)
			defer stop()
			server, jobs, err := selectJobs(ctx, c, "rm", args)
			if err != nil {
				return err
			}
			return eachJob(a, jobs, func(id muster.JobID) error {
				err := remove(ctx, server, id, force)
				if err == nil {
					err = app.WriteOutput(a.Out, []byte(id.String()+"\n"))
				}
				return err
			})
		},
	})
}

// remove removes a job. If force is set, it cancels the job first and waits until it has ended.
func remove(ctx context.Context, server *client.Client, id muster.JobID, force bool) error {
	err := server.RemoveJob(ctx, id)
	if err == nil || !force || muster.CodeOf(err) != muster.Conflict {
		return err
	}
	job, jobErr := server.Job(ctx, id)
	if jobErr != nil || job.KeptAt != 0 || job.State.Final() {
		return err
	}
	if _, err := server.Cancel(ctx, id, nil); err != nil && muster.CodeOf(err) != muster.Conflict { // it may have ended meanwhile
		return err
	}
	if _, err := server.Wait(ctx, id); err != nil {
		return err
	}
	return server.RemoveJob(ctx, id)
}

func keepCommand(a *app.App, name string, keep bool) *cli.Command {
	c := &remote.QueryOptions{}
	usage, description, done := "Exempt jobs from retention and prune", "Their logs, artifacts and checkpoints stay, too, until muster unkeep.", "job %s is kept"
	if !keep {
		usage, description, done = "Apply retention to jobs again", "", "job %s is no longer kept"
	}
	return a.NewCommand(app.Command{
		Name: name, Usage: usage, Description: description, Args: "JOB…", Complete: c.CompleteJobs(), Category: app.CategoryWatch, Flags: c.Flags(),
		Run: func(ctx context.Context, args []string) error {
			server, ids, err := selectJobs(ctx, &c.ServerOptions, name, args)
			if err != nil {
				return err
			}
			var jobs []muster.Job
			err = eachJob(a, ids, func(id muster.JobID) error {
				j, err := server.KeepJob(ctx, id, keep)
				if err == nil {
					jobs = append(jobs, j)
				}
				return err
			})
			if len(jobs) == 0 {
				return err
			}
			printErr := app.PrintItems(a, c.OutputOptions, jobs, func(j muster.Job) string { return j.ID.String() }, func(j muster.Job) error {
				a.Messagef(done, j.ID)
				return nil
			})
			if err == nil {
				err = printErr
			}
			return err
		},
	})
}

// selectJobs returns the jobs of the arguments, which must be whole jobs.
func selectJobs(ctx context.Context, c *remote.ServerOptions, name string, args []string) (*client.Client, []muster.JobID, error) {
	for _, arg := range args {
		if job, _, ok := strings.Cut(arg, "."); ok {
			return nil, nil, muster.Errorf(muster.Invalid, "muster %s is for whole jobs: use muster %s %s", name, name, job)
		}
	}
	server, sels, err := c.Select(ctx, args)
	if err != nil {
		return nil, nil, err
	}
	jobs := make([]muster.JobID, len(sels))
	for i, sel := range sels {
		jobs[i] = sel.Job
	}
	return server, jobs, nil
}

// eachJob calls change for all jobs, also after errors. It prints all errors but the last, which it returns.
func eachJob(a *app.App, jobs []muster.JobID, change func(muster.JobID) error) error {
	var last error
	for _, id := range jobs {
		err := change(id)
		if err == nil {
			continue
		}
		if last != nil {
			a.PrintError(last)
		}
		last = err
	}
	return last
}
