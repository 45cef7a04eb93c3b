package daemon

import (
	"context"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/agent/probe"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/machine"
)

type probeConfig struct {
	app.OutputOptions
	workerOptions
	data string
}

func (c *probeConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		app.Option{Name: "data", Usage: "look at the disk of this `FOLDER` (default: muster/worker in the user's data folder)"}.WithEnv().StringVar(&c.data),
	}, c.workerOptions.flags(), c.Flags())
}

func (a *runner) probeCommand() *cli.Command {
	c := &probeConfig{workerOptions: newWorkerOptions()}
	return a.NewCommand(app.Command{
		Name: "probe", Usage: "say what this machine would offer as a worker", Category: app.CategorySetup, Flags: c.flags(),
		Description: "The options are those of worker: it says what a worker with them would offer.",
		Run: func(ctx context.Context, args []string) error {
			if err := app.NoArgs(args); err != nil {
				return err
			}
			return a.probe(ctx, c)
		},
	})
}

func (a *runner) probe(ctx context.Context, c *probeConfig) error {
	ctx, stop := app.SignalContext(ctx)
	defer stop()
	dir, err := app.DataDir(c.data, "worker")
	if err != nil {
		return err
	}
	isolationConfig, err := c.isolation.config()
	if err != nil {
		return err
	}
	isolationConfig.Data = dir
	offer, err := probe.New(probe.Config{Data: dir, Bandwidth: c.worker.Bandwidth, CanReach: isolationConfig.CanReach(), Engine: c.worker.Engine, Isolation: &isolationConfig}).Run(ctx)
	if err != nil {
		return err
	}
	cfg := c.worker
	cfg.HostPolicy, cfg.Allow, cfg.Kinds = c.hostPolicy.Options, c.policy.Allow, c.policy.kinds
	if cfg.AI, err = c.ai.config(); err != nil {
		return err
	}
	offer = cfg.Offered(offer)
	return a.Print(c.OutputOptions, offer, []string{offer.Hostname}, func() error {
		return machine.Draw(a.App, &offer, c.Wide())
	})
}
