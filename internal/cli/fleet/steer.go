package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

// steerConfig is for the commands on single workers.
type steerConfig struct {
	remote.Remote
	frame.Format
}

func (c *steerConfig) flags() []cli.Flag { return slices.Concat(c.Format.Flags(), c.Remote.Flags()) }

const namedWorkers = "A worker is named by its id, or by its name if only one has it."

// eachWorker does something to each worker that is named, and then draws all.
func (a *commands) eachWorker(c *steerConfig, names []string,
	do func(server *client.Client, name string) (muster.Worker, error), draw func(muster.Worker) error,
) error {
	_, workers, err := c.order(names, do)
	if len(workers) == 0 {
		return err
	}
	return errors.Join(frame.ShowSome(a.App, c.Format, workers, workerID, draw), err)
}

func workerID(w muster.Worker) string { return string(w.ID) }

// order does something to each worker that is named, up to the first failure, and
// returns those to which it was done.
func (c *steerConfig) order(names []string, do func(*client.Client, string) (muster.Worker, error)) (*client.Client, []muster.Worker, error) {
	if len(names) == 0 {
		return nil, nil, muster.Errorf(muster.Invalid, "no worker is named: muster workers lists them")
	}
	server, err := c.Connect()
	if err != nil {
		return nil, nil, err
	}
	workers := make([]muster.Worker, 0, len(names))
	for _, name := range names {
		w, err := do(server, name)
		if err != nil {
			return server, workers, err
		}
		workers = append(workers, w)
	}
	return server, workers, nil
}

// sayWorker makes the drawing of a worker that is one sentence.
func (a *commands) sayWorker(done func(w *muster.Worker) string) func(muster.Worker) error {
	return func(w muster.Worker) error {
		a.Say("worker %s: %s", term.Clean(w.Name), done(&w))
		return nil
	}
}

// atMost is an option with a duration that may be left out: 0 is not the same.
func atMost(o frame.Option, dst **muster.Duration) cli.Flag {
	return frame.Into(o, dst, func(s string) (*muster.Duration, error) {
		d, err := muster.ParseDuration(s)
		return &d, err
	}, func(d *muster.Duration) string {
		if d == nil {
			return ""
		}
		return d.String()
	})
}

func (a *commands) pauseCommand() *cli.Command {
	c := &steerConfig{}
	var length *muster.Duration
	return a.Command(frame.Command{
		Name: "pause", Usage: "give workers no new tasks; those that they have go on", Args: "WORKER…", About: namedWorkers,
		Flags: append([]cli.Flag{
			atMost(frame.Option{Name: "for", Usage: "resume them after this `DURATION`, such as 1h (default: when somebody does)"}, &length),
		}, c.flags()...),
		Run: func(ctx context.Context, args []string) error {
			return a.eachWorker(c, args, func(server *client.Client, name string) (muster.Worker, error) {
				return server.PauseWorker(ctx, name, length)
			}, a.sayWorker(func(w *muster.Worker) string { return paused(w, time.Now()) }))
		},
	})
}

// paused says how a worker stands that was paused.
func paused(w *muster.Worker, now time.Time) string {
	text := "paused"
	if when := deadline(w, now); when != "" && !w.Draining {
		text += "; it " + when
	}
	if back := comesBack(w); back != "" {
		text += fmt.Sprintf("; it is %s and %s", w.State, back)
	}
	return text
}

func (a *commands) resumeCommand() *cli.Command {
	c := &steerConfig{}
	return a.Command(frame.Command{
		Name: "resume", Usage: "take a pause or a drain back, and forget failures there", Args: "WORKER…", Flags: c.flags(), About: namedWorkers,
		Run: func(ctx context.Context, args []string) error {
			return a.eachWorker(c, args, func(server *client.Client, name string) (muster.Worker, error) {
				return server.ResumeWorker(ctx, name)
			}, a.sayWorker(func(w *muster.Worker) string {
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

func (a *commands) healCommand() *cli.Command {
	c := &steerConfig{}
	return a.Command(frame.Command{
		Name: "heal", Usage: "let a worker look at quarantined GPUs again", Args: "WORKER [GPU…]", Flags: c.flags(),
		About: "A GPU is named by its UUID or its index; without a name all that are quarantined are meant. " +
			"Those that are well are given to tasks again, as muster workers show tells a moment later.",
		Run: func(ctx context.Context, args []string) error {
			return a.eachWorker(c, args[:min(len(args), 1)], func(server *client.Client, name string) (muster.Worker, error) {
				return server.HealWorker(ctx, name, args[1:]...)
			}, a.sayWorker(func(w *muster.Worker) string {
				return "looks at its GPUs again; muster workers show tells what came of it"
			}))
		},
	})
}

func (a *commands) removeCommand() *cli.Command {
	c := &steerConfig{}
	return a.Command(frame.Command{
		Name: "remove", Usage: "forget workers that are away for good, and revoke their keys", Args: "WORKER…", Flags: c.flags(), About: namedWorkers,
		Run: func(ctx context.Context, args []string) error {
			return a.eachWorker(c, args, func(server *client.Client, name string) (muster.Worker, error) {
				w, err := server.Worker(ctx, name)
				if err == nil {
					err = server.RemoveWorker(ctx, string(w.ID))
				}
				return w, err
			}, a.sayWorker(func(*muster.Worker) string { return "removed" }))
		},
	})
}
