package daemon

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/workerd"
)

// workerOptions is what a worker offers and how it behaves, for worker and up alike.
type workerOptions struct {
	worker        workerd.Config
	shutdownGrace muster.Duration
	hostPolicy    hostPolicyOptions
	isolation     isolationOptions
	policy        policyOptions
	ai            aiOptions
}

func newWorkerOptions() workerOptions {
	return workerOptions{shutdownGrace: muster.Duration(30 * time.Second), hostPolicy: newHostPolicyOptions(), isolation: newIsolationOptions()}
}

func (c *workerOptions) flags() []cli.Flag {
	const group = "Worker"
	w := &c.worker
	return slices.Concat([]cli.Flag{
		app.Option{Name: "name", Usage: "the worker's `NAME` (default: the host's)", Group: group}.WithEnv().StringVar(&w.Name),
		app.Option{Name: "tags", Usage: "offer these `TAGS` besides those that were found out", Group: group}.WithEnv().ListVar(&w.Tags),
		app.Option{Name: "label", Usage: "show this label to people, `NAME=VALUE`; may be repeated", Group: group}.MapVar(&w.Labels),
		app.Option{Name: "price", Usage: "what an hour costs, a `NUMBER` that jobs can limit", Group: group}.WithEnv().FloatVar(&w.Price, 1e9),
		app.Option{Name: "address", Usage: "other workers reach this one at this `ADDRESS`, a host name or IP address (default: where the server sees it)", Group: group}.WithEnv().StringVar(&w.Address),
		app.Option{Name: "slots", Usage: "run this `NUMBER` of tasks at once that name no cpus (default: two for each core, at least 4)", Group: group}.WithEnv().IntVar(&w.Slots, 1, 1<<16),
		app.Option{Name: "cpus", Usage: "offer this `NUMBER` of cores (default: all)", Group: group}.WithEnv().FloatVar(&w.CPUs, 1<<16),
		app.Option{Name: "memory", Usage: "offer these `BYTES` of memory, such as 12GiB (default: all)", Group: group}.WithEnv().SizeVar(&w.Memory),
		app.Option{Name: "cache", Usage: "keep up to these `BYTES` of fetched files", Group: group}.WithEnv().SizeVar(&w.Cache),
		app.Option{Name: "bandwidth", Usage: "let inputs, outputs and checkpoints together take these `BYTES` a second (default: no cap)", Group: group}.WithEnv().SizeVar(&w.Bandwidth),
		app.Option{Name: "log-cap", Usage: "cut the output of an attempt after these `BYTES`", Group: group}.WithEnv().SizeVar(&w.LogCap),
		app.Option{Name: "shutdown-grace", Usage: "leave running tasks this `DURATION` to end when told to stop", Group: group}.WithEnv().DurationVar(&c.shutdownGrace),
		app.Option{Name: "allow-private-addresses", Usage: "let scripts be fetched from addresses of private networks", Group: group}.BoolVar(&w.AllowPrivate),
	}, c.ai.flags("AI kinds"), c.runtimes("Runtimes"), c.containers("Containers"), c.isolation.flags("Holding tasks"), c.policy.flags("What tasks may have"), c.hostPolicy.flags("Sharing the machine"))
}

func (c *workerOptions) containers(group string) []cli.Flag {
	w := &c.worker
	return []cli.Flag{
		app.Option{Name: "engine", Usage: "run containers with the engine at this `URL`, such as unix:///var/run/docker.sock; none runs none (default: auto, the one that is found)", Group: group}.
			WithEnv().StringVar(&w.Engine),
		app.Option{Name: "image-disk", Usage: "keep images that tasks brought within these `BYTES` of disk (default: 64GiB)", Group: group}.WithEnv().SizeVar(&w.ImageDisk),
		app.Option{Name: "registry-config", Usage: "take credentials for registries from this `FILE`, a config.json of Docker (default: the user's own)", Group: group}.
			WithEnv().StringVar(&w.RegistryConfig),
	}
}

func (c *workerOptions) runtimes(group string) []cli.Flag {
	w := &c.worker
	return []cli.Flag{
		app.Option{Name: "python", Usage: "run the AI kinds with the interpreter at this `PATH` and the packages that it has: nothing is installed (default: environments are made with uv)", Group: group}.
			WithEnv().StringVar(&w.Python),
		app.Option{Name: "wheels", Usage: "make runtimes of the packages in this `FOLDER`, without a network", Group: group}.WithEnv().StringVar(&w.Wheels),
		app.Option{Name: "runtime-disk", Usage: "keep runtimes within these `BYTES` of disk (default: 40GiB)", Group: group}.WithEnv().SizeVar(&w.RuntimeDisk),
	}
}

// run works for a server until ctx ends. The end of hurried ends the grace of
// running tasks. It returns run.ErrDetach when self is to be upgraded.
func (c *workerOptions) run(ctx, forceCtx context.Context, up *upgrader, server remote.Server, data string, tel *Telemetry, log *slog.Logger) error {
	app.UnsetSecrets()
	cfg := c.worker
	if err := tel.instrument(ctx, &cfg); err != nil {
		return err
	}
	cfg.Server, cfg.Token, cfg.Data = server.URL, server.JoinToken, data
	cfg.ShutdownGrace, cfg.Version = c.shutdownGrace.Std(), app.CurrentBuild().Version
	cfg.HostPolicy, cfg.Allow, cfg.Kinds = c.hostPolicy.Options, c.policy.Allow, c.policy.kinds
	var err error
	if cfg.Isolation, err = c.isolation.config(); err != nil {
		return err
	}
	if cfg.AI, err = c.ai.config(); err != nil {
		return err
	}
	w, err := newWorker(cfg, log)
	if err != nil {
		return err
	}
	defer context.AfterFunc(forceCtx, w.ForceShutdown)()
	var signals sync.WaitGroup
	defer signals.Wait()
	watchCtx, stopWatch := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWatch()
	signals.Go(func() { up.watchRequests(watchCtx, w, log) })
	return w.Run(ctx)
}

// newWorker makes a worker whose tasks outlive this process, and cannot look into it.
func newWorker(cfg workerd.Config, log *slog.Logger) (*workerd.Worker, error) {
	if err := isolation.DisableDumpable(); err != nil {
		log.Warn("tasks of this user may look into the worker", slog.Any("error", err))
	}
	self, err := app.SelfPath()
	if err != nil {
		return nil, err
	}
	cfg.Shim = []string{self, ShimCommand}
	return workerd.New(cfg, log)
}

// RunWorker runs a worker of this machine, with the options of muster worker at their defaults where cfg has none,
// until ctx ends. The end of hurried ends the grace of running tasks.
func RunWorker(ctx, forceCtx context.Context, cfg workerd.Config, tel *Telemetry, log *slog.Logger) error {
	app.UnsetSecrets()
	if err := tel.instrument(ctx, &cfg); err != nil {
		return err
	}
	defaults := newWorkerOptions()
	if cfg.ShutdownGrace == 0 {
		cfg.ShutdownGrace = defaults.shutdownGrace.Std()
	}
	if cfg.HostPolicy.AfterHours == "" {
		cfg.HostPolicy.AfterHours = defaults.hostPolicy.AfterHours
	}
	var err error
	if cfg.Isolation, err = defaults.isolation.config(); err != nil {
		return err
	}
	cfg.Version = app.CurrentBuild().Version
	w, err := newWorker(cfg, log)
	if err != nil {
		return err
	}
	defer context.AfterFunc(forceCtx, w.ForceShutdown)()
	return w.Run(ctx)
}

type workerConfig struct {
	app.LogOptions
	TelemetryOptions
	workerOptions

	server string
	token  app.Secret
	data   string
}

func (c *workerConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		app.Option{Name: "server", Usage: "the server's `URL` (default: the one saved by up or server)"}.WithEnv().StringVar(&c.server),
	}, app.Option{Name: "token", Env: "MUSTER_JOIN_TOKEN", Usage: "the join `TOKEN`, needed once (default: the one saved for that server)"}.SecretVars(&c.token, "the join token"), []cli.Flag{
		app.Option{Name: "data", Usage: "keep everything in this `FOLDER` (default: muster/worker in the user's data folder)"}.WithEnv().StringVar(&c.data),
	}, c.workerOptions.flags(), c.TelemetryFlags(), c.Flags())
}

func (a *runner) workerCommand(dropIns []*cli.Command) *cli.Command {
	c := &workerConfig{workerOptions: newWorkerOptions(), LogOptions: app.DefaultLogOptions()}
	return a.NewCommand(app.Command{
		Name: "worker", Usage: "run a worker: offer this machine to a server", Category: app.CategorySetup, Flags: c.flags(),
		Description: signalsHelp, Commands: dropIns,
		Run: func(ctx context.Context, args []string) error {
			if err := app.NoArgs(args); err != nil {
				return err
			}
			return a.worker(ctx, c)
		},
	})
}

func (a *runner) worker(ctx context.Context, c *workerConfig) error {
	ctx, forceCtx, release := app.ShutdownContexts(ctx)
	defer release()
	log, err := c.Logger(a.Err)
	if err != nil {
		return err
	}
	target, err := (&remote.ServerOptions{URL: c.server}).Resolve()
	if err != nil {
		return err
	}
	token, err := c.token.ReadAndUnset()
	if err != nil {
		return err
	}
	if token != "" {
		target.JoinToken = token
	}
	data, err := app.DataDir(c.data, "worker")
	if err != nil {
		return err
	}
	return runUpgradable(log, []*app.Secret{&c.token}, func(up *upgrader) error {
		return c.WithTelemetry(ctx, log, func(ctx context.Context, w *Telemetry) error {
			return c.run(ctx, forceCtx, up, target, data, w, w.Log)
		})
	})
}
