package cli

import (
	"context"
	"math"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/follow"
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/client"
)

type logsConfig struct {
	remote.Remote
	follow  bool
	tail    int
	stderr  bool
	stdout  bool
	attempt int
}

func (c *logsConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		frame.Option{Name: "follow", Short: "f", Usage: "go on until the task has ended, over its later attempts too"}.On(&c.follow),
		frame.Option{Name: "tail", Short: "n", Usage: "begin with the last `N` lines"}.Number(&c.tail, 1, math.MaxInt32),
		frame.Option{Name: "stderr", Usage: "only what the task wrote to standard error"}.On(&c.stderr),
		frame.Option{Name: "stdout", Usage: "only what the task wrote to standard output"}.On(&c.stdout),
		frame.Option{Name: "attempt", Usage: "of attempt `N` (default: the last one)"}.Number(&c.attempt, 1, math.MaxInt32),
	}, c.Flags())
}

func (a *app) logsCommand() *cli.Command {
	c := &logsConfig{}
	return a.Command(frame.Command{
		Name: "logs", Usage: "print the output of tasks", Args: "JOB|TASK…", Category: frame.Watch, Flags: c.flags(),
		About: "What a task wrote to standard output goes to standard output, and its standard error to standard error. " +
			"Lines of several tasks begin with the task's number, those of a job with several stages with the stage's name.",
		Run: func(ctx context.Context, args []string) error { return a.logs(ctx, c, args) },
	})
}

func (a *app) logs(ctx context.Context, c *logsConfig, args []string) error {
	ctx, stop := frame.Interruptible(ctx)
	defer stop()
	if c.stdout && c.stderr {
		return muster.Errorf(muster.Invalid, "--stdout and --stderr exclude each other: leave both out for all output")
	}
	server, err := c.Connect()
	if err != nil {
		return err
	}
	sels, err := remote.Selection(ctx, server, args)
	if err != nil {
		return err
	}
	o := client.LogOptions{Attempt: c.attempt, Tail: c.tail, Follow: c.follow}
	switch {
	case c.stdout:
		o.Stream = client.Stdout
	case c.stderr:
		o.Stream = client.Stderr
	}
	return follow.NewPrinter(server, a.Out, a.Err).Selected(ctx, sels, o)
}
