package obs

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/traceparent"
)

// TraceConfig says where traces go.
type TraceConfig struct {
	Service  string // service.name, unless OTEL_SERVICE_NAME says another
	Version  string
	Endpoint string // base URL of a collector; "" for what OTEL_EXPORTER_OTLP_ENDPOINT and its like say
}

// Tracer makes the spans of jobs. A nil Tracer makes none.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	sampler  sdktrace.Sampler
	batches  chan batch
	queue    *queue

	mu      sync.Mutex
	reports map[muster.AttemptID]unsettled // of a worker: ended, and not acknowledged
}

// NewTracer returns the tracer of a server or a worker, and nil if nothing says where traces go. Spans are counted in r. The rest of its
// settings are the standard variables of OpenTelemetry.
func NewTracer(ctx context.Context, cfg TraceConfig, r *Registry, log *slog.Logger) (*Tracer, error) {
	if !cfg.enabled() {
		return nil, nil //nolint:nilnil // a nil Tracer makes no spans
	}
	options, err := cfg.options()
	if err != nil {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "traces cannot be exported: %w", err)
	}
	res, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", cfg.Service), attribute.String("service.version", cfg.Version)), resource.WithHost(), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "OTEL_RESOURCE_ATTRIBUTES cannot be used: %w", err)
	}
	sampler, err := samplerFrom(os.Getenv("OTEL_TRACES_SAMPLER"), os.Getenv("OTEL_TRACES_SAMPLER_ARG"))
	if err != nil {
		return nil, err
	}
	q := newQueue(r.spans.WithLabelValues("dropped"))
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(&counting{exporter: exporter, queue: q, sent: r.spans.WithLabelValues("sent"), failed: r.spans.WithLabelValues("failed"), log: log},
			sdktrace.WithMaxQueueSize(q.size)),
		sdktrace.WithResource(res), sdktrace.WithIDGenerator(identifiers{}), sdktrace.WithSampler(sdktrace.AlwaysSample()), // see sampled
	)
	return &Tracer{
		provider: provider, tracer: provider.Tracer("github.com/muster-dev/muster", trace.WithInstrumentationVersion(cfg.Version)), sampler: sampler,
		batches: make(chan batch, maxBatches), queue: q, reports: map[muster.AttemptID]unsettled{},
	}, nil
}

// enabled says whether there is somewhere to send traces to.
func (c *TraceConfig) enabled() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return c.Endpoint != "" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

const tracesPath = "v1/traces"

func (c *TraceConfig) options() ([]otlptracehttp.Option, error) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if v := os.Getenv(name); v != "" && v != "http/protobuf" {
			return nil, muster.Errorf(muster.Invalid, "%s is %q: Muster sends traces as http/protobuf only, which collectors take at port 4318", name, v)
		}
	}
	if c.Endpoint == "" {
		return nil, nil
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, muster.Errorf(muster.Invalid, "%q is not the URL of a collector: write --otlp such as http://127.0.0.1:4318", c.Endpoint)
	}
	if !strings.HasSuffix(u.Path, "/"+tracesPath) {
		u = u.JoinPath(tracesPath)
	}
	return []otlptracehttp.Option{otlptracehttp.WithEndpointURL(u.String())}, nil
}

// samplerFrom reads the standard variables. The SDK decides for each span, by its parent; here it is decided once for a job, by server and workers alike.
func samplerFrom(name, arg string) (sdktrace.Sampler, error) {
	ratio := 1.0
	if strings.HasSuffix(name, "traceidratio") && arg != "" {
		var err error
		if ratio, err = strconv.ParseFloat(arg, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
			return nil, muster.Errorf(muster.Invalid, "OTEL_TRACES_SAMPLER_ARG is %q: write a ratio from 0 to 1", arg)
		}
	}
	switch name {
	case "", "parentbased_always_on":
		return sdktrace.ParentBased(sdktrace.AlwaysSample()), nil
	case "parentbased_always_off":
		return sdktrace.ParentBased(sdktrace.NeverSample()), nil
	case "parentbased_traceidratio":
		return sdktrace.ParentBased(sdktrace.TraceIDRatioBased(ratio)), nil
	case "always_on":
		return sdktrace.AlwaysSample(), nil
	case "always_off":
		return sdktrace.NeverSample(), nil
	case "traceidratio":
		return sdktrace.TraceIDRatioBased(ratio), nil
	default:
		return nil, muster.Errorf(muster.Invalid, "OTEL_TRACES_SAMPLER is %q: write one of always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off, parentbased_traceidratio", name)
	}
}

// Close sends what was not sent yet.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// job is the trace of a job.
type job struct {
	uid    string
	trace  trace.TraceID
	parent trace.SpanContext // in which the job was submitted; not valid for none
}

// jobOf returns the trace of a job, and whether it is recorded.
func (t *Tracer) jobOf(uid string) (job, bool) {
	if uid == "" { // of a server before it had them
		return job{}, false
	}
	j := job{uid: uid, trace: traceparent.TraceID(uid)}
	ctx := context.Background()
	if p, ok := traceparent.Of(uid); ok {
		j.parent = trace.NewSpanContext(trace.SpanContextConfig{TraceID: p.Trace, SpanID: p.Span, TraceFlags: trace.TraceFlags(p.Flags), Remote: true})
		ctx = trace.ContextWithRemoteSpanContext(ctx, j.parent)
	}
	d := t.sampler.ShouldSample(sdktrace.SamplingParameters{ParentContext: ctx, TraceID: j.trace, Name: "job"}).Decision
	return j, d == sdktrace.RecordAndSample
}

// at is the context of one of the job's spans, by what it is of.
func (j *job) at(of string) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: j.trace, SpanID: traceparent.SpanID(j.uid, of), TraceFlags: trace.FlagsSampled, Remote: true})
}

// span is a span that is over.
type span struct {
	name       string
	of         string            // that its identifier is derived from, for those that are the parent of others; "" for any identifier
	parent     trace.SpanContext // not valid for none
	kind       trace.SpanKind
	start, end time.Time
	attributes []attribute.KeyValue
	failed     string // why what it stands for failed; "" if it did not
	event      string // that happened in it, or ""
	eventAt    time.Time
}

// emit records a span. It drops and counts it if the queue is full.
func (t *Tracer) emit(j *job, s *span) {
	if !t.queue.enter() {
		return
	}
	ctx := context.Background()
	if s.of != "" {
		ctx = context.WithValue(ctx, wantedKey{}, j.at(s.of))
	}
	if s.parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, s.parent)
	}
	_, recorded := t.tracer.Start(ctx, s.name, trace.WithTimestamp(s.start), trace.WithSpanKind(s.kind), trace.WithAttributes(s.attributes...))
	if s.event != "" {
		recorded.AddEvent(s.event, trace.WithTimestamp(s.eventAt))
	}
	if s.failed != "" {
		recorded.SetStatus(codes.Error, s.failed)
	}
	recorded.End(trace.WithTimestamp(later(s.end, s.start)))
}

// later returns the later one of two times: clocks of two machines may differ.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

type wantedKey struct{}

// identifiers gives spans the identifiers that emit wants, and others any.
type identifiers struct{}

// NewIDs implements sdktrace.IDGenerator.
func (identifiers) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if c, ok := ctx.Value(wantedKey{}).(trace.SpanContext); ok {
		return c.TraceID(), c.SpanID()
	}
	var id trace.TraceID
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())   //nolint:gosec // no secret
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64()|1) //nolint:gosec // no secret
	return id, anySpan()
}

// NewSpanID implements sdktrace.IDGenerator.
func (identifiers) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if c, ok := ctx.Value(wantedKey{}).(trace.SpanContext); ok {
		return c.SpanID()
	}
	return anySpan()
}

func anySpan() (id trace.SpanID) {
	binary.NativeEndian.PutUint64(id[:], rand.Uint64()|1) //nolint:gosec // no secret
	return id
}

// queue counts the spans that are recorded and not exported yet. The SDK's processor drops spans silently when its own queue is full, which
// never has more than these.
type queue struct {
	size    int
	waiting atomic.Int64
	left    chan struct{} // some were exported
	dropped prometheus.Counter
}

// newQueue makes a queue of the size that OTEL_BSP_MAX_QUEUE_SIZE says.
func newQueue(dropped prometheus.Counter) *queue {
	size, err := strconv.Atoi(os.Getenv("OTEL_BSP_MAX_QUEUE_SIZE"))
	if err != nil || size < 1 {
		size = sdktrace.DefaultMaxQueueSize
	}
	return &queue{size: max(size, spansAtOnce), left: make(chan struct{}, 1), dropped: dropped}
}

// enter counts a span, or drops it.
func (q *queue) enter() bool {
	if q.waiting.Add(1) > int64(q.size) {
		q.waiting.Add(-1)
		q.dropped.Inc()
		return false
	}
	return true
}

// leave counts spans that were exported.
func (q *queue) leave(n int) {
	q.waiting.Add(int64(-n))
	select {
	case q.left <- struct{}{}:
	default:
	}
}

// room waits until there is room for spansAtOnce, or ctx ends. One goroutine at a time may wait.
func (q *queue) room(ctx context.Context) {
	for q.waiting.Load()+spansAtOnce > int64(q.size) {
		select {
		case <-q.left:
		case <-ctx.Done():
			return
		}
	}
}

// counting is an exporter that counts spans, and logs in place of the SDK's global logger.
type counting struct {
	exporter     sdktrace.SpanExporter
	queue        *queue
	sent, failed prometheus.Counter
	log          *slog.Logger

	mu     sync.Mutex
	logged time.Time
}

// logEvery is the time between two lines about exports that fail.
const logEvery = time.Minute

// ExportSpans implements sdktrace.SpanExporter. It returns no error: nobody could do more about it.
func (c *counting) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := c.exporter.ExportSpans(ctx, spans)
	c.queue.leave(len(spans))
	if err == nil {
		c.sent.Add(float64(len(spans)))
		return nil
	}
	c.failed.Add(float64(len(spans)))
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.logged) >= logEvery {
		c.logged = time.Now()
		c.log.Warn("traces cannot be sent to the collector", slog.Any("error", err), slog.Int("spans", len(spans)))
	}
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (c *counting) Shutdown(ctx context.Context) error { return c.exporter.Shutdown(ctx) }
