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
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/daemon"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/obs"
	"github.com/muster-dev/muster/internal/serverd"
	"github.com/muster-dev/muster/internal/workerd"
)

type dropInConfig struct{ command }

func dropInCommand(a *app.App, s system) *cli.Command {
	c := &dropInConfig{newCommand(s)}
	folder := "muster/worker-" + s.name
	if _, named := c.adapter.(NamedWorker); named {
		folder += ", or " + folder + "-NAME with a name,"
	}
	return addEnvHelp(a.NewCommand(app.Command{
		Name: s.name, Usage: "Join " + s.title + " as a worker and run its jobs on this machine",
		Description: "Replaces the worker of " + s.title + ", with the same options and variables. It needs no Muster server: one runs inside the process. " +
			"After the first SIGINT or SIGTERM it takes no new jobs and exits once the running ones are reported, within 30s; the second stops at once.",
		Flags:          c.adapter.Flags(true),
		ForeignOptions: dropInForeignOptions(s),
		Run: func(ctx context.Context, _ []string) error {
			c.readEnv()
			return c.run(ctx, a, dataSubdir(c.adapter, s), c.serve)
		},
	}), c.adapter, true,
		app.HelpRow{Name: "MUSTER_DATA", Usage: "Data directory (default: " + folder + " in the user's data directory)"},
		app.HelpRow{Name: "MUSTER_LOG_FORMAT", Usage: "Log format: text or json (default: text)"},
		app.HelpRow{Name: "MUSTER_LOG_LEVEL", Usage: "Minimum log level: debug, info, warn or error (default: info)"},
		app.HelpRow{Name: "MUSTER_METRICS", Usage: "Serve Prometheus metrics without authentication on this address, such as 127.0.0.1:9700 (default: none)"},
		app.HelpRow{Name: "MUSTER_OTLP", Usage: "Send traces to this OpenTelemetry collector, such as http://127.0.0.1:4318 (default: OTEL_EXPORTER_OTLP_ENDPOINT)"})
}

// dropInForeignOptions returns replacements for options of muster bridge.
func dropInForeignOptions(s system) map[string]string {
	all := map[string]string{}
	for _, name := range []string{"server", "token", "token-file", "each"} {
		all[name] = "use it with muster bridge " + s.name
	}
	for _, name := range []string{"data", "log-format", "log-level", "metrics", "otlp"} {
		all[name] = "set the variable " + app.Option{Name: name}.WithEnv().Env
	}
	if len(s.adapter().Flags(true)) > 0 {
		return all
	}
	for _, f := range s.adapter().Flags(false) { // the workers of the system have variables only
		if d, ok := f.(cli.DocGenerationFlag); ok && len(d.GetEnvVars()) > 0 {
			all[f.Names()[0]] = "set the variable " + d.GetEnvVars()[0]
		}
	}
	return all
}

// readEnv reads the settings of Muster, which are not options of muster worker NAME.
func (c *dropInConfig) readEnv() {
	if l, ok := c.adapter.(interface{ LogLevel() string }); ok && l.LogLevel() != "" { // the system has a variable for it
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

// NamedWorker is an Adapter that supports several workers on a machine, with names.
type NamedWorker interface {
	// WorkerName returns the name, "" if none was given.
	WorkerName() string
}

// dataSubdir returns the data directory of a worker below muster in the user's data directory.
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

// drainGrace limits the time for running tasks and reports after the first signal.
const drainGrace = 30 * time.Second

// serve runs the server, the worker and the bridge until acceptCtx ends.
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
	// The bridge stops first and the server last, so that all jobs can be reported.
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

// bridge runs the worker and the bridge. After acceptCtx ends, the bridge has drainGrace to report running jobs; then the worker stops.
func (c *dropInConfig) bridge(ctx, acceptCtx, forceCtx context.Context, cfg workerd.Config, deps Deps, tel *daemon.Telemetry) error {
	workerCtx, stopWorking := context.WithCancel(ctx)
	defer stopWorking()
	bridgeCtx, stopBridging := context.WithCancel(ctx)
	defer stopBridging()
	defer context.AfterFunc(forceCtx, stopBridging)()
	defer context.AfterFunc(acceptCtx, func() { time.AfterFunc(drainGrace, stopBridging) })()
	group, _ := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer stopBridging() // the bridge needs the worker
		return daemon.RunWorker(workerCtx, forceCtx, cfg, tel, tel.Log.With(slog.String("part", "worker")))
	})
	group.Go(func() error {
		defer stopWorking()
		return runBridge(bridgeCtx, c.adapter, deps)
	})
	return group.Wait()
}

// gatedTransport blocks requests until ready is closed: a bridge validates its options at once, and registers
// with the resources of this machine after its worker has joined.
type gatedTransport struct {
	http.RoundTripper

	ready chan struct{}
}

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
	for ctx.Err() == nil {
		workers, err := c.Workers(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if slices.ContainsFunc(workers, func(w muster.Worker) bool { return w.State != muster.WorkerGone && w.State != muster.WorkerUnreachable }) {
			return nil
		}
		_ = backoff.Sleep(ctx, 100*time.Millisecond)
	}
	return nil
}
