package host

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/obs"
)

// watching is how a server or a worker is watched by other systems.
type watching struct {
	metrics string // address; "" for none
	otlp    string // URL of a collector; "" for what the standard variables say
}

func (c *watching) flags() []cli.Flag {
	const group = "Observability"
	return []cli.Flag{
		frame.Option{Name: "metrics", Usage: "serve metrics for Prometheus at this `ADDRESS`, such as 127.0.0.1:9700, without a key (default: only /metrics of the API, with a key)", Group: group}.
			Variable().Text(&c.metrics),
		frame.Option{Name: "otlp", Usage: "send traces to the OpenTelemetry collector at this `URL`, such as http://127.0.0.1:4318 (default: OTEL_EXPORTER_OTLP_ENDPOINT)", Group: group}.
			Variable().Text(&c.otlp),
	}
}

// watched is what a server or a worker is measured with.
type watched struct {
	watching

	registry *obs.Registry
	attempts *obs.Attempts
	log      *slog.Logger // its lines have the traces of attempts
	tracers  []*obs.Tracer
}

// flushWithin is how long sending the last spans may take.
const flushWithin = 5 * time.Second

// with runs do with what measures it, and serves and sends what is measured.
func (c *watching) with(ctx context.Context, log *slog.Logger, do func(context.Context, *watched) error) error {
	build := frame.BuildVersion()
	w := &watched{watching: *c, registry: obs.NewRegistry(obs.Build{Version: build.Version, Revision: build.Commit}), attempts: obs.NewAttempts()}
	w.log = obs.Logger(log, w.attempts)
	var endpoint *obs.Endpoint
	if c.metrics != "" {
		var err error
		if endpoint, err = obs.Listen(ctx, c.metrics, w.registry, w.log); err != nil {
			return err
		}
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var group errgroup.Group
	if endpoint != nil {
		group.Go(func() error {
			if err := endpoint.Run(serving); err != nil {
				w.log.Error("metrics are not served any more", slog.Any("error", err)) // the tasks are worth more
			}
			return nil
		})
	}
	err := do(ctx, w)
	stop()
	w.flush(ctx)
	return errors.Join(err, group.Wait())
}

// tracer makes the tracer of a service, nil if nothing is traced. Its last spans are sent when with returns.
func (w *watched) tracer(ctx context.Context, service string) (*obs.Tracer, error) {
	t, err := obs.NewTracer(ctx, obs.TraceConfig{Service: service, Version: frame.BuildVersion().Version, Endpoint: w.otlp}, w.registry, w.log)
	if t != nil {
		w.tracers = append(w.tracers, t)
	}
	return t, err
}

// flush sends what was not sent of traces.
func (w *watched) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWithin)
	defer cancel()
	for _, t := range w.tracers {
		if err := t.Close(ctx); err != nil {
			w.log.Warn("the last traces cannot be sent", slog.Any("error", err))
		}
	}
}
