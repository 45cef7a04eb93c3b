package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

// actionConfig is for the commands on single workers.
type actionConfig struct {
	remote.ServerOptions
	app.OutputOptions
}

func (c *actionConfig) flags() []cli.Flag {
	return slices.Concat(c.OutputOptions.Flags(), c.ServerOptions.Flags())
}

const workerNameHelp = "A worker is named by its id, or by its name if only one has it."

// forEachWorker does something to each worker that is named, and then draws all.
func (a *runner) forEachWorker(c *actionConfig, names []string,
	fn func(server *client.Client, name string) (muster.Worker, error), draw func(muster.Worker) error,
) error {
	_, workers, err := c.apply(names, fn)
	if len(workers) == 0 {
		return err
	}
	return errors.Join(app.PrintItems(a.App, c.OutputOptions, workers, workerID, draw), err)
}

func workerID(w muster.Worker) string { return string(w.ID) }

// apply does something to each worker that is named, up to the first failure, and
// returns those to which it was done.
func (c *actionConfig) apply(names []string, fn func(*client.Client, string) (muster.Worker, error)) (*client.Client, []muster.Worker, error) {
	if len(names) == 0 {
		return nil, nil, muster.Errorf(muster.Invalid, "no worker is named: muster workers lists them")
	}
	server, err := c.Connect()
	if err != nil {
		return nil, nil, err
	}
	workers := make([]muster.Worker, 0, len(names))
	for _, name := range names {
		w, err := fn(server, name)
		if err != nil {
			return server, workers, err
		}
		workers = append(workers, w)
	}
	return server, workers, nil
}

// printStatus makes the drawing of a worker that is one sentence.
func (a *runner) printStatus(status func(w *muster.Worker) string) func(muster.Worker) error {
	return func(w muster.Worker) error {
		a.Messagef("worker %s: %s", term.Sanitize(w.Name), status(&w))
		return nil
	}
}

// optionalDurationVar is an option with a duration that may be left out: 0 is not the same.
func optionalDurationVar(o app.Option, dst **muster.Duration) cli.Flag {
	return app.Var(o, dst, func(s string) (*muster.Duration, error) {
		d, err := muster.ParseDuration(s)
		return &d, err
	}, func(d *muster.Duration) string {
		if d == nil {
			return ""
		}
		return d.String()
	})
}

func (a *runner) pauseCommand() *cli.Command {
	c := &actionConfig{}
	var duration *muster.Duration
	return a.NewCommand(app.Command{
		Name: "pause", Usage: "give workers no new tasks; those that they have go on", Args: "WORKER…", Description: workerNameHelp,
		Flags: append([]cli.Flag{
			optionalDurationVar(app.Option{Name: "for", Usage: "resume them after this `DURATION`, such as 1h (default: when somebody does)"}, &duration),
		}, c.flags()...),
		Run: func(ctx context.Context, args []string) error {
			return a.forEachWorker(c, args, func(server *client.Client, name string) (muster.Worker, error) {
				return server.PauseWorker(ctx, name, duration)
			}, a.printStatus(func(w *muster.Worker) string { return pauseStatus(w, time.Now()) }))
		},
	})
}

// pauseStatus says how a worker stands that was paused.
func pauseStatus(w *muster.Worker, now time.Time) string {
	text := "paused"
	if when := formatDeadline(w, now); when != "" && !w.Draining {
		text += "; it " + when
	}
	if onReturn := stateOnReturn(w); onReturn != "" {
		text += fmt.Sprintf("; it is %s and %s", w.State, onReturn)
	}
	return text
}

func (a *runner) resumeCommand() *cli.Command {
	c := &actionConfig{}
	return a.NewCommand(app.Command{
		Name: "resume", Usage: "take a pause or a drain back, and forget failures there", Args: "WORKER…", Flags: c.flags(), Description: workerNameHelp,
		Run: func(ctx context.Context, args []string) error {
			return a.forEachWorker(c, args, func(server *client.Client, name string) (muster.Worker, error) {
				return server.ResumeWorker(ctx, name)
			}, a.printStatus(func(w *muster.Worker) string {
				switch {
				case w.State != muster.WorkerActive:
					return fmt.Sprintf("%s; it takes tasks again when it is back", w.State)
				case w.Constrained != "":
					return "resumed, but it takes nothing new of its own accord: " + w.Constrained
				}
				return "takes tasks again"
			}))
		},
	})
}

func (a *runner) healCommand() *cli.Command {
	c := &actionConfig{}
	return a.NewCommand(app.Command{
		Name: "heal", Usage: "let a worker look at quarantined GPUs again", Args: "WORKER [GPU…]", Flags: c.flags(),
		Description: "A GPU is named by its UUID or its index; without a name all that are quarantined are meant. " +
			"Those that are well are given to tasks again, as muster workers show tells a moment later.",
		Run: func(ctx context.Context, args []string) error {
			return a.forEachWorker(c, args[:min(len(args), 1)], func(server *client.Client, name string) (muster.Worker, error) {
				return server.HealWorker(ctx, name, args[1:]...)
			}, a.printStatus(func(w *muster.Worker) string {
				return "looks at its GPUs again; muster workers show tells what came of it"
			}))
		},
	})
}

func (a *runner) removeCommand() *cli.Command {
	c := &actionConfig{}
	return a.NewCommand(app.Command{
		Name: "remove", Usage: "forget workers that are away for good, and revoke their keys", Args: "WORKER…", Flags: c.flags(), Description: workerNameHelp,
		Run: func(ctx context.Context, args []string) error {
			return a.forEachWorker(c, args, func(server *client.Client, name string) (muster.Worker, error) {
				w, err := server.Worker(ctx, name)
				if err == nil {
					err = server.RemoveWorker(ctx, string(w.ID))
				}
				return w, err
			}, a.printStatus(func(*muster.Worker) string { return "removed" }))
		},
	})
}
