package obs_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/obs"
	"github.com/muster-dev/muster/internal/sched"
	"github.com/muster-dev/muster/internal/traceparent"
)

func attempt(job, task, n int) muster.AttemptID {
	return muster.AttemptID{Task: muster.TaskID{Job: muster.JobID(job), Num: task}, N: n}
}

func testBatch() sched.Batch {
	now := time.Now()
	b := sched.Batch{Began: now, Decided: now.Add(time.Microsecond), Committed: now.Add(time.Millisecond), Events: 3}
	b.Effects.Entered[muster.Running] = 2
	b.Effects.Commands = []sched.Command{sched.Assign{Attempt: attempt(2, 0, 1), UID: "j0124", QueuedAt: 1_000, At: 3_000}}
	b.Effects.AttemptsStarted = []sched.AttemptStarted{{Attempt: attempt(1, 0, 1), AssignedAt: 2, At: 3}}
	b.Effects.AttemptsEnded = []sched.AttemptEnded{{
		Attempt: attempt(1, 0, 1), UID: "j0123", Spec: &muster.TaskSpec{}, Outcome: muster.AttemptSucceeded, QueuedAt: 1, AssignedAt: 2, StartedAt: 3, At: 4,
		Usage: &muster.Usage{CPUSeconds: 1, EnergyWh: 2},
	}}
	return b
}

// TestDisabledTracingCostsNothing checks that disabled traces and the metrics of a batch do not allocate.
func TestDisabledTracingCostsNothing(t *testing.T) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		t.Setenv(name, "")
	}
	registry := obs.NewRegistry(obs.Build{})
	tracer, err := obs.NewTracer(t.Context(), obs.TraceConfig{}, registry, slog.New(slog.DiscardHandler))
	if tracer != nil || err != nil {
		t.Fatalf("a tracer without an endpoint: %v, %v", tracer, err)
	}
	metrics := obs.NewServer(registry, nil)
	b, a := testBatch(), attempt(1, 0, 1)
	metrics.ObserveBatch(&b) // makes the series
	for name, f := range map[string]func(){
		"a batch that is not traced":    func() { tracer.QueueBatch(&b) },
		"an attempt that is not traced": func() { tracer.Traceparent("j0123", a); tracer.ReportAcked(a, true) },
		"the metrics of a batch":        func() { metrics.ObserveBatch(&b) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func BenchmarkBatch(b *testing.B) {
	metrics := obs.NewServer(obs.NewRegistry(obs.Build{}), nil)
	var tracer *obs.Tracer
	batch := testBatch()
	b.ReportAllocs()
	for b.Loop() {
		metrics.ObserveBatch(&batch)
		tracer.QueueBatch(&batch)
	}
}

func TestTraceSettings(t *testing.T) {
	for _, tc := range []struct {
		env      map[string]string
		endpoint string
		on       bool
		wantErr  string // in the error
	}{
		{endpoint: "http://127.0.0.1:4318", on: true},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, on: true},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, on: true},
		{env: map[string]string{"OTEL_SDK_DISABLED": "true"}, endpoint: "http://127.0.0.1:4318"},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "none"}, endpoint: "http://127.0.0.1:4318"},
		{endpoint: "127.0.0.1:4317", wantErr: "set --otlp to one such as"},
		{endpoint: "http://127.0.0.1:4317", env: map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, wantErr: "http/protobuf"},
		{endpoint: "http://127.0.0.1:4318", env: map[string]string{"OTEL_TRACES_SAMPLER": "sometimes"}, wantErr: "OTEL_TRACES_SAMPLER"},
		{endpoint: "http://127.0.0.1:4318", env: map[string]string{"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "2"}, wantErr: "from 0 to 1"},
	} {
		t.Run("", func(t *testing.T) {
			for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_TRACES_SAMPLER"} {
				t.Setenv(name, tc.env[name])
			}
			t.Setenv("OTEL_TRACES_SAMPLER_ARG", tc.env["OTEL_TRACES_SAMPLER_ARG"])
			tracer, err := obs.NewTracer(t.Context(), obs.TraceConfig{Service: "s", Endpoint: tc.endpoint}, obs.NewRegistry(obs.Build{}), slog.New(slog.DiscardHandler))
			if (tracer != nil) != tc.on || (err != nil) != (tc.wantErr != "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("%+v: on %t, %v", tc, tracer != nil, err)
			}
			if err := tracer.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSampling checks the ratio of traced jobs, and that server and workers agree on them.
func TestSampling(t *testing.T) {
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "0.25")
	var tracers [2]*obs.Tracer
	for i := range tracers {
		var err error
		if tracers[i], err = obs.NewTracer(t.Context(), obs.TraceConfig{Endpoint: "http://127.0.0.1:1"}, obs.NewRegistry(obs.Build{}), slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tracers[i].Close(t.Context()) }() // nothing was traced
	}
	sampled := 0
	for range 2000 {
		uid := traceparent.NewUID(t.Context())
		a, b := tracers[0].Traceparent(uid, attempt(1, 0, 1)), tracers[1].Traceparent(uid, attempt(1, 0, 1))
		if a != b {
			t.Fatalf("job %s is %s for one and %s for another", uid, a, b)
		}
		if strings.HasSuffix(a, "-01") {
			sampled++
		}
	}
	if sampled < 400 || sampled > 600 {
		t.Errorf("%d of 2000 jobs are traced, want about 500", sampled)
	}
	inTrace := traceparent.NewUID(traceparent.NewContext(t.Context(), traceparent.Parent{Trace: [16]byte{15: 1}, Span: [8]byte{1}, Flags: 1}))
	if got := tracers[0].Traceparent(inTrace, attempt(1, 0, 1)); !strings.HasPrefix(got, "00-00000000000000000000000000000001-") || !strings.HasSuffix(got, "-01") {
		t.Errorf("a job of a sampled trace is %s", got)
	}
	var none *obs.Tracer
	if got := none.Traceparent(inTrace, attempt(1, 0, 1)); got != "00-00000000000000000000000000000001-0100000000000000-01" {
		t.Errorf("without tracing, a task gets %s", got)
	}
}

// newTracer returns a tracer that sends to a collector, and a function that reads a counter of its spans.
func newTracer(t *testing.T, r *traceCollector) (tracer *obs.Tracer, spans func(result string) float64) {
	t.Helper()
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_BSP_EXPORT_TIMEOUT"} {
		t.Setenv(name, "60000") // ms
	}
	registry := obs.NewRegistry(obs.Build{})
	tracer, err := obs.NewTracer(t.Context(), obs.TraceConfig{Endpoint: r.url}, registry, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return tracer, func(result string) float64 {
		t.Helper()
		return scrapeRegistry(t, registry)[`muster_trace_spans_total{result="`+result+`"}`]
	}
}

// TestLargeBatchesAreExportedCompletely checks that all spans of a batch are sent, even if they exceed the queue.
func TestLargeBatchesAreExportedCompletely(t *testing.T) {
	r := newTraceCollector(t)
	tracer, spans := newTracer(t, r)
	b := testBatch()
	b.Effects.Commands, b.Effects.AttemptsEnded = nil, slices.Repeat(b.Effects.AttemptsEnded, 5_000)
	if !tracer.QueueBatch(&b) {
		t.Fatal("the batch was dropped")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = tracer.Run(ctx) }) // it returns nil
	for r.count() < 29*512 {                   // then all spans are made, and the last ones are not a full request
		time.Sleep(time.Millisecond) // a poll
	}
	cancel()
	running.Wait()
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := r.count(); n != 15_000 || spans("sent") != 15_000 || spans("dropped") != 0 {
		t.Errorf("the collector has %d of 15000 spans; %v were sent, %v dropped", n, spans("sent"), spans("dropped"))
	}
}

// TestSlowCollectors checks that neither the engine nor a worker waits when spans cannot be sent, and that dropped ones are counted.
func TestSlowCollectors(t *testing.T) {
	r := newTraceCollector(t)
	r.release = make(chan struct{})
	tracer, spans := newTracer(t, r)
	release := sync.OnceFunc(func() { close(r.release) })
	t.Cleanup(release) // before the receiver is closed
	b, dropped := testBatch(), 0
	for range 1000 { // nothing runs the tracer
		if !tracer.QueueBatch(&b) {
			dropped++
		}
	}
	if dropped != 1000-256 {
		t.Errorf("%d of 1000 batches were dropped", dropped)
	}
	for n := range 3_000 {
		tracer.AttemptRun("j0123", &muster.Report{Outcome: muster.AttemptSucceeded}, attempt(1, n, 1), "w", time.Now(), time.Now(), time.Now())
	}
	if got := spans("dropped"); got != 952 {
		t.Errorf("%v of 3000 spans were dropped, want all but 2048", got)
	}

	// At the end waiting batches are dropped if the collector accepts nothing.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tracer.Run(ctx); err != nil {
		t.Error(err)
	}
	if got := spans("dropped"); got != 952+256*5 {
		t.Errorf("%v spans were dropped, want those of 256 batches more", got)
	}
	release()
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := spans("sent"); got != 2048 {
		t.Errorf("%v spans were sent, want 2048", got)
	}
}

func TestLogLines(t *testing.T) {
	var out bytes.Buffer
	attempts := obs.NewAttemptTraces()
	log := obs.Logger(slog.New(slog.NewTextHandler(&out, nil)), attempts)
	uid := traceparent.NewUID(t.Context())
	end := attempts.Add(attempt(17, 3, 2), uid)
	inTrace := traceparent.NewContext(t.Context(), traceparent.Parent{Trace: [16]byte{1}, Span: [8]byte{1}})
	for _, tc := range []struct {
		write          func()
		want, unwanted string
	}{
		{func() { log.Info("a", slog.String("attempt", "17.3#2")) }, "attempt=17.3#2 task=17.3 job=17 trace_id=" + traceparent.TraceText(uid), ""},
		{func() { log.With(slog.String("attempt", "17.3#2")).Info("b") }, "attempt=17.3#2 task=17.3 job=17 trace_id=" + traceparent.TraceText(uid), ""},
		{func() { log.Info("c", slog.String("attempt", "9.0#1")) }, "attempt=9.0#1 task=9.0 job=9\n", ""},
		{func() { log.InfoContext(inTrace, "d") }, "trace_id=0100000", ""},
		{func() { log.InfoContext(inTrace, "e", slog.String("trace_id", "known")) }, "trace_id=known", "0100000"},
		{func() { log.Info("f", slog.String("attempt", "nonsense")) }, "attempt=nonsense\n", "job="},
		{func() { log.WithGroup("g").Info("g", slog.Int("n", 1)) }, "g.n=1\n", "trace_id"},
		{func() { end(); log.Info("h", slog.String("attempt", "17.3#2")) }, "job=17\n", "trace_id"},
	} {
		out.Reset()
		tc.write()
		if got := out.String(); !strings.Contains(got, tc.want) || tc.unwanted != "" && strings.Contains(got, tc.unwanted) {
			t.Errorf("%q: want %q and not %q", got, tc.want, tc.unwanted)
		}
	}
}

// BenchmarkScrape scrapes a server with 2,000 workers of 8 GPUs.
func BenchmarkScrape(b *testing.B) {
	picture := sched.FleetSnapshot{Workers: make([]sched.WorkerSnapshot, 2_000)}
	watts := 300.0
	for i := range picture.Workers {
		w := &picture.Workers[i]
		w.State, w.Offers, w.Load, w.GPUTasks = muster.WorkerActive, &muster.Resources{GPUs: make([]muster.GPU, 8)}, &muster.Load{GPUs: make([]muster.GPULoad, 8)}, make([]int, 8)
		for g := range w.Load.GPUs {
			w.Load.GPUs[g].Power = &watts
		}
	}
	registry := obs.NewRegistry(obs.Build{})
	obs.NewServer(registry, func(context.Context) obs.ServerSample { return obs.ServerSample{Fleet: &picture} })
	handler := registry.Handler(slog.New(slog.DiscardHandler))
	b.ReportAllocs()
	for b.Loop() {
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/metrics", http.NoBody))
		if rec.Code != http.StatusOK || rec.Body.Len() < 10_000 {
			b.Fatalf("%d, %d bytes", rec.Code, rec.Body.Len())
		}
	}
}
