package daemon

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
)

type upConfig struct {
	serverConfig
	workerOptions

	localDialects []string // names of systems that are served on this machine
}

func (c *upConfig) flags() []cli.Flag {
	return slices.Concat(c.serverConfig.flags(), []cli.Flag{
		app.Option{Name: "dialects", Usage: "serve workers and clients of other `SYSTEMS` on this machine, to try it: all, or names such as qubix,mloc"}.WithEnv().ListVar(&c.localDialects),
	}, c.workerOptions.flags())
}

func (a *runner) upCommand() *cli.Command {
	c := &upConfig{workerOptions: newWorkerOptions(), serverConfig: newServerConfig("127.0.0.1:8700")}
	return a.NewCommand(app.Command{
		Name: "up", Usage: "run a server and a worker on this machine, ready for jobs", Category: app.CategorySetup, Flags: c.flags(),
		Description: signalsHelp,
		Run: func(ctx context.Context, args []string) error {
			if err := app.NoArgs(args); err != nil {
				return err
			}
			return a.up(ctx, c)
		},
	})
}

func (a *runner) up(ctx context.Context, c *upConfig) error {
	ctx, forceCtx, release := app.ShutdownContexts(ctx)
	defer release()
	log, err := c.Logger(a.Err)
	if err != nil {
		return err
	}
	if err := c.readSecrets(); err != nil {
		return err
	}
	if err := c.addLocalDialects(c.localDialects); err != nil {
		return err
	}
	return runUpgradable(log, []*app.Secret{&c.adminToken, &c.joinToken, &c.webhookSecret}, func(up *upgrader) error {
		return c.WithTelemetry(ctx, log, func(ctx context.Context, w *Telemetry) error {
			return a.serve(ctx, &c.serverConfig, w, func(ctx context.Context, target remote.Server) error {
				err := c.run(ctx, forceCtx, up, target, filepath.Join(c.data, "worker"), w, w.Log.With(slog.String("part", "worker")))
				if err != nil {
					return err
				}
				<-ctx.Done() // a drained worker leaves, the server stays
				return nil
			})
		})
	})
}
