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

// TraceConfig configures a Tracer.
type TraceConfig struct {
	Service  string // service.name, if OTEL_SERVICE_NAME is not set
	Version  string
	Endpoint string // base URL of a collector; "" for OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT
}

// Tracer emits the spans of jobs. The methods of a nil Tracer do nothing.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	sampler  sdktrace.Sampler
	batches  chan queuedBatch
	queue    *spanQueue

	mu             sync.Mutex
	pendingReports map[muster.AttemptID]pendingReport // of a worker
}

// NewTracer returns the tracer of a server or a worker, or nil if no collector is configured. It counts spans in r. Other
// settings are the standard variables of OpenTelemetry.
func NewTracer(ctx context.Context, cfg TraceConfig, r *Registry, log *slog.Logger) (*Tracer, error) {
	if !cfg.enabled() {
		return nil, nil //nolint:nilnil // a nil Tracer emits nothing
	}
	options, err := cfg.options()
	if err != nil {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "cannot export traces: %w", err)
	}
	res, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", cfg.Service), attribute.String("service.version", cfg.Version)), resource.WithHost(), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "invalid OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	sampler, err := samplerFrom(os.Getenv("OTEL_TRACES_SAMPLER"), os.Getenv("OTEL_TRACES_SAMPLER_ARG"))
	if err != nil {
		return nil, err
	}
	q := newSpanQueue(r.spans.WithLabelValues("dropped"))
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(&countingExporter{exporter: exporter, queue: q, sent: r.spans.WithLabelValues("sent"), failed: r.spans.WithLabelValues("failed"), log: log},
			sdktrace.WithMaxQueueSize(q.size)),
		sdktrace.WithResource(res), sdktrace.WithIDGenerator(idGenerator{}), sdktrace.WithSampler(sdktrace.AlwaysSample()), // traceOf samples
	)
	return &Tracer{
		provider: provider, tracer: provider.Tracer("github.com/muster-dev/muster", trace.WithInstrumentationVersion(cfg.Version)), sampler: sampler,
		batches: make(chan queuedBatch, maxBatches), queue: q, pendingReports: map[muster.AttemptID]pendingReport{},
	}, nil
}

// enabled reports whether a collector is configured.
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
			return nil, muster.Errorf(muster.Invalid, "%s is %q: Muster supports only http/protobuf, usually at port 4318 of a collector", name, v)
		}
	}
	if c.Endpoint == "" {
		return nil, nil
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, muster.Errorf(muster.Invalid, "%q is not the URL of a collector: set --otlp to one such as http://127.0.0.1:4318", muster.HideCredentials(c.Endpoint))
	}
	if !strings.HasSuffix(u.Path, "/"+tracesPath) {
		u = u.JoinPath(tracesPath)
	}
	return []otlptracehttp.Option{otlptracehttp.WithEndpointURL(u.String())}, nil
}

// samplerFrom returns the sampler of the standard variables. The SDK samples each span, by its parent; here the server and the workers sample jobs.
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

// Close sends the remaining spans.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// jobTrace is the trace of a job.
type jobTrace struct {
	uid    string
	trace  trace.TraceID
	parent trace.SpanContext // in which the job was submitted; not valid if there is none
}

// traceOf returns the trace of a job, and whether it is recorded.
func (t *Tracer) traceOf(uid string) (jobTrace, bool) {
	if uid == "" { // of a job of an old server
		return jobTrace{}, false
	}
	j := jobTrace{uid: uid, trace: traceparent.TraceID(uid)}
	ctx := context.Background()
	if p, ok := traceparent.ParentOf(uid); ok {
		j.parent = trace.NewSpanContext(trace.SpanContextConfig{TraceID: p.Trace, SpanID: p.Span, TraceFlags: trace.TraceFlags(p.Flags), Remote: true})
		ctx = trace.ContextWithRemoteSpanContext(ctx, j.parent)
	}
	d := t.sampler.ShouldSample(sdktrace.SamplingParameters{ParentContext: ctx, TraceID: j.trace, Name: "job"}).Decision
	return j, d == sdktrace.RecordAndSample
}

// spanContext returns the context of the job's span with a key.
func (j *jobTrace) spanContext(key string) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: j.trace, SpanID: traceparent.SpanID(j.uid, key), TraceFlags: trace.FlagsSampled, Remote: true})
}

// span is an ended span.
type span struct {
	name       string
	key        string            // from which its id is derived, if it is the parent of others; "" for a random id
	parent     trace.SpanContext // not valid if there is none
	kind       trace.SpanKind
	start, end time.Time
	attributes []attribute.KeyValue
	failure    string // error message, or ""
	event      string // name of an event, or ""
	eventAt    time.Time
}

// emit records a span. It drops and counts it if the queue is full.
func (t *Tracer) emit(j *jobTrace, s *span) {
	if !t.queue.tryAdd() {
		return
	}
	ctx := context.Background()
	if s.key != "" {
		ctx = context.WithValue(ctx, spanContextKey{}, j.spanContext(s.key))
	}
	if s.parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, s.parent)
	}
	_, recorded := t.tracer.Start(ctx, s.name, trace.WithTimestamp(s.start), trace.WithSpanKind(s.kind), trace.WithAttributes(s.attributes...))
	if s.event != "" {
		recorded.AddEvent(s.event, trace.WithTimestamp(s.eventAt))
	}
	if s.failure != "" {
		recorded.SetStatus(codes.Error, s.failure)
	}
	recorded.End(trace.WithTimestamp(latest(s.end, s.start)))
}

// latest returns the later of two times, because clocks of two machines may differ.
func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

type spanContextKey struct{}

// idGenerator returns the ids that emit put into the context, or random ones.
type idGenerator struct{}

// NewIDs implements sdktrace.IDGenerator.
func (idGenerator) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if c, ok := ctx.Value(spanContextKey{}).(trace.SpanContext); ok {
		return c.TraceID(), c.SpanID()
	}
	var id trace.TraceID
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())   //nolint:gosec // no secret
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64()|1) //nolint:gosec // no secret
	return id, randomSpanID()
}

// NewSpanID implements sdktrace.IDGenerator.
func (idGenerator) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if c, ok := ctx.Value(spanContextKey{}).(trace.SpanContext); ok {
		return c.SpanID()
	}
	return randomSpanID()
}

func randomSpanID() (id trace.SpanID) {
	binary.NativeEndian.PutUint64(id[:], rand.Uint64()|1) //nolint:gosec // no secret
	return id
}

// spanQueue counts the recorded spans that are not exported yet, because the SDK's processor drops spans silently when its queue is full.
type spanQueue struct {
	size    int
	waiting atomic.Int64
	freed   chan struct{} // holds a value after an export
	dropped prometheus.Counter
}

// newSpanQueue returns a queue of OTEL_BSP_MAX_QUEUE_SIZE.
func newSpanQueue(dropped prometheus.Counter) *spanQueue {
	size, err := strconv.Atoi(os.Getenv("OTEL_BSP_MAX_QUEUE_SIZE"))
	if err != nil || size < 1 {
		size = sdktrace.DefaultMaxQueueSize
	}
	return &spanQueue{size: max(size, maxSpansPerItem), freed: make(chan struct{}, 1), dropped: dropped}
}

// tryAdd counts a span, or drops it.
func (q *spanQueue) tryAdd() bool {
	if q.waiting.Add(1) > int64(q.size) {
		q.waiting.Add(-1)
		q.dropped.Inc()
		return false
	}
	return true
}

// exported removes exported spans.
func (q *spanQueue) exported(n int) {
	q.waiting.Add(int64(-n))
	select {
	case q.freed <- struct{}{}:
	default:
	}
}

// waitForSpace waits until the queue has space for maxSpansPerItem, or ctx ends. One goroutine at a time may wait.
func (q *spanQueue) waitForSpace(ctx context.Context) {
	for q.waiting.Load()+maxSpansPerItem > int64(q.size) {
		select {
		case <-q.freed:
		case <-ctx.Done():
			return
		}
	}
}

// countingExporter counts exported spans, and logs errors instead of the SDK's global logger.
type countingExporter struct {
	exporter     sdktrace.SpanExporter
	queue        *spanQueue
	sent, failed prometheus.Counter
	log          *slog.Logger

	mu         sync.Mutex
	lastLogged time.Time
}

// logInterval is the least time between two log lines about failed exports.
const logInterval = time.Minute

// ExportSpans implements sdktrace.SpanExporter. It logs errors and returns nil.
func (c *countingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := c.exporter.ExportSpans(ctx, spans)
	c.queue.exported(len(spans))
	if err == nil {
		c.sent.Add(float64(len(spans)))
		return nil
	}
	c.failed.Add(float64(len(spans)))
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.lastLogged) >= logInterval {
		c.lastLogged = time.Now()
		c.log.Warn("cannot send traces to the collector", slog.Any("error", err), slog.Int("spans", len(spans)))
	}
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (c *countingExporter) Shutdown(ctx context.Context) error { return c.exporter.Shutdown(ctx) }
