package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/daemon"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/obs"
	"github.com/muster-dev/muster/internal/serverd"
	"github.com/muster-dev/muster/internal/workerd"
)

// dropInConfig is one run of muster worker NAME.
type dropInConfig struct {
	app.LogOptions
	daemon.TelemetryOptions

	adapter Adapter
	system  system
	data    string
}

func dropInCommand(a *app.App, s system) *cli.Command {
	c := &dropInConfig{adapter: s.adapter(), system: s, LogOptions: app.DefaultLogOptions()}
	folder := "muster/worker-" + s.name
	if _, named := c.adapter.(NamedWorker); named {
		folder += ", or " + folder + "-NAME where it has a name,"
	}
	return addEnvHelp(a.NewCommand(app.Command{
		Name: s.name, Usage: "join " + s.title + " as a worker, and run its jobs on this machine",
		Description: "It replaces the worker of " + s.title + " and takes the same options and variables. No Muster server is needed: one runs inside the process. " +
			"After the first SIGINT or SIGTERM it takes no more jobs and exits once the running ones are reported, within 30s; the second stops at once.",
		Flags:          c.adapter.Flags(true),
		ForeignOptions: dropInForeignOptions(s),
		Run: func(ctx context.Context, args []string) error {
			if err := app.NoArgs(args); err != nil {
				return err
			}
			return c.run(ctx, a)
		},
	}), c.adapter, true,
		app.HelpRow{Name: "MUSTER_DATA", Usage: "keep everything in this folder (default: " + folder + " in the user's data folder)"},
		app.HelpRow{Name: "MUSTER_LOG_FORMAT", Usage: "log as text or json (default: text)"},
		app.HelpRow{Name: "MUSTER_LOG_LEVEL", Usage: "log from this level on: debug, info, warn or error (default: info)"},
		app.HelpRow{Name: "MUSTER_METRICS", Usage: "serve metrics for Prometheus at this address, such as 127.0.0.1:9700, without a key (default: none)"},
		app.HelpRow{Name: "MUSTER_OTLP", Usage: "send traces to the OpenTelemetry collector at this URL, such as http://127.0.0.1:4318 (default: OTEL_EXPORTER_OTLP_ENDPOINT)"})
}

// dropInForeignOptions says what to use in place of options of muster bridge.
func dropInForeignOptions(s system) map[string]string {
	all := map[string]string{}
	for _, name := range []string{"server", "token", "token-file", "each"} {
		all[name] = "it is an option of muster bridge " + s.name
	}
	for _, name := range []string{"data", "log-format", "log-level", "metrics", "otlp"} {
		all[name] = "set the variable " + app.Option{Name: name}.WithEnv().Env
	}
	if len(s.adapter().Flags(true)) > 0 {
		return all
	}
	for _, f := range s.adapter().Flags(false) { // of a system whose workers have variables only
		if d, ok := f.(cli.DocGenerationFlag); ok && len(d.GetEnvVars()) > 0 {
			all[f.Names()[0]] = "set the variable " + d.GetEnvVars()[0]
		}
	}
	return all
}

// readEnv takes what only the environment says, as the guide's options leave no room for Muster's own.
func (c *dropInConfig) readEnv() {
	if l, ok := c.adapter.(interface{ LogLevel() string }); ok && l.LogLevel() != "" { // of systems that have a variable for it
		c.Level = l.LogLevel()
	}
	for name, dst := range map[string]*string{
		"MUSTER_DATA": &c.data, "MUSTER_LOG_LEVEL": &c.Level, "MUSTER_LOG_FORMAT": &c.Format, "MUSTER_METRICS": &c.Metrics, "MUSTER_OTLP": &c.OTLP,
	} {
		if v := os.Getenv(name); v != "" {
			*dst = v
		}
	}
}

// NamedWorker is an Adapter whose options may name one of several workers on a machine.
type NamedWorker interface {
	// WorkerName is that name, "" if none was given.
	WorkerName() string
}

// dataSubdir is the folder of a worker below muster in the user's data folder: each that has a name has its own.
func dataSubdir(adapter Adapter, s system) string {
	folder := "worker-" + s.name
	n, ok := adapter.(NamedWorker)
	if !ok || n.WorkerName() == "" {
		return folder
	}
	name := n.WorkerName()
	if !filepath.IsLocal(name) || len(name) > 64 || strings.ContainsAny(name, `/\:`) || strings.HasPrefix(name, ".") {
		sum := sha256.Sum256([]byte(name))
		name = hex.EncodeToString(sum[:8])
	}
	return folder + "-" + name
}

// drainGrace is how long the tasks of a drop-in that is told to stop may run on and be reported.
const drainGrace = 30 * time.Second

func (c *dropInConfig) run(ctx context.Context, a *app.App) error {
	if done, err := runOneShot(ctx, a, c.adapter); done || err != nil {
		return err
	}
	acceptCtx, forceCtx, release := app.ShutdownContexts(ctx)
	defer release()
	c.readEnv()
	log, err := c.Logger(a.Err)
	if err != nil {
		return err
	}
	dir, err := app.DataDir(c.data, dataSubdir(c.adapter, c.system))
	if err != nil {
		return err
	}
	printNotes(a, c.adapter)
	return c.WithTelemetry(ctx, log, func(ctx context.Context, w *daemon.Telemetry) error { return c.serve(ctx, acceptCtx, forceCtx, dir, w) })
}

// serve runs the server, the worker and the bridge until taking ends.
func (c *dropInConfig) serve(ctx, acceptCtx, forceCtx context.Context, dir string, w *daemon.Telemetry) error {
	log := w.Log
	tracer, err := w.Tracer(ctx, "muster-server")
	if err != nil {
		return err
	}
	server, err := serverd.New(ctx, serverd.Config{
		Private: true, Data: filepath.Join(dir, "server"), Heartbeat: muster.Duration(5 * time.Second), Version: app.CurrentBuild().Version,
		Metrics: w.Registry, Tracer: tracer,
	}, log.With(slog.String("part", "server")))
	if err != nil {
		return err
	}
	cfg := workerd.Config{Data: filepath.Join(dir, "worker")}
	if err := c.adapter.ConfigureWorker(&cfg); err != nil {
		return err
	}
	// The server outlives the worker, and both the bridge, so that everything can be reported.
	serveCtx, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	group, serveCtx := errgroup.WithContext(serveCtx)
	group.Go(func() error { return server.Run(serveCtx) })
	group.Go(func() error {
		defer stopServing()
		local, err := server.Local(serveCtx)
		if err != nil {
			return err
		}
		direct, err := client.New(local.URL, local.SubmitterKey, client.Options{HTTP: local.HTTP, UserAgent: "muster-bridge"})
		if err != nil {
			return err
		}
		gated := &gatedTransport{RoundTripper: local.HTTP.Transport, ready: make(chan struct{})}
		group.Go(func() error {
			defer close(gated.ready)
			return awaitWorker(serveCtx, direct)
		})
		api, err := client.New(local.URL, local.SubmitterKey, client.Options{HTTP: &http.Client{Transport: gated}, UserAgent: "muster-bridge"})
		if err != nil {
			return err
		}
		cfg.Server, cfg.Token, cfg.HTTP = local.URL, local.JoinToken, local.HTTP
		deps := Deps{Client: api, AcceptCtx: acceptCtx, Dir: filepath.Join(dir, "bridge"), Log: log, metrics: obs.NewBridge(w.Registry)}
		return c.bridge(serveCtx, acceptCtx, forceCtx, cfg, deps, w)
	})
	return group.Wait()
}

// bridge runs the worker and the bridge. Once taking ends, the bridge has grace to report what runs; then the worker stops.
func (c *dropInConfig) bridge(ctx, acceptCtx, forceCtx context.Context, cfg workerd.Config, deps Deps, tel *daemon.Telemetry) error {
	workerCtx, stopWorking := context.WithCancel(ctx)
	defer stopWorking()
	bridgeCtx, stopBridging := context.WithCancel(ctx)
	defer stopBridging()
	defer context.AfterFunc(forceCtx, stopBridging)()
	graceTimer := time.AfterFunc(24*time.Hour, stopBridging) // set below, once it is told to stop
	graceTimer.Stop()
	defer graceTimer.Stop()
	defer context.AfterFunc(acceptCtx, func() { graceTimer.Reset(drainGrace) })()
	group, _ := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer stopBridging() // without its worker the bridge has nothing to offer
		return daemon.RunWorker(workerCtx, forceCtx, cfg, tel, tel.Log.With(slog.String("part", "worker")))
	})
	group.Go(func() error {
		defer stopWorking()
		return runBridge(bridgeCtx, c.adapter, deps)
	})
	return group.Wait()
}

// gatedTransport holds back requests until open is closed. The client of a bridge has one, so that the bridge learns at once what is wrong with its options,
// and registers with the resources of this machine once its worker has joined.
type gatedTransport struct {
	http.RoundTripper

	ready chan struct{}
}

// RoundTrip implements http.RoundTripper.
func (g *gatedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-g.ready:
		return g.RoundTripper.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// awaitWorker returns when the worker of this machine has joined, or when ctx ends.
func awaitWorker(ctx context.Context, c *client.Client) error {
	const interval = 100 * time.Millisecond
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		workers, err := c.Workers(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case slices.ContainsFunc(workers, func(w muster.Worker) bool { return w.State != muster.WorkerGone && w.State != muster.WorkerUnreachable }):
			return nil
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
	}
}
