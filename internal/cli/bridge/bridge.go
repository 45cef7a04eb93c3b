// Package bridge has the commands that join another system as a worker: muster bridge NAME with a fleet, and
// muster worker NAME with this machine.
//
// Each system has a file and a line in systems. The file has an Adapter with the options of the system, which have the
// names, defaults and environment variables of its documentation. qubix.go is the smallest one.
package bridge

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/daemon"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/client"
	core "github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/obs"
	"github.com/muster-dev/muster/internal/workerd"
)

// Adapter is a command for one system. Flags is called first, and the others after the options are parsed.
type Adapter interface {
	// Flags returns the options of the system. With dropIn they are those of muster worker NAME: exactly the documented
	// ones of the system, without any of Muster's.
	Flags(dropIn bool) []cli.Flag
	// Notes returns the effects of given options that have no equivalent.
	Notes() []string
	// ConfigureWorker applies the options to the worker of this machine. It is called for muster worker NAME only.
	ConfigureWorker(w *workerd.Config) error
	// Run runs the bridge. It is called once for the fleet, or concurrently for each of its workers. When
	// deps.AcceptCtx ends, it takes no new jobs and returns once all jobs are reported; when ctx ends, it returns at once,
	// and the next run with deps.Dir reports the others.
	Run(ctx context.Context, deps Deps) error
}

// OneShot is an Adapter with options that print something in place of running the bridge.
type OneShot interface {
	// RunOnce handles such an option and reports whether one was given.
	RunOnce(ctx context.Context, a *app.App) (done bool, err error)
}

// Deps are the dependencies of a bridge.
type Deps struct {
	Client    *client.Client
	AcceptCtx context.Context //nolint:containedctx // it ends before that of Run
	Dir       string          // data directory, which exists and is not shared
	Worker    string          // name of the worker; "" for the fleet
	ID        string          // id of the worker; "" for the fleet
	Log       *slog.Logger

	streams *core.LogLimiter // shared by all bridges of the process, which use one API key
	metrics core.Metrics     // shared, too; nil for none
}

// coreConfig returns the part of a bridge's configuration that is common to all systems.
func (e *Deps) coreConfig() core.Config {
	return core.Config{Client: e.Client, Dir: e.Dir, Worker: e.ID, LogLimiter: e.streams, Metrics: e.metrics, Log: e.Log}
}

type system struct {
	name, title string
	adapter     func() Adapter
}

var systems = []system{ //nolint:gochecknoglobals // a constant table
	{"qubix", "QUBIX", newQubix},
	{"dtf", "DTF", newDTF},
	{"trainforge", "TrainForge", newTrainForge},
	{"mloc", "MLOC", newMLOC},
}

// Commands returns muster bridge, and the commands below muster worker.
func Commands(a *app.App) (bridge *cli.Command, dropIns []*cli.Command) {
	var bridges []*cli.Command
	for _, s := range systems {
		bridges = append(bridges, bridgeCommand(a, s))
		dropIns = append(dropIns, dropInCommand(a, s))
	}
	return a.NewCommand(app.Command{
		Name: "bridge", Usage: "Run jobs of a QUBIX, DTF, TrainForge or MLOC server on the fleet", Category: app.CategorySetup, Commands: bridges,
		Description: "A bridge joins the server of another system as a worker. Its jobs run as Muster jobs, and their progress, results, files and failures " +
			"are reported back. Use 'muster worker NAME' to join with this machine only, without a Muster server.",
	}), dropIns
}

// EnvDescriber is an Adapter with environment variables that are not options.
type EnvDescriber interface {
	EnvVars(dropIn bool) []app.HelpRow
}

// addEnvHelp adds the environment variables of the adapter and more to the help text of a command.
func addEnvHelp(cmd *cli.Command, adapter Adapter, dropIn bool, more ...app.HelpRow) *cli.Command {
	rows := more
	if v, ok := adapter.(EnvDescriber); ok {
		rows = append(v.EnvVars(dropIn), more...)
	}
	if len(rows) > 0 {
		app.AddHelpSections(cmd, app.HelpSection{Title: "Environment", Rows: rows})
	}
	return cmd
}

// bridgeForeignOptions returns replacements for options of muster worker NAME that the bridge does not have.
func bridgeForeignOptions(s system) map[string]string {
	all := map[string]string{}
	for _, f := range s.adapter().Flags(true) {
		all[f.Names()[0]] = "use it with muster worker, on the machines of the fleet"
	}
	return all
}

// command is what muster bridge NAME and muster worker NAME share.
type command struct {
	app.LogOptions
	daemon.TelemetryOptions

	adapter Adapter
	system  system
	data    string
}

func newCommand(s system) command {
	return command{adapter: s.adapter(), system: s, LogOptions: app.DefaultLogOptions()}
}

// serveFunc serves until acceptCtx ends, with the data directory dir. It stops at once when forceCtx ends.
type serveFunc func(ctx, acceptCtx, forceCtx context.Context, dir string, tel *daemon.Telemetry) error

// run handles the options of a OneShot, or calls serve. subdir is the default data directory.
func (c *command) run(ctx context.Context, a *app.App, subdir string, serve serveFunc) error {
	if o, ok := c.adapter.(OneShot); ok {
		if done, err := o.RunOnce(ctx, a); done || err != nil {
			return err
		}
	}
	acceptCtx, forceCtx, release := app.ShutdownContexts(ctx)
	defer release()
	log, err := c.Logger(a.Err)
	if err != nil {
		return err
	}
	dir, err := app.DataDir(c.data, subdir)
	if err != nil {
		return err
	}
	for _, line := range c.adapter.Notes() {
		a.Warnf("%s", line)
	}
	return c.WithTelemetry(ctx, log, func(ctx context.Context, tel *daemon.Telemetry) error {
		return serve(ctx, acceptCtx, forceCtx, dir, tel)
	})
}

type bridgeConfig struct {
	command
	remote.ServerOptions

	perWorker bool
}

func bridgeCommand(a *app.App, s system) *cli.Command {
	c := &bridgeConfig{command: newCommand(s)}
	const group = "Bridge"
	return addEnvHelp(a.NewCommand(app.Command{
		Name: s.name, Usage: "Join " + s.title + " as a worker and run its jobs on the fleet",
		Description: "The API key needs the role submitter. A bridge may be stopped or killed at any time: its jobs keep running, and the next start with the same --data reports them.",
		Flags: slices.Concat(c.adapter.Flags(false), []cli.Flag{
			app.Option{Name: "each", Usage: "Join with one worker for each worker of the fleet (default: one worker with the resources of all)", Group: group}.WithEnv().BoolVar(&c.perWorker),
			app.Option{Name: "data", Value: "path", Usage: "Data directory, with unreported jobs (default: muster/bridge/" + s.name + " in the user's data directory)", Group: group}.
				WithEnv().StringVar(&c.data),
			c.MetricsFlag("default: none"),
		}, c.FlagsInGroup("Muster server"), c.LogOptions.Flags()),
		ForeignOptions: bridgeForeignOptions(s),
		Run: func(ctx context.Context, _ []string) error {
			return c.run(ctx, a, filepath.Join("bridge", s.name), c.serve)
		},
	}), c.adapter, false)
}

func (c *bridgeConfig) serve(ctx, acceptCtx, forceCtx context.Context, dir string, tel *daemon.Telemetry) error {
	log := tel.Log
	api, err := c.Connect()
	if err != nil {
		return err
	}
	deps := Deps{Client: api, Dir: dir, Log: log, streams: core.NewLogLimiter(), metrics: obs.NewBridge(tel.Registry)}
	// Jobs keep running without their bridge, so the first signal ends it.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(forceCtx, cancel)()
	defer context.AfterFunc(acceptCtx, cancel)()
	reachable, err := checkAuthorized(ctx, api)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	deps.AcceptCtx = ctx
	if !reachable {
		log.Warn("Muster server unreachable, retrying", slog.String("server", api.URL()))
		group.Go(func() error { return awaitAuthorized(ctx, api, log, authRetryInterval) })
	}
	group.Go(func() error {
		defer cancel()
		if c.perWorker {
			return (&workerBridges{adapter: c.adapter, env: deps, interval: reconcileInterval, running: map[muster.WorkerID]*workerBridge{}}).serve(ctx)
		}
		return runBridge(ctx, c.adapter, deps)
	})
	return group.Wait()
}

// checkAuthorized returns an error if the Muster server rejects the key or the key lacks the permissions of a bridge. It
// reports whether the server was reachable.
func checkAuthorized(ctx context.Context, c *client.Client) (reachable bool, err error) {
	identity, err := c.Whoami(ctx)
	switch {
	case muster.CodeOf(err) == muster.Unauthenticated:
		return true, muster.Errorf(muster.Unauthenticated, "the Muster server rejected the bridge: %w; set a key with the role %s with --token-file or MUSTER_TOKEN", err, auth.Submitter)
	case err != nil:
		return false, nil //nolint:nilerr // the caller retries
	}
	return true, auth.Can(auth.Principal{KeyID: identity.Key, Name: identity.Name, Role: auth.Role(identity.Role), Project: identity.Project}, auth.SubmitJobs, auth.Object{})
}

const authRetryInterval = 5 * time.Second

// awaitAuthorized calls checkAuthorized until the server is reachable.
func awaitAuthorized(ctx context.Context, c *client.Client, log *slog.Logger, interval time.Duration) error {
	for backoff.Sleep(ctx, interval) == nil {
		reachable, err := checkAuthorized(ctx, c)
		if err != nil {
			return err
		}
		if reachable {
			log.Info("connected to the Muster server")
			return nil
		}
	}
	return nil
}

func runBridge(ctx context.Context, adapter Adapter, deps Deps) error {
	if err := os.MkdirAll(deps.Dir, 0o700); err != nil {
		return muster.Errorf(muster.Invalid, "create the data directory: %w; set another one with --data", err)
	}
	err := adapter.Run(ctx, deps)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
