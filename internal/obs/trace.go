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
	batches  chan queuedBatch
	queue    *spanQueue

	mu             sync.Mutex
	pendingReports map[muster.AttemptID]pendingReport // of a worker: ended, and not acknowledged
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
	q := newSpanQueue(r.spans.WithLabelValues("dropped"))
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(&countingExporter{exporter: exporter, queue: q, sent: r.spans.WithLabelValues("sent"), failed: r.spans.WithLabelValues("failed"), log: log},
			sdktrace.WithMaxQueueSize(q.size)),
		sdktrace.WithResource(res), sdktrace.WithIDGenerator(idGenerator{}), sdktrace.WithSampler(sdktrace.AlwaysSample()), // see sampled
	)
	return &Tracer{
		provider: provider, tracer: provider.Tracer("github.com/muster-dev/muster", trace.WithInstrumentationVersion(cfg.Version)), sampler: sampler,
		batches: make(chan queuedBatch, maxBatches), queue: q, pendingReports: map[muster.AttemptID]pendingReport{},
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

// jobTrace is the trace of a job.
type jobTrace struct {
	uid    string
	trace  trace.TraceID
	parent trace.SpanContext // in which the job was submitted; not valid for none
}

// traceOf returns the trace of a job, and whether it is recorded.
func (t *Tracer) traceOf(uid string) (jobTrace, bool) {
	if uid == "" { // of a server before it had them
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

// spanContext is the context of one of the job's spans, by what it is of.
func (j *jobTrace) spanContext(key string) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: j.trace, SpanID: traceparent.SpanID(j.uid, key), TraceFlags: trace.FlagsSampled, Remote: true})
}

// span is a span that is over.
type span struct {
	name       string
	key        string            // that its identifier is derived from, for those that are the parent of others; "" for any identifier
	parent     trace.SpanContext // not valid for none
	kind       trace.SpanKind
	start, end time.Time
	attributes []attribute.KeyValue
	failure    string // why what it stands for failed; "" if it did not
	event      string // that happened in it, or ""
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

// latest returns the later one of two times: clocks of two machines may differ.
func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

type spanContextKey struct{}

// idGenerator gives spans the identifiers that emit wants, and others any.
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

// spanQueue counts the spans that are recorded and not exported yet. The SDK's processor drops spans silently when its own queue is full, which
// never has more than these.
type spanQueue struct {
	size    int
	waiting atomic.Int64
	freed   chan struct{} // some were exported
	dropped prometheus.Counter
}

// newSpanQueue makes a queue of the size that OTEL_BSP_MAX_QUEUE_SIZE says.
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

// exported counts spans that were exported.
func (q *spanQueue) exported(n int) {
	q.waiting.Add(int64(-n))
	select {
	case q.freed <- struct{}{}:
	default:
	}
}

// waitForSpace waits until there is room for maxSpansPerItem, or ctx ends. One goroutine at a time may wait.
func (q *spanQueue) waitForSpace(ctx context.Context) {
	for q.waiting.Load()+maxSpansPerItem > int64(q.size) {
		select {
		case <-q.freed:
		case <-ctx.Done():
			return
		}
	}
}

// countingExporter is an exporter that counts spans, and logs in place of the SDK's global logger.
type countingExporter struct {
	exporter     sdktrace.SpanExporter
	queue        *spanQueue
	sent, failed prometheus.Counter
	log          *slog.Logger

	mu         sync.Mutex
	lastLogged time.Time
}

// logInterval is the time between two lines about exports that fail.
const logInterval = time.Minute

// ExportSpans implements sdktrace.SpanExporter. It returns no error: nobody could do more about it.
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
		c.log.Warn("traces cannot be sent to the collector", slog.Any("error", err), slog.Int("spans", len(spans)))
	}
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (c *countingExporter) Shutdown(ctx context.Context) error { return c.exporter.Shutdown(ctx) }
