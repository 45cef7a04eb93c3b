package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/sdnotify"
	"github.com/muster-dev/muster/internal/serverd"
	"github.com/muster-dev/muster/internal/workerd"
)

type upConfig struct {
	serverConfig
	workerOptions

	localDialects []string // names of systems to serve on loopback
}

func (c *upConfig) flags() []cli.Flag {
	return slices.Concat(c.serverConfig.flags(), []cli.Flag{
		app.Option{Name: "dialects", Usage: "Serve workers and clients of other systems on loopback, to try them: all, or names such as qubix,mloc"}.WithEnv().ListVar(&c.localDialects),
	}, c.workerOptions.flags())
}

func (a *runner) upCommand() *cli.Command {
	c := &upConfig{workerOptions: newWorkerOptions(), serverConfig: newServerConfig("127.0.0.1:8700")}
	return a.NewCommand(app.Command{
		Name: "up", Usage: "Run a server and a worker on this machine", Category: app.CategorySetup, Flags: c.flags(),
		Description: signalsHelp,
		Run:         func(ctx context.Context, _ []string) error { return a.up(ctx, c) },
	})
}

func (a *runner) up(ctx context.Context, c *upConfig) error {
	restart := make(restarts)
	ctx, forceCtx, release := app.InterceptedContexts(ctx, restart.intercept)
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
	c.clientCert, c.clientKey = c.worker.ClientCert, c.worker.ClientKey
	return runUpgradable(ctx, log, restart, []*app.Secret{&c.adminToken, &c.joinToken, &c.webhookSecret}, func(up *upgrader) error {
		return c.WithTelemetry(ctx, log, func(ctx context.Context, w *Telemetry) error {
			return a.serve(ctx, &c.serverConfig, w, up.notifier, func(ctx context.Context, server *serverd.Server, target remote.Server) error {
				c.worker.NewToken, target.JoinToken = server.NewJoinToken, "" // a saved token may be revoked
				err := c.run(ctx, forceCtx, up, target, filepath.Join(c.data, "worker"), w, w.Log.With(slog.String("part", "worker")))
				switch {
				case muster.CodeOf(err) == muster.Forbidden:
					w.Log.Error("the worker was removed; the server keeps running", slog.Any("error", err))
				case err != nil:
					return err
				}
				<-ctx.Done() // the server keeps running after the worker is drained
				return nil
			})
		})
	})
}

// signalsHelp is part of the help of up and worker.
const signalsHelp = "After the first SIGINT or SIGTERM, running tasks have --shutdown-grace to end; the second returns them to the queue at once. " +
	"SIGUSR2 re-executes the (replaced) binary in place, without interrupting running tasks."

// upgrader handles requests for an upgrade in place, and restarts.
type upgrader struct {
	app.Program
	requests <-chan os.Signal
	restarts restarts
	notifier *sdnotify.Notifier
	leaving  bool // for a restart
}

// runUpgradable runs fn until it returns an error other than run.ErrDetach. After ErrDetach the program ends if it is restarted, and
// else is re-executed with the secrets in its environment; if that fails, fn runs again.
func runUpgradable(ctx context.Context, log *slog.Logger, restart restarts, secrets []*app.Secret, fn func(*upgrader) error) error {
	self, err := app.CurrentProgram(secrets...) // its environment still has the variables of the notifier
	if err != nil {
		return err
	}
	requests, release := app.NotifyUpgrade()
	defer release()
	return withNotifier(ctx, log, func(n *sdnotify.Notifier) error {
		for {
			up := &upgrader{Program: self, requests: requests, restarts: restart, notifier: n}
			if err := fn(up); !errors.Is(err, run.ErrDetach) {
				return err
			}
			if up.leaving {
				return nil
			}
			log.Error("upgrade failed, continuing with the running version", slog.Any("error", self.Exec()))
		}
	})
}

// watchRequests detaches the worker from its tasks on a restart, and on a request for an upgrade if the new binary runs. It returns when
// ctx ends.
func (u *upgrader) watchRequests(ctx context.Context, w *workerd.Worker, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-u.restarts:
			log.Info("restarting, tasks continue")
			u.leaving = true
			u.notifier.Stopping(workerStopLimit)
			w.Detach()
			continue
		case <-u.requests:
		}
		version, err := u.Check(ctx)
		if err != nil {
			log.Error("upgrade refused, continuing with the running version", slog.Any("error", err))
			continue
		}
		log.Info("upgrading in place", slog.String("to", version))
		w.Detach()
	}
}
