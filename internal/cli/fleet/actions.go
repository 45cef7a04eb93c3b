package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

const workerNameHelp = "A worker is given by its id, or by its name if that is unique."

// forEachWorker calls fn for each named worker, and then prints the results.
func (a *runner) forEachWorker(c *remote.QueryOptions, names []string,
	fn func(server *client.Client, name string) (muster.Worker, error), draw func(muster.Worker) error,
) error {
	_, workers, err := apply(c, names, fn)
	if len(workers) == 0 {
		return err
	}
	return errors.Join(app.PrintItems(a.App, c.OutputOptions, workers, workerID, draw), err)
}

func workerID(w muster.Worker) string { return string(w.ID) }

// apply calls fn for each named worker, up to the first error, and returns the results.
func apply(c *remote.QueryOptions, names []string, fn func(*client.Client, string) (muster.Worker, error)) (*client.Client, []muster.Worker, error) {
	if len(names) == 0 {
		return nil, nil, muster.Errorf(muster.Invalid, "missing worker: muster workers lists them")
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

// printStatus returns a function that prints the status of a worker.
func (a *runner) printStatus(status func(w *muster.Worker) string) func(muster.Worker) error {
	return func(w muster.Worker) error {
		a.Messagef("worker %s: %s", term.Sanitize(w.Name), status(&w))
		return nil
	}
}

func (a *runner) approveCommand() *cli.Command {
	c := &remote.QueryOptions{}
	return a.NewCommand(app.Command{
		Name: "approve", Usage: "Approve pending workers: they take tasks", Args: "WORKER…", Complete: c.CompleteWorkers(), Flags: c.Flags(),
		Description: workerNameHelp + " A worker is pending if it joined by a token of 'muster keys create --role join --approve'; 'muster workers remove' refuses it.",
		Run: func(ctx context.Context, args []string) error {
			return a.forEachWorker(c, args, func(server *client.Client, name string) (muster.Worker, error) {
				return server.ApproveWorker(ctx, name)
			}, a.printStatus(func(*muster.Worker) string { return "approved" }))
		},
	})
}

func (a *runner) pauseCommand() *cli.Command {
	c := &remote.QueryOptions{}
	var duration *muster.Duration
	return a.NewCommand(app.Command{
		Name: "pause", Usage: "Stop giving new tasks to workers; running tasks continue", Args: "WORKER…", Complete: c.CompleteWorkers(), Description: workerNameHelp,
		Flags: c.Flags(app.Option{Name: "for", Usage: "Resume after this time, such as 1h (default: not automatically)"}.OptionalDurationVar(&duration)),
		Run: func(ctx context.Context, args []string) error {
			return a.forEachWorker(c, args, func(server *client.Client, name string) (muster.Worker, error) {
				return server.PauseWorker(ctx, name, duration)
			}, a.printStatus(func(w *muster.Worker) string { return pauseStatus(w, time.Now()) }))
		},
	})
}

// pauseStatus describes the state of a paused worker.
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
	c := &remote.QueryOptions{}
	return a.NewCommand(app.Command{
		Name: "resume", Usage: "Resume paused or draining workers, and reset their health", Args: "WORKER…", Complete: c.CompleteWorkers(), Flags: c.Flags(), Description: workerNameHelp,
		Run: func(ctx context.Context, args []string) error {
			return a.forEachWorker(c, args, func(server *client.Client, name string) (muster.Worker, error) {
				return server.ResumeWorker(ctx, name)
			}, a.printStatus(func(w *muster.Worker) string {
				switch {
				case w.State != muster.WorkerActive:
					return fmt.Sprintf("%s; it takes tasks again when it reconnects", w.State)
				case w.Constrained != "":
					return "resumed, but constrained: " + w.Constrained
				}
				return "resumed"
			}))
		},
	})
}

func (a *runner) healCommand() *cli.Command {
	c := &remote.QueryOptions{}
	return a.NewCommand(app.Command{
		Name: "heal", Usage: "Check quarantined GPUs of a worker again", Args: "WORKER [GPU…]", Complete: c.CompleteWorkers().Once(), Flags: c.Flags(),
		Description: "A GPU is given by its UUID or index (default: all quarantined GPUs). " +
			"Healthy ones are released from quarantine; see 'muster workers show' a moment later.",
		Run: func(ctx context.Context, args []string) error {
			return a.forEachWorker(c, args[:min(len(args), 1)], func(server *client.Client, name string) (muster.Worker, error) {
				return server.HealWorker(ctx, name, args[1:]...)
			}, a.printStatus(func(*muster.Worker) string {
				return "checking its GPUs; muster workers show has the result"
			}))
		},
	})
}

func (a *runner) resetCommand() *cli.Command {
	c := &remote.QueryOptions{}
	return a.NewCommand(app.Command{
		Name: "reset", Usage: "Give a worker a new identity, such as after its old one was copied", Args: "WORKER", Complete: c.CompleteWorkers().Once(), Flags: c.Flags(),
		Description: workerNameHelp + " Its key is revoked at once. The command prints a join token that works once within an hour: start the worker with it " +
			"on the right machine and data directory, and it keeps its id, name and tags, and what its old token bound it to.",
		Run: func(ctx context.Context, args []string) error {
			if len(args) != 1 {
				return muster.Errorf(muster.Invalid, "missing worker: give one; muster workers lists them")
			}
			server, err := c.Connect()
			if err != nil {
				return err
			}
			w, err := server.Worker(ctx, args[0])
			if err != nil {
				return err
			}
			made, err := server.ResetWorker(ctx, string(w.ID))
			if err != nil {
				return err
			}
			return app.PrintItems(a.App, c.OutputOptions, []client.MadeKey{made}, func(k client.MadeKey) string { return k.Secret }, func(k client.MadeKey) error {
				a.Messagef("worker %s: its key was revoked; start it on its machine within an hour, with its --data (the worker of muster up joins by itself, at the latest when that is restarted):", term.Sanitize(w.Name))
				_, err := fmt.Fprintf(a.Out, "MUSTER_JOIN_TOKEN=%s muster worker --server %s\n", term.Sanitize(k.Secret), term.Sanitize(server.URL()))
				return err
			})
		},
	})
}

func (a *runner) removeCommand() *cli.Command {
	c := &remote.QueryOptions{}
	return a.NewCommand(app.Command{
		Name: "remove", Usage: "Remove workers that have left or are pending, and revoke their keys", Args: "WORKER…", Complete: c.CompleteWorkers(), Flags: c.Flags(), Description: workerNameHelp,
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
