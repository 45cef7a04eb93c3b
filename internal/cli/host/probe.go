package host

import (
	"context"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/agent/probe"
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/machine"
)

type probeConfig struct {
	frame.Format
	offer
	data string
}

func (c *probeConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		frame.Option{Name: "data", Usage: "look at the disk of this `FOLDER` (default: muster/worker in the user's data folder)"}.Variable().Text(&c.data),
	}, c.offer.flags(), c.Flags())
}

func (a *commands) probeCommand() *cli.Command {
	c := &probeConfig{offer: newOffer()}
	return a.Command(frame.Command{
		Name: "probe", Usage: "say what this machine would offer as a worker", Category: frame.SetUp, Flags: c.flags(),
		About: "The options are those of worker: it says what a worker with them would offer.",
		Run: func(ctx context.Context, args []string) error {
			if err := frame.NoArgs(args); err != nil {
				return err
			}
			return a.probe(ctx, c)
		},
	})
}

func (a *commands) probe(ctx context.Context, c *probeConfig) error {
	ctx, stop := frame.Interruptible(ctx)
	defer stop()
	dir, err := frame.DataFolder(c.data, "worker")
	if err != nil {
		return err
	}
	holding, err := c.holding.config()
	if err != nil {
		return err
	}
	holding.Data = dir
	found, err := probe.New(probe.Config{Data: dir, Bandwidth: c.work.Bandwidth, CanReach: holding.CanReach(), Engine: c.work.Engine, Isolation: &holding}).Run(ctx)
	if err != nil {
		return err
	}
	cfg := c.work
	cfg.HostPolicy, cfg.Allow, cfg.Kinds = c.sharing.Options, c.allow.Allow, c.allow.kinds
	if cfg.AI, err = c.ai.config(); err != nil {
		return err
	}
	found = cfg.Offered(found)
	return a.Show(c.Format, found, []string{found.Hostname}, func() error {
		return machine.Draw(a.App, &found, c.Wide())
	})
}
