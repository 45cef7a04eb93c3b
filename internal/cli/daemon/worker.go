package daemon

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/agent/probe"
	"github.com/muster-dev/muster/internal/agent/transfer"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/machine"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/workerd"
)

// workerOptions has the options of a worker, for worker, up and probe.
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

const groupWorker = "Worker"

func (c *workerOptions) flags() []cli.Flag {
	const group = groupWorker
	w := &c.worker
	return slices.Concat([]cli.Flag{
		app.Option{Name: "name", Usage: "Name of the worker (default: the host name)", Group: group}.WithEnv().StringVar(&w.Name),
		app.Option{Name: "tags", Aliases: []string{"tag"}, Usage: "Tags in addition to the detected ones", Group: group}.WithEnv().ListVar(&w.Tags),
		app.Option{Name: "label", Usage: "Label of the worker; may be repeated", Group: group}.MapVar(&w.Labels),
		app.Option{Name: "price", Usage: "Price per hour; jobs can set a maximum", Group: group}.WithEnv().FloatVar(&w.Price, 1e9),
		app.Option{Name: "address", Usage: "Host name or IP address where other workers reach this one (default: the source address of its connection)", Group: group}.WithEnv().StringVar(&w.Address),
		app.Option{Name: "slots", Usage: "Maximum number of concurrent tasks that request no CPUs (default: two per core, at least 4)", Group: group}.WithEnv().IntVar(&w.Slots, 1, 1<<16),
		app.Option{Name: "max-tasks", Usage: "Maximum number of concurrent tasks, whatever they request (default: unlimited)", Group: group}.WithEnv().IntVar(&w.MaxTasks, 1, 1<<20),
		app.Option{Name: "cpus", Usage: "Number of CPU cores to offer (default: all)", Group: group}.WithEnv().FloatVar(&w.CPUs, 1<<16),
		app.Option{Name: "memory", Usage: "Memory to offer, such as 12GiB (default: all)", Group: group}.WithEnv().SizeVar(&w.Memory),
		app.Option{Name: "cache", Usage: "Size of the cache of downloaded files (default: " + muster.Size(transfer.DefaultBudget).String() + ")", Group: group}.WithEnv().SizeVar(&w.Cache),
		app.Option{Name: "bandwidth", Usage: "Bandwidth of inputs, outputs and checkpoints together, per second (default: unlimited)", Group: group}.WithEnv().SizeVar(&w.Bandwidth),
		app.Option{Name: "log-cap", Usage: "Maximum size of an attempt's log, whatever the job sets; beyond it, the beginning and the end are kept", Group: group}.WithEnv().SizeVar(&w.LogCap),
		app.Option{Name: "shutdown-grace", Usage: "Time for running tasks to end on shutdown", Group: group}.WithEnv().DurationVar(&c.shutdownGrace),
		app.Option{Name: "allow-private-addresses", Usage: "Allow downloading scripts from private networks", Group: group}.BoolVar(&w.AllowPrivate),
	}, remote.ClientCertFlags(&w.ClientCert, &w.ClientKey, group), c.ai.flags("AI kinds"), c.runtimes("Runtimes"), c.containers("Containers"), c.isolation.flags("Sandbox"), c.policy.flags("Policy"), c.hostPolicy.flags("Sharing"))
}

func (c *workerOptions) containers(group string) []cli.Flag {
	w := &c.worker
	return []cli.Flag{
		app.Option{Name: "engine", Value: "url", Usage: "Container engine, such as unix:///var/run/docker.sock; none disables containers (default: auto, the one that is found)", Group: group}.
			WithEnv().StringVar(&w.Engine),
		app.Option{Name: "image-disk", Usage: "Maximum disk space of images that tasks pulled (default: 64GiB)", Group: group}.WithEnv().SizeVar(&w.ImageDisk),
		app.Option{Name: "registry-config", Value: "path", Usage: "Docker config.json with credentials for registries (default: the user's)", Group: group}.
			WithEnv().StringVar(&w.RegistryConfig),
	}
}

func (c *workerOptions) runtimes(group string) []cli.Flag {
	w := &c.worker
	return []cli.Flag{
		app.Option{Name: "python", Value: "path", Usage: "Run the AI kinds with this interpreter and its packages, without installing any (default: environments built with uv)", Group: group}.
			WithEnv().StringVar(&w.Python),
		app.Option{Name: "wheels", Value: "path", Usage: "Directory of packages for runtimes, for use without a network", Group: group}.WithEnv().StringVar(&w.Wheels),
		app.Option{Name: "runtime-disk", Usage: "Maximum disk space of runtimes (default: 40GiB)", Group: group}.WithEnv().SizeVar(&w.RuntimeDisk),
		app.Option{Name: "model-disk", Usage: "Maximum disk space of models that tasks download (default: no limit)", Group: group}.WithEnv().SizeVar(&w.ModelDisk),
	}
}

// config returns the configuration of a worker with a data directory.
func (c *workerOptions) config(data string) (cfg workerd.Config, err error) {
	cfg = c.worker
	cfg.Data, cfg.ShutdownGrace = data, c.shutdownGrace.Std()
	cfg.HostPolicy, cfg.Allow, cfg.Kinds, cfg.TrustKeys = c.hostPolicy.Options, c.policy.Allow, c.policy.kinds, c.policy.trustKeys
	if cfg.Isolation, err = c.isolation.config(); err != nil {
		return cfg, err
	}
	cfg.AI, err = c.ai.config()
	return cfg, err
}

// run runs a worker until ctx ends. forceCtx ends the grace period of running tasks.
// It returns run.ErrDetach when the program is to be upgraded or restarted.
func (c *workerOptions) run(ctx, forceCtx context.Context, up *upgrader, server remote.Server, data string, tel *Telemetry, log *slog.Logger) error {
	cfg, err := c.config(data)
	if err != nil {
		return err
	}
	cfg.Server, cfg.Token, cfg.CA, cfg.TLSServerName, cfg.OnStarted = server.URL, server.JoinToken, server.CA, server.TLSServerName, up.notifier.Ready
	if cfg.ClientCert == "" {
		cfg.ClientCert, cfg.ClientKey = server.ClientCert, server.ClientKey
	}
	w, err := newWorker(ctx, cfg, tel, log)
	if err != nil {
		return err
	}
	up.notifier.ShowStatus(w.Summary)
	defer up.notifier.Watch(w.Alive)()
	defer context.AfterFunc(ctx, func() { up.notifier.Stopping(cfg.ShutdownGrace + workerStopLimit) })()
	defer context.AfterFunc(forceCtx, w.ForceShutdown)()
	var signals sync.WaitGroup
	defer signals.Wait()
	watchCtx, stopWatch := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWatch()
	signals.Go(func() { up.watchRequests(watchCtx, w, log) })
	return w.Run(ctx)
}

// newWorker returns a worker whose tasks survive this process and cannot read its memory or its secrets.
func newWorker(ctx context.Context, cfg workerd.Config, tel *Telemetry, log *slog.Logger) (*workerd.Worker, error) {
	app.UnsetSecrets()
	if err := tel.instrument(ctx, &cfg); err != nil {
		return nil, err
	}
	if err := isolation.DisableDumpable(); err != nil {
		log.Warn("tasks of this user can read the worker's memory", slog.Any("error", err))
	}
	self, err := app.SelfPath()
	if err != nil {
		return nil, err
	}
	cfg.Shim, cfg.Version = []string{self, ShimCommand}, app.CurrentBuild().Version
	return workerd.New(cfg, log)
}

// RunWorker runs a worker until ctx ends, with the defaults of muster worker for fields that cfg does not set.
// forceCtx ends the grace period of running tasks.
func RunWorker(ctx, forceCtx context.Context, cfg workerd.Config, tel *Telemetry, log *slog.Logger) error {
	defaults := newWorkerOptions()
	cfg.ShutdownGrace = cmp.Or(cfg.ShutdownGrace, defaults.shutdownGrace.Std())
	cfg.HostPolicy.AfterHours = cmp.Or(cfg.HostPolicy.AfterHours, defaults.hostPolicy.AfterHours)
	var err error
	if cfg.Isolation, err = defaults.isolation.config(); err != nil {
		return err
	}
	w, err := newWorker(ctx, cfg, tel, log)
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
		app.Option{Name: "server", Value: "url", Usage: "Server URL or name of a context (default: the current context)", Complete: remote.CompleteContexts}.WithEnv().StringVar(&c.server),
	}, app.Option{Name: "token", Env: "MUSTER_JOIN_TOKEN", Usage: "Join token, needed once (default: the one saved for the server)"}.SecretVars(&c.token, "join token"), []cli.Flag{
		app.Option{Name: "data", Value: "path", Usage: "Data directory (default: muster/worker in the user's data directory)"}.WithEnv().StringVar(&c.data),
		app.Option{Name: "heartbeat", Usage: "Heartbeat interval, 1s to 5m; after three silent ones the worker is unreachable (default: the server's)", Group: groupWorker}.WithEnv().DurationVar(&c.worker.Heartbeat),
	}, c.workerOptions.flags(), c.TelemetryFlags(), c.Flags())
}

// workerCommand returns muster worker. dropIns are further subcommands.
func (a *runner) workerCommand(dropIns []*cli.Command) *cli.Command {
	c := &workerConfig{workerOptions: newWorkerOptions(), LogOptions: app.DefaultLogOptions()}
	return a.NewCommand(app.Command{
		Examples: []app.HelpRow{
			{Name: "muster worker --server http://10.0.0.5:8700 --token TOKEN", Usage: "Join a server; later the same command without --token"},
			{Name: "sudo muster worker install --server http://10.0.0.5:8700 --token-file FILE", Usage: "Join as a service of this machine"},
			{Name: "muster worker --profile light --hours 22:00-06:00", Usage: "Share a desktop at night"},
		},
		Name: "worker", Usage: "Run a worker, which offers this machine to a server", Category: app.CategorySetup, Flags: c.flags(),
		Description: signalsHelp, Commands: append([]*cli.Command{a.installCommand(), a.uninstallCommand()}, dropIns...),
		Run: func(ctx context.Context, _ []string) error { return a.worker(ctx, c) },
	})
}

// target returns the server with the join token. It removes the token from the environment of child processes.
func (c *workerConfig) target() (remote.Server, error) {
	token, err := c.token.ReadAndUnset()
	if err != nil {
		return remote.Server{}, err
	}
	return remote.ResolveJoin(c.server, token)
}

func (a *runner) worker(ctx context.Context, c *workerConfig) error {
	restart := make(restarts)
	ctx, forceCtx, release := app.InterceptedContexts(ctx, restart.intercept)
	defer release()
	log, err := c.Logger(a.Err)
	if err != nil {
		return err
	}
	target, err := c.target()
	if err != nil {
		return err
	}
	data, err := app.DataDir(c.data, "worker")
	if err != nil {
		return err
	}
	return runUpgradable(ctx, log, restart, []*app.Secret{&c.token}, func(up *upgrader) error {
		return c.WithTelemetry(ctx, log, func(ctx context.Context, w *Telemetry) error {
			return c.run(ctx, forceCtx, up, target, data, w, w.Log)
		})
	})
}

type probeConfig struct {
	app.OutputOptions
	workerOptions
	data string
}

func (c *probeConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		app.Option{Name: "data", Value: "path", Usage: "Data directory of the worker (default: muster/worker in the user's data directory)"}.WithEnv().StringVar(&c.data),
	}, c.workerOptions.flags(), c.Flags())
}

func (a *runner) probeCommand() *cli.Command {
	c := &probeConfig{workerOptions: newWorkerOptions()}
	return a.NewCommand(app.Command{
		Name: "probe", Usage: "Show what this machine would offer as a worker", Category: app.CategorySetup, Flags: c.flags(),
		Description: "Takes the options of 'muster worker' and shows what that worker would offer.",
		Run:         func(ctx context.Context, _ []string) error { return a.probe(ctx, c) },
	})
}

func (a *runner) probe(ctx context.Context, c *probeConfig) error {
	ctx, stop := app.SignalContext(ctx)
	defer stop()
	dir, err := app.DataDir(c.data, "worker")
	if err != nil {
		return err
	}
	cfg, err := c.config(dir)
	if err != nil {
		return err
	}
	limits := cfg.Isolation
	limits.Data = dir
	offer, err := probe.New(probe.Config{Data: dir, Bandwidth: cfg.Bandwidth, CanReach: limits.CanReach(), Engine: cfg.Engine, Isolation: &limits}).Run(ctx)
	if err != nil {
		return err
	}
	offer = cfg.Offered(offer)
	kinds, err := cfg.OfferedKinds(ctx, &offer)
	if err != nil {
		return err
	}
	document := struct {
		*probe.Facts
		workerd.KindOffer
	}{&offer, kinds}
	return a.Print(c.OutputOptions, document, []string{offer.Hostname}, func() error {
		return machine.Draw(a.App, &offer, &kinds, c.Wide())
	})
}
