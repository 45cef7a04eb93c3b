package cli

import (
	"context"
	"math"

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
	failed  bool
	since   muster.Time
	times   bool
}

func (a *runner) logsCommand() *cli.Command {
	c := &logsConfig{}
	return a.NewCommand(app.Command{
		Examples: []app.HelpRow{
			{Name: "muster logs 17", Usage: "Print the output of all tasks of job 17"},
			{Name: "muster logs -f -n 20 17.3", Usage: "Print the last 20 lines of task 17.3, then follow"},
		},
		Name: "logs", Usage: "Print the output of tasks", Args: "JOB|TASK…", Complete: c.CompleteSelectors(), Category: app.CategoryWatch,
		Flags: append([]cli.Flag{
			app.Option{Name: "follow", Short: "f", Usage: "Follow the output until the task ends, including later attempts"}.BoolVar(&c.follow),
			app.Option{Name: "tail", Short: "n", Usage: "Number of lines to show from the end of the output"}.IntVar(&c.tail, 1, math.MaxInt32),
			app.Option{Name: "since", Usage: "Only output since this time: 10m, 2h, 3d (ago), 15:04, 2026-11-27, or RFC 3339"}.SinceVar(&c.since),
			app.Option{Name: "timestamps", Short: "t", Usage: "Prefix each line with its time"}.BoolVar(&c.times),
			app.Option{Name: "failed", Usage: "Only tasks that failed or timed out"}.BoolVar(&c.failed),
			app.Option{Name: "stderr", Usage: "Show standard error only"}.BoolVar(&c.stderr),
			app.Option{Name: "stdout", Usage: "Show standard output only"}.BoolVar(&c.stdout),
			app.Option{Name: "attempt", Usage: "Show this attempt (default: the last one)"}.IntVar(&c.attempt, 1, math.MaxInt32),
		}, c.Flags()...),
		Description: "Standard output and standard error of tasks go to standard output and standard error. " +
			"Lines of several tasks are prefixed with the task's number, or with the stage's name if the job has several stages.",
		Run: func(ctx context.Context, args []string) error { return a.logs(ctx, c, args) },
	})
}

func (a *runner) logs(ctx context.Context, c *logsConfig, args []string) error {
	ctx, stop := app.SignalContext(ctx)
	defer stop()
	if c.stdout && c.stderr {
		return muster.Errorf(muster.Invalid, "--stdout and --stderr are mutually exclusive: omit both for all output")
	}
	if c.failed && c.follow {
		return muster.Errorf(muster.Invalid, "--failed shows finished tasks: omit --follow")
	}
	server, sels, err := c.Select(ctx, args)
	if err != nil {
		return err
	}
	o := client.LogOptions{Attempt: c.attempt, Tail: c.tail, Follow: c.follow, Since: c.since}
	switch {
	case c.stdout:
		o.Stream = client.Stdout
	case c.stderr:
		o.Stream = client.Stderr
	}
	p := follow.NewPrinter(server, a.Out, a.Err)
	p.Timestamps, p.Failed = c.times, c.failed
	return p.Print(ctx, sels, o)
}
