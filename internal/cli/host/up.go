package host

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/remote"
)

type upConfig struct {
	serverConfig
	offer

	home []string // names of systems that are served on this machine
}

func (c *upConfig) flags() []cli.Flag {
	return slices.Concat(c.serverConfig.flags(), []cli.Flag{
		frame.Option{Name: "dialects", Usage: "serve workers and clients of other `SYSTEMS` on this machine, to try it: all, or names such as qubix,mloc"}.Variable().List(&c.home),
	}, c.offer.flags())
}

func (a *commands) upCommand() *cli.Command {
	c := &upConfig{offer: newOffer(), serverConfig: newServerConfig("127.0.0.1:8700")}
	return a.Command(frame.Command{
		Name: "up", Usage: "run a server and a worker on this machine, ready for jobs", Category: frame.SetUp, Flags: c.flags(),
		About: aboutSignals,
		Run: func(ctx context.Context, args []string) error {
			if err := frame.NoArgs(args); err != nil {
				return err
			}
			return a.up(ctx, c)
		},
	})
}

func (a *commands) up(ctx context.Context, c *upConfig) error {
	ctx, hurried, release := frame.InSteps(ctx)
	defer release()
	log, err := c.Logger(a.Err)
	if err != nil {
		return err
	}
	if err := c.take(); err != nil {
		return err
	}
	if err := c.athome(c.home); err != nil {
		return err
	}
	return upgradable(log, []*frame.Secret{&c.admin, &c.join, &c.signing}, func(self *upgrade) error {
		return c.With(ctx, log, func(ctx context.Context, w *Watched) error {
			return a.serve(ctx, &c.serverConfig, w, func(ctx context.Context, known remote.Server) error {
				err := c.run(ctx, hurried, self, known, filepath.Join(c.data, "worker"), w, w.Log.With(slog.String("part", "worker")))
				if err != nil {
					return err
				}
				<-ctx.Done() // a drained worker leaves, the server stays
				return nil
			})
		})
	})
}
