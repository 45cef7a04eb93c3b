package daemon

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/obs"
	"github.com/muster-dev/muster/internal/workerd"
)

// TelemetryOptions configures metrics and traces of a server, a worker or a bridge.
type TelemetryOptions struct {
	Metrics string // address; "" means none
	OTLP    string // URL of a collector; "" means the standard environment variables
}

// TelemetryFlags returns the options of a server and a worker.
func (c *TelemetryOptions) TelemetryFlags() []cli.Flag {
	return []cli.Flag{
		c.MetricsFlag("default: only /metrics of the API, with a key"),
		app.Option{Name: "otlp", Value: "url", Usage: "Send traces to this OpenTelemetry collector, such as http://127.0.0.1:4318 (default: OTEL_EXPORTER_OTLP_ENDPOINT)", Group: telemetryGroup}.
			WithEnv().StringVar(&c.OTLP),
	}
}

const telemetryGroup = "Observability"

// MetricsFlag returns the option for metrics. defaultText describes its default.
func (c *TelemetryOptions) MetricsFlag(defaultText string) cli.Flag {
	return app.Option{Name: "metrics", Value: "address", Usage: "Serve Prometheus metrics without authentication on this address, such as 127.0.0.1:9700 (" + defaultText + ")", Group: telemetryGroup}.
		WithEnv().StringVar(&c.Metrics)
}

// Telemetry collects metrics and traces of a server, a worker or a bridge.
type Telemetry struct {
	TelemetryOptions

	Registry *obs.Registry
	Attempts *obs.AttemptTraces
	Log      *slog.Logger // adds the trace ids of attempts
	tracers  []*obs.Tracer
}

// flushTimeout limits sending the last spans.
const flushTimeout = 5 * time.Second

// WithTelemetry runs fn with telemetry, and serves metrics and sends traces until it returns.
func (c *TelemetryOptions) WithTelemetry(ctx context.Context, log *slog.Logger, fn func(context.Context, *Telemetry) error) error {
	build := app.CurrentBuild()
	w := &Telemetry{TelemetryOptions: *c, Registry: obs.NewRegistry(obs.Build{Version: build.Version, Revision: build.Commit}), Attempts: obs.NewAttemptTraces()}
	w.Log = obs.Logger(log, w.Attempts)
	var endpoint *obs.Endpoint
	if c.Metrics != "" {
		var err error
		if endpoint, err = obs.Listen(ctx, c.Metrics, w.Registry, w.Log); err != nil {
			return err
		}
	}
	serveCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var group errgroup.Group
	if endpoint != nil {
		group.Go(func() error {
			if err := endpoint.Run(serveCtx); err != nil {
				w.Log.Error("metrics endpoint failed", slog.Any("error", err)) // not a reason to stop
			}
			return nil
		})
	}
	err := fn(ctx, w)
	stop()
	w.flush(ctx)
	return errors.Join(err, group.Wait())
}

// Tracer returns the tracer of a service, nil without a collector. Its last spans are sent when WithTelemetry returns.
func (w *Telemetry) Tracer(ctx context.Context, service string) (*obs.Tracer, error) {
	t, err := obs.NewTracer(ctx, obs.TraceConfig{Service: service, Version: app.CurrentBuild().Version, Endpoint: w.OTLP}, w.Registry, w.Log)
	if t != nil {
		w.tracers = append(w.tracers, t)
	}
	return t, err
}

// instrument adds telemetry to the configuration of a worker.
func (w *Telemetry) instrument(ctx context.Context, cfg *workerd.Config) (err error) {
	cfg.Metrics, cfg.Attempts = w.Registry, w.Attempts
	cfg.Tracer, err = w.Tracer(ctx, "muster-worker")
	return err
}

// flush sends the remaining spans.
func (w *Telemetry) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	for _, t := range w.tracers {
		if err := t.Close(ctx); err != nil {
			w.Log.Warn("sending the last traces failed", slog.Any("error", err))
		}
	}
}
