package cli

import (
	"context"
	"math"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/follow"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/client"
)

type logsConfig struct {
	remote.ServerOptions
	follow  bool
	tail    int
	stderr  bool
	stdout  bool
	attempt int
}

func (c *logsConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		app.Option{Name: "follow", Short: "f", Usage: "go on until the task has ended, over its later attempts too"}.BoolVar(&c.follow),
		app.Option{Name: "tail", Short: "n", Usage: "begin with the last `N` lines"}.IntVar(&c.tail, 1, math.MaxInt32),
		app.Option{Name: "stderr", Usage: "only what the task wrote to standard error"}.BoolVar(&c.stderr),
		app.Option{Name: "stdout", Usage: "only what the task wrote to standard output"}.BoolVar(&c.stdout),
		app.Option{Name: "attempt", Usage: "of attempt `N` (default: the last one)"}.IntVar(&c.attempt, 1, math.MaxInt32),
	}, c.Flags())
}

func (a *runner) logsCommand() *cli.Command {
	c := &logsConfig{}
	return a.NewCommand(app.Command{
		Name: "logs", Usage: "print the output of tasks", Args: "JOB|TASK…", Category: app.CategoryWatch, Flags: c.flags(),
		Description: "What a task wrote to standard output goes to standard output, and its standard error to standard error. " +
			"Lines of several tasks begin with the task's number, those of a job with several stages with the stage's name.",
		Run: func(ctx context.Context, args []string) error { return a.logs(ctx, c, args) },
	})
}

func (a *runner) logs(ctx context.Context, c *logsConfig, args []string) error {
	ctx, stop := app.SignalContext(ctx)
	defer stop()
	if c.stdout && c.stderr {
		return muster.Errorf(muster.Invalid, "--stdout and --stderr exclude each other: leave both out for all output")
	}
	server, err := c.Connect()
	if err != nil {
		return err
	}
	sels, err := remote.ResolveSelectors(ctx, server, args)
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
	return follow.NewPrinter(server, a.Out, a.Err).Print(ctx, sels, o)
}
