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

// TelemetryOptions is how a server, a worker or a bridge is watched by other systems.
type TelemetryOptions struct {
	Metrics string // address; "" for none
	OTLP    string // URL of a collector; "" for what the standard variables say
}

// TelemetryFlags are the options of a server and a worker.
func (c *TelemetryOptions) TelemetryFlags() []cli.Flag {
	return []cli.Flag{
		c.MetricsFlag("default: only /metrics of the API, with a key"),
		app.Option{Name: "otlp", Usage: "send traces to the OpenTelemetry collector at this `URL`, such as http://127.0.0.1:4318 (default: OTEL_EXPORTER_OTLP_ENDPOINT)", Group: telemetryGroup}.
			WithEnv().StringVar(&c.OTLP),
	}
}

const telemetryGroup = "Observability"

// MetricsFlag is the option for metrics. standard says what is there without it.
func (c *TelemetryOptions) MetricsFlag(defaultText string) cli.Flag {
	return app.Option{Name: "metrics", Usage: "serve metrics for Prometheus at this `ADDRESS`, such as 127.0.0.1:9700, without a key (" + defaultText + ")", Group: telemetryGroup}.
		WithEnv().StringVar(&c.Metrics)
}

// Telemetry is what a server, a worker or a bridge is measured with.
type Telemetry struct {
	TelemetryOptions

	Registry *obs.Registry
	Attempts *obs.AttemptTraces
	Log      *slog.Logger // its lines have the traces of attempts
	tracers  []*obs.Tracer
}

// flushTimeout is how long sending the last spans may take.
const flushTimeout = 5 * time.Second

// WithTelemetry runs do with what measures it, and serves and sends what is measured.
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
				w.Log.Error("metrics are not served any more", slog.Any("error", err)) // the tasks are worth more
			}
			return nil
		})
	}
	err := fn(ctx, w)
	stop()
	w.flush(ctx)
	return errors.Join(err, group.Wait())
}

// Tracer makes the tracer of a service, nil if nothing is traced. Its last spans are sent when With returns.
func (w *Telemetry) Tracer(ctx context.Context, service string) (*obs.Tracer, error) {
	t, err := obs.NewTracer(ctx, obs.TraceConfig{Service: service, Version: app.CurrentBuild().Version, Endpoint: w.OTLP}, w.Registry, w.Log)
	if t != nil {
		w.tracers = append(w.tracers, t)
	}
	return t, err
}

// instrument has a worker measured.
func (w *Telemetry) instrument(ctx context.Context, cfg *workerd.Config) (err error) {
	cfg.Metrics, cfg.Attempts = w.Registry, w.Attempts
	cfg.Tracer, err = w.Tracer(ctx, "muster-worker")
	return err
}

// flush sends what was not sent of traces.
func (w *Telemetry) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	for _, t := range w.tracers {
		if err := t.Close(ctx); err != nil {
			w.Log.Warn("the last traces cannot be sent", slog.Any("error", err))
		}
	}
}
