package cli

import (
	"context"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/agent/limit"
	"github.com/muster-dev/muster/internal/agent/probe"
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/machine"
)

type probeConfig struct {
	frame.Format
	data string
}

func (c *probeConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		frame.Option{Name: "data", Usage: "look at the disk of this `FOLDER` (default: muster/worker in the user's data folder)"}.Variable().Text(&c.data),
	}, c.Flags())
}

func (a *app) probeCommand() *cli.Command {
	c := &probeConfig{}
	return a.Command(frame.Command{
		Name: "probe", Usage: "say what this machine would offer as a worker", Category: frame.SetUp, Flags: c.flags(),
		Run: func(ctx context.Context, args []string) error {
			if err := frame.NoArgs(args); err != nil {
				return err
			}
			return a.probe(ctx, c)
		},
	})
}

func (a *app) probe(ctx context.Context, c *probeConfig) error {
	ctx, stop := frame.Interruptible(ctx)
	defer stop()
	dir, err := dataFolder(c.data, "worker")
	if err != nil {
		return err
	}
	found, err := probe.New(probe.Config{Data: dir, Limits: &limit.Config{Data: dir}}).Run(ctx)
	if err != nil {
		return err
	}
	return a.Show(c.Format, found, []string{found.Hostname}, func() error {
		return machine.Draw(a.App, &found, c.Wide())
	})
}
