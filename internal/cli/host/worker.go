package host

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/limit"
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/work"
)

// offer is what a worker offers and how it behaves, for worker and up alike.
type offer struct {
	work    work.Config
	grace   muster.Duration
	sharing sharing
	holding holding
	allow   allowing
	ai      thinking
}

func newOffer() offer {
	return offer{grace: muster.Duration(30 * time.Second), sharing: newSharing(), holding: newHolding()}
}

func (c *offer) flags() []cli.Flag {
	const group = "Worker"
	w := &c.work
	return slices.Concat([]cli.Flag{
		frame.Option{Name: "name", Usage: "the worker's `NAME` (default: the host's)", Group: group}.Variable().Text(&w.Name),
		frame.Option{Name: "tags", Usage: "offer these `TAGS` besides those that were found out", Group: group}.Variable().List(&w.Tags),
		frame.Option{Name: "label", Usage: "show this label to people, `NAME=VALUE`; may be repeated", Group: group}.Pairs(&w.Labels),
		frame.Option{Name: "price", Usage: "what an hour costs, a `NUMBER` that jobs can limit", Group: group}.Variable().Decimal(&w.Price, 1e9),
		frame.Option{Name: "address", Usage: "other workers reach this one at this `ADDRESS`, a host name or IP address (default: where the server sees it)", Group: group}.Variable().Text(&w.Address),
		frame.Option{Name: "slots", Usage: "run this `NUMBER` of tasks at once that name no cpus (default: two for each core, at least 4)", Group: group}.Variable().Number(&w.Slots, 1, 1<<16),
		frame.Option{Name: "cpus", Usage: "offer this `NUMBER` of cores (default: all)", Group: group}.Variable().Decimal(&w.CPUs, 1<<16),
		frame.Option{Name: "memory", Usage: "offer these `BYTES` of memory, such as 12GiB (default: all)", Group: group}.Variable().Size(&w.Memory),
		frame.Option{Name: "cache", Usage: "keep up to these `BYTES` of fetched files", Group: group}.Variable().Size(&w.Cache),
		frame.Option{Name: "bandwidth", Usage: "let inputs, outputs and checkpoints together take these `BYTES` a second (default: no cap)", Group: group}.Variable().Size(&w.Bandwidth),
		frame.Option{Name: "log-cap", Usage: "cut the output of an attempt after these `BYTES`", Group: group}.Variable().Size(&w.LogCap),
		frame.Option{Name: "shutdown-grace", Usage: "leave running tasks this `DURATION` to end when told to stop", Group: group}.Variable().Duration(&c.grace),
		frame.Option{Name: "allow-private-addresses", Usage: "let scripts be fetched from addresses of private networks", Group: group}.On(&w.AllowPrivate),
	}, c.ai.flags("AI kinds"), c.runtimes("Runtimes"), c.containers("Containers"), c.holding.flags("Holding tasks"), c.allow.flags("What tasks may have"), c.sharing.flags("Sharing the machine"))
}

func (c *offer) containers(group string) []cli.Flag {
	w := &c.work
	return []cli.Flag{
		frame.Option{Name: "engine", Usage: "run containers with the engine at this `URL`, such as unix:///var/run/docker.sock; none runs none (default: auto, the one that is found)", Group: group}.
			Variable().Text(&w.Engine),
		frame.Option{Name: "image-disk", Usage: "keep images that tasks brought within these `BYTES` of disk (default: 64GiB)", Group: group}.Variable().Size(&w.ImageDisk),
		frame.Option{Name: "registry-config", Usage: "take credentials for registries from this `FILE`, a config.json of Docker (default: the user's own)", Group: group}.
			Variable().Text(&w.RegistryConfig),
	}
}

func (c *offer) runtimes(group string) []cli.Flag {
	w := &c.work
	return []cli.Flag{
		frame.Option{Name: "python", Usage: "run the AI kinds with the interpreter at this `PATH` and the packages that it has: nothing is installed (default: environments are made with uv)", Group: group}.
			Variable().Text(&w.Python),
		frame.Option{Name: "wheels", Usage: "make runtimes of the packages in this `FOLDER`, without a network", Group: group}.Variable().Text(&w.Wheels),
		frame.Option{Name: "runtime-disk", Usage: "keep runtimes within these `BYTES` of disk (default: 40GiB)", Group: group}.Variable().Size(&w.RuntimeDisk),
	}
}

// run works for a server until ctx ends. The end of hurried ends the grace of
// running tasks. It returns run.ErrDetach when self is to be upgraded.
func (c *offer) run(ctx, hurried context.Context, self *upgrade, server remote.Server, data string, by *Watched, log *slog.Logger) error {
	frame.ForgetSecrets()
	cfg := c.work
	if err := by.measure(ctx, &cfg); err != nil {
		return err
	}
	cfg.Server, cfg.Token, cfg.Data = server.URL, server.JoinToken, data
	cfg.ShutdownGrace, cfg.Version = c.grace.Std(), frame.BuildVersion().Version
	cfg.HostPolicy, cfg.Allow, cfg.Kinds = c.sharing.Options, c.allow.Allow, c.allow.kinds
	var err error
	if cfg.Isolation, err = c.holding.config(); err != nil {
		return err
	}
	if cfg.AI, err = c.ai.config(); err != nil {
		return err
	}
	w, err := newWorker(cfg, log)
	if err != nil {
		return err
	}
	defer context.AfterFunc(hurried, w.ForceShutdown)()
	var signals sync.WaitGroup
	defer signals.Wait()
	watched, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	signals.Go(func() { self.watch(watched, w, log) })
	return w.Run(ctx)
}

// newWorker makes a worker whose tasks outlive this process, and cannot look into it.
func newWorker(cfg work.Config, log *slog.Logger) (*work.Worker, error) {
	if err := limit.DisableDumpable(); err != nil {
		log.Warn("tasks of this user may look into the worker", slog.Any("error", err))
	}
	own, err := frame.Own()
	if err != nil {
		return nil, err
	}
	cfg.Shim = []string{own, ShimCommand}
	return work.New(cfg, log)
}

// RunWorker runs a worker of this machine, with the options of muster worker at their defaults where cfg has none,
// until ctx ends. The end of hurried ends the grace of running tasks.
func RunWorker(ctx, hurried context.Context, cfg work.Config, by *Watched, log *slog.Logger) error {
	frame.ForgetSecrets()
	if err := by.measure(ctx, &cfg); err != nil {
		return err
	}
	defaults := newOffer()
	if cfg.ShutdownGrace == 0 {
		cfg.ShutdownGrace = defaults.grace.Std()
	}
	if cfg.HostPolicy.AfterHours == "" {
		cfg.HostPolicy.AfterHours = defaults.sharing.AfterHours
	}
	var err error
	if cfg.Isolation, err = defaults.holding.config(); err != nil {
		return err
	}
	cfg.Version = frame.BuildVersion().Version
	w, err := newWorker(cfg, log)
	if err != nil {
		return err
	}
	defer context.AfterFunc(hurried, w.ForceShutdown)()
	return w.Run(ctx)
}

type workerConfig struct {
	frame.Logging
	Watching
	offer

	server string
	token  frame.Secret
	data   string
}

func (c *workerConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		frame.Option{Name: "server", Usage: "the server's `URL` (default: the one saved by up or server)"}.Variable().Text(&c.server),
	}, frame.Option{Name: "token", Env: "MUSTER_JOIN_TOKEN", Usage: "the join `TOKEN`, needed once (default: the one saved for that server)"}.Secret(&c.token, "the join token"), []cli.Flag{
		frame.Option{Name: "data", Usage: "keep everything in this `FOLDER` (default: muster/worker in the user's data folder)"}.Variable().Text(&c.data),
	}, c.offer.flags(), c.WatchFlags(), c.Flags())
}

func (a *commands) workerCommand(dropIns []*cli.Command) *cli.Command {
	c := &workerConfig{offer: newOffer(), Logging: frame.NewLogging()}
	return a.Command(frame.Command{
		Name: "worker", Usage: "run a worker: offer this machine to a server", Category: frame.SetUp, Flags: c.flags(),
		About: aboutSignals, Commands: dropIns,
		Run: func(ctx context.Context, args []string) error {
			if err := frame.NoArgs(args); err != nil {
				return err
			}
			return a.worker(ctx, c)
		},
	})
}

func (a *commands) worker(ctx context.Context, c *workerConfig) error {
	ctx, hurried, release := frame.InSteps(ctx)
	defer release()
	log, err := c.Logger(a.Err)
	if err != nil {
		return err
	}
	known, err := (&remote.Remote{URL: c.server}).Resolve()
	if err != nil {
		return err
	}
	token, err := c.token.Take()
	if err != nil {
		return err
	}
	if token != "" {
		known.JoinToken = token
	}
	data, err := frame.DataFolder(c.data, "worker")
	if err != nil {
		return err
	}
	return upgradable(log, []*frame.Secret{&c.token}, func(self *upgrade) error {
		return c.With(ctx, log, func(ctx context.Context, w *Watched) error {
			return c.run(ctx, hurried, self, known, data, w, w.Log)
		})
	})
}
