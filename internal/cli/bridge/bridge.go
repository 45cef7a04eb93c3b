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
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/host"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
	core "github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/obs"
	"github.com/muster-dev/muster/internal/work"
)

// Adapter is one run of a command for one system. Its options are read before anything else is called.
type Adapter interface {
	// Flags are the system's own options. dropIn says that they are those of muster worker NAME: then they are exactly those of
	// the system's guide, and none of Muster's stands beside them.
	Flags(dropIn bool) []cli.Flag
	// Notes has a line for each given option that has no equivalent: what it does here.
	Notes() []string
	// Machine puts into w what the options say of this machine's worker. It is called for muster worker NAME only.
	Machine(w *work.Config) error
	// Run serves the foreign server: it is called once for the fleet, or for each of its workers at the same time. When
	// env.Taking ends it takes nothing new and returns once everything is reported; when ctx ends it returns at once, and
	// what is not reported stays in env.Dir for the next run.
	Run(ctx context.Context, env Env) error
}

// Once is an Adapter that has options which only show something: then nothing is served.
type Once interface {
	// Once reports whether such an option was given, and did what it says.
	Once(ctx context.Context, app *frame.App) (done bool, err error)
}

// Env is what a bridge is made of.
type Env struct {
	Client *client.Client
	Taking context.Context //nolint:containedctx // it ends before that of Run
	Dir    string          // of this bridge alone, which is there
	Worker string          // name of the only worker that serves, for people; "" for the fleet
	ID     string          // its id; "" for the fleet
	Log    *slog.Logger

	streams *core.Streams // of all bridges of the process, which use one API key
	metrics *obs.Bridge   // the same
}

// core is what the bridges of all systems are made of.
func (e *Env) core() core.Config {
	return core.Config{Client: e.Client, Dir: e.Dir, Worker: e.ID, Streams: e.streams, Metrics: e.metrics, Log: e.Log}
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
func Commands(app *frame.App) (bridge *cli.Command, dropIns []*cli.Command) {
	var bridges []*cli.Command
	for _, s := range systems {
		bridges = append(bridges, bridgeCommand(app, s))
		dropIns = append(dropIns, dropInCommand(app, s))
	}
	return app.Command(frame.Command{
		Name: "bridge", Usage: "run jobs of a QUBIX, DTF, TrainForge or MLOC server on the fleet", Category: frame.SetUp, Commands: bridges,
		About: "A bridge joins the server of another system as a worker. Jobs that it receives run as Muster jobs, and their progress, results, files and failures " +
			"are reported back. Use muster worker NAME to join with this machine alone, without a Muster server.",
	}), dropIns
}

// Variables is an Adapter that reads variables which are no options.
type Variables interface {
	Variables(dropIn bool) []frame.Row
}

// describe adds the variables that are no options to the help text of a command: those of the adapter, and more.
func describe(cmd *cli.Command, adapter Adapter, dropIn bool, more ...frame.Row) *cli.Command {
	rows := more
	if v, ok := adapter.(Variables); ok {
		rows = append(v.Variables(dropIn), more...)
	}
	if len(rows) > 0 {
		frame.Describe(cmd, frame.Section{Title: "Environment", Rows: rows})
	}
	return cmd
}

// bridgeForeign says what to use in place of options of muster worker NAME that the bridge does not have.
func bridgeForeign(s system) map[string]string {
	all := map[string]string{}
	for _, f := range s.adapter().Flags(true) {
		all[f.Names()[0]] = "it is an option of a worker: use it with muster worker, on the machines of the fleet"
	}
	return all
}

type bridgeConfig struct {
	remote.Remote
	frame.Logging
	host.Watching

	adapter Adapter
	system  system
	data    string
	each    bool
}

func bridgeCommand(app *frame.App, s system) *cli.Command {
	c := &bridgeConfig{adapter: s.adapter(), system: s, Logging: frame.NewLogging()}
	const group = "Bridge"
	return describe(app.Command(frame.Command{
		Name: s.name, Usage: "join " + s.title + " as a worker, and run its jobs on the fleet",
		About: "The API key needs the role submitter. A bridge may be stopped or killed at any time: its jobs keep running, and the next start with the same --data reports them.",
		Flags: slices.Concat(c.adapter.Flags(false), []cli.Flag{
			frame.Option{Name: "each", Usage: "join with one worker for each worker of the fleet (default: one worker with the resources of all)", Group: group}.Variable().On(&c.each),
			frame.Option{Name: "data", Usage: "keep the jobs that are not yet reported in this `FOLDER` (default: muster/bridge/" + s.name + " in the user's data folder)", Group: group}.
				Variable().Text(&c.data),
			c.MetricsFlag("default: none"),
		}, c.FlagsUnder("Muster server"), c.Logging.Flags()),
		Foreign: bridgeForeign(s),
		Run: func(ctx context.Context, args []string) error {
			if err := frame.NoArgs(args); err != nil {
				return err
			}
			return c.run(ctx, app)
		},
	}), c.adapter, false)
}

func (c *bridgeConfig) run(ctx context.Context, app *frame.App) error {
	if done, err := once(ctx, app, c.adapter); done || err != nil {
		return err
	}
	taking, hurried, release := frame.InSteps(ctx)
	defer release()
	log, err := c.Logger(app.Err)
	if err != nil {
		return err
	}
	known, err := c.Connect()
	if err != nil {
		return err
	}
	dir, err := frame.DataFolder(c.data, filepath.Join("bridge", c.system.name))
	if err != nil {
		return err
	}
	note(app, c.adapter)
	return c.With(ctx, log, func(ctx context.Context, w *host.Watched) error {
		env := Env{Client: known, Dir: dir, Log: w.Log, streams: core.NewStreams(), metrics: obs.NewBridge(w.Registry)}
		return c.serve(ctx, taking, hurried, env)
	})
}

// serve runs the bridges until taking ends.
func (c *bridgeConfig) serve(ctx, taking, hurried context.Context, env Env) error {
	known, log := env.Client, env.Log
	// Jobs keep running without their bridge, so the first signal ends it.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(hurried, cancel)()
	defer context.AfterFunc(taking, cancel)()
	answered, err := authorized(ctx, known)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	env.Taking = ctx
	if !answered {
		log.Warn("the Muster server does not answer: trying again until it does", slog.String("server", known.URL()))
		group.Go(func() error { return awaitAuthorized(ctx, known, log, awaitEvery) })
	}
	group.Go(func() error {
		defer cancel() // nothing is to be asked for any more
		if c.each {
			return (&each{adapter: c.adapter, env: env, every: fleetEvery, running: map[muster.WorkerID]*one{}}).serve(ctx)
		}
		return serveOne(ctx, c.adapter, env)
	})
	return group.Wait()
}

// authorized fails if the Muster server refuses the key, or what a bridge does with it: then trying again is of no use. It reports
// whether the server answered.
func authorized(ctx context.Context, c *client.Client) (answered bool, err error) {
	who, err := c.Whoami(ctx)
	switch {
	case muster.CodeOf(err) == muster.Unauthenticated:
		return true, muster.Errorf(muster.Unauthenticated, "the Muster server refuses the bridge: %w; write a key with the role %s with --token-file or MUSTER_TOKEN", err, auth.Submitter)
	case err != nil:
		return false, nil //nolint:nilerr // it is asked again
	}
	return true, auth.Authorize(auth.Principal{KeyID: who.Key, Name: who.Name, Role: auth.Role(who.Role), Project: who.Project}, auth.SubmitJobs, auth.Object{})
}

// awaitEvery is how often a server is asked that did not answer at the start.
const awaitEvery = 5 * time.Second

// awaitAuthorized asks until the server answers, and then is authorized.
func awaitAuthorized(ctx context.Context, c *client.Client, log *slog.Logger, every time.Duration) error {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
		answered, err := authorized(ctx, c)
		if err != nil {
			return err
		}
		if answered {
			log.Info("the Muster server answers")
			return nil
		}
	}
}

// serveOne runs one bridge.
func serveOne(ctx context.Context, adapter Adapter, env Env) error {
	if err := os.MkdirAll(env.Dir, 0o700); err != nil {
		return muster.Errorf(muster.Invalid, "the data folder cannot be made: %w; choose another one with --data", err)
	}
	err := adapter.Run(ctx, env)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// once does what an option asks for that only shows something.
func once(ctx context.Context, app *frame.App, adapter Adapter) (bool, error) {
	if o, ok := adapter.(Once); ok {
		return o.Once(ctx, app)
	}
	return false, nil
}

// note says what options without an equivalent do.
func note(app *frame.App, adapter Adapter) {
	for _, line := range adapter.Notes() {
		app.Say("%s %s", app.Err.Paint(term.Yellow, "muster:"), line)
	}
}
