// Package bridge has the commands that let Muster serve as a worker of a foreign system: muster bridge NAME for a fleet, and
// muster worker NAME for this machine alone.
//
// A system is one file here and one line in systems. The file declares an Adapter: the system's options, by the
// names, defaults and variables of its own guide, and what runs its bridge. See qubix.go for the smallest one.
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
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/daemon"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
	core "github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/obs"
	"github.com/muster-dev/muster/internal/workerd"
)

// Adapter is one run of a command for one system. Its options are read before anything else is called.
type Adapter interface {
	// Flags are the system's own options. dropIn says that they are those of muster worker NAME: then they are exactly those of
	// the system's guide, and none of Muster's stands beside them.
	Flags(dropIn bool) []cli.Flag
	// Notes has a line for each given option that has no equivalent: what it does here.
	Notes() []string
	// ConfigureWorker puts into w what the options say of this machine's worker. It is called for muster worker NAME only.
	ConfigureWorker(w *workerd.Config) error
	// Run serves the foreign server: it is called once for the fleet, or for each of its workers at the same time. When
	// env.Taking ends it takes nothing new and returns once everything is reported; when ctx ends it returns at once, and
	// what is not reported stays in env.Dir for the next run.
	Run(ctx context.Context, deps Deps) error
}

// OneShot is an Adapter that has options which only show something: then nothing is served.
type OneShot interface {
	// RunOnce reports whether such an option was given, and did what it says.
	RunOnce(ctx context.Context, a *app.App) (done bool, err error)
}

// Deps is what a bridge is made of.
type Deps struct {
	Client    *client.Client
	AcceptCtx context.Context //nolint:containedctx // it ends before that of Run
	Dir       string          // of this bridge alone, which is there
	Worker    string          // name of the only worker that serves, for people; "" for the fleet
	ID        string          // its id; "" for the fleet
	Log       *slog.Logger

	streams *core.LogLimiter // of all bridges of the process, which use one API key
	metrics *obs.Bridge      // the same
}

// coreConfig is what the bridges of all systems are made of.
func (e *Deps) coreConfig() core.Config {
	return core.Config{Client: e.Client, Dir: e.Dir, Worker: e.ID, LogLimiter: e.streams, Metrics: e.metrics, Log: e.Log}
}

// system is one that Muster can serve.
type system struct {
	name, title string
	adapter     func() Adapter
}

// systems lists all of them.
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
		Name: "bridge", Usage: "run jobs of a QUBIX, DTF, TrainForge or MLOC server on the fleet", Category: app.CategorySetup, Commands: bridges,
		Description: "A bridge joins the server of another system as a worker. Jobs that it receives run as Muster jobs, and their progress, results, files and failures " +
			"are reported back. Use muster worker NAME to join with this machine alone, without a Muster server.",
	}), dropIns
}

// EnvDescriber is an Adapter that reads variables which are no options.
type EnvDescriber interface {
	EnvVars(dropIn bool) []app.HelpRow
}

// addEnvHelp adds the variables that are no options to the help text of a command: those of the adapter, and more.
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

// bridgeForeignOptions says what to use in place of options of muster worker NAME that the bridge does not have.
func bridgeForeignOptions(s system) map[string]string {
	all := map[string]string{}
	for _, f := range s.adapter().Flags(true) {
		all[f.Names()[0]] = "it is an option of a worker: use it with muster worker, on the machines of the fleet"
	}
	return all
}

type bridgeConfig struct {
	remote.ServerOptions
	app.LogOptions
	daemon.TelemetryOptions

	adapter   Adapter
	system    system
	data      string
	perWorker bool
}

func bridgeCommand(a *app.App, s system) *cli.Command {
	c := &bridgeConfig{adapter: s.adapter(), system: s, LogOptions: app.DefaultLogOptions()}
	const group = "Bridge"
	return addEnvHelp(a.NewCommand(app.Command{
		Name: s.name, Usage: "join " + s.title + " as a worker, and run its jobs on the fleet",
		Description: "The API key needs the role submitter. A bridge may be stopped or killed at any time: its jobs keep running, and the next start with the same --data reports them.",
		Flags: slices.Concat(c.adapter.Flags(false), []cli.Flag{
			app.Option{Name: "each", Usage: "join with one worker for each worker of the fleet (default: one worker with the resources of all)", Group: group}.WithEnv().BoolVar(&c.perWorker),
			app.Option{Name: "data", Usage: "keep the jobs that are not yet reported in this `FOLDER` (default: muster/bridge/" + s.name + " in the user's data folder)", Group: group}.
				WithEnv().StringVar(&c.data),
			c.MetricsFlag("default: none"),
		}, c.FlagsInGroup("Muster server"), c.LogOptions.Flags()),
		ForeignOptions: bridgeForeignOptions(s),
		Run: func(ctx context.Context, args []string) error {
			if err := app.NoArgs(args); err != nil {
				return err
			}
			return c.run(ctx, a)
		},
	}), c.adapter, false)
}

func (c *bridgeConfig) run(ctx context.Context, a *app.App) error {
	if done, err := runOneShot(ctx, a, c.adapter); done || err != nil {
		return err
	}
	acceptCtx, forceCtx, release := app.ShutdownContexts(ctx)
	defer release()
	log, err := c.Logger(a.Err)
	if err != nil {
		return err
	}
	api, err := c.Connect()
	if err != nil {
		return err
	}
	dir, err := app.DataDir(c.data, filepath.Join("bridge", c.system.name))
	if err != nil {
		return err
	}
	printNotes(a, c.adapter)
	return c.WithTelemetry(ctx, log, func(ctx context.Context, w *daemon.Telemetry) error {
		deps := Deps{Client: api, Dir: dir, Log: w.Log, streams: core.NewLogLimiter(), metrics: obs.NewBridge(w.Registry)}
		return c.serve(ctx, acceptCtx, forceCtx, deps)
	})
}

// serve runs the bridges until taking ends.
func (c *bridgeConfig) serve(ctx, acceptCtx, forceCtx context.Context, deps Deps) error {
	api, log := deps.Client, deps.Log
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
		log.Warn("the Muster server does not answer: trying again until it does", slog.String("server", api.URL()))
		group.Go(func() error { return awaitAuthorized(ctx, api, log, authRetryInterval) })
	}
	group.Go(func() error {
		defer cancel() // nothing is to be asked for any more
		if c.perWorker {
			return (&workerBridges{adapter: c.adapter, env: deps, interval: reconcileInterval, running: map[muster.WorkerID]*workerBridge{}}).serve(ctx)
		}
		return runBridge(ctx, c.adapter, deps)
	})
	return group.Wait()
}

// checkAuthorized fails if the Muster server refuses the key, or what a bridge does with it: then trying again is of no use. It reports
// whether the server answered.
func checkAuthorized(ctx context.Context, c *client.Client) (reachable bool, err error) {
	identity, err := c.Whoami(ctx)
	switch {
	case muster.CodeOf(err) == muster.Unauthenticated:
		return true, muster.Errorf(muster.Unauthenticated, "the Muster server refuses the bridge: %w; write a key with the role %s with --token-file or MUSTER_TOKEN", err, auth.Submitter)
	case err != nil:
		return false, nil //nolint:nilerr // it is asked again
	}
	return true, auth.Authorize(auth.Principal{KeyID: identity.Key, Name: identity.Name, Role: auth.Role(identity.Role), Project: identity.Project}, auth.SubmitJobs, auth.Object{})
}

// authRetryInterval is how often a server is asked that did not answer at the start.
const authRetryInterval = 5 * time.Second

// awaitAuthorized asks until the server answers, and then is authorized.
func awaitAuthorized(ctx context.Context, c *client.Client, log *slog.Logger, interval time.Duration) error {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
		reachable, err := checkAuthorized(ctx, c)
		if err != nil {
			return err
		}
		if reachable {
			log.Info("the Muster server answers")
			return nil
		}
	}
}

// runBridge runs one bridge.
func runBridge(ctx context.Context, adapter Adapter, deps Deps) error {
	if err := os.MkdirAll(deps.Dir, 0o700); err != nil {
		return muster.Errorf(muster.Invalid, "the data folder cannot be made: %w; choose another one with --data", err)
	}
	err := adapter.Run(ctx, deps)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// runOneShot does what an option asks for that only shows something.
func runOneShot(ctx context.Context, a *app.App, adapter Adapter) (bool, error) {
	if o, ok := adapter.(OneShot); ok {
		return o.RunOnce(ctx, a)
	}
	return false, nil
}

// printNotes says what options without an equivalent do.
func printNotes(a *app.App, adapter Adapter) {
	for _, line := range adapter.Notes() {
		a.Messagef("%s %s", a.Err.Paint(term.Yellow, "muster:"), line)
	}
}
