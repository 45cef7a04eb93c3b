package obs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/connlimit"
)

// Registry has the metrics of one process.
type Registry struct {
	reg   *prometheus.Registry
	spans *prometheus.CounterVec
}

// Build identifies the running build.
type Build struct{ Version, Revision string }

// NewRegistry returns a registry with the metrics of every process: build information, the Go runtime and the process itself.
func NewRegistry(b Build) *Registry {
	r := &Registry{reg: prometheus.NewRegistry()}
	r.reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.spans = registerCommon(&registrar{reg: r.reg}, b)
	return r
}

// registerCommon registers Muster's metrics of every process, and returns the counter of spans.
func registerCommon(s *registrar, b Build) *prometheus.CounterVec {
	s.gaugeVec("muster_build_info", "The running build, as labels. The value is always 1.", "version", "revision", "go_version").
		WithLabelValues(b.Version, b.Revision, runtime.Version()).Set(1)
	spans := s.counterVec("muster_trace_spans_total", "Spans that were sent to the trace collector (sent), that it did not accept (failed), or that were dropped because too many were waiting (dropped).", "result")
	spans.WithLabelValues("sent")
	spans.WithLabelValues("failed")
	spans.WithLabelValues("dropped")
	return spans
}

const (
	// maxScrapes is how many scrapes may run at the same time; others get status 503.
	maxScrapes = 4
	// scrapeTimeout limits a scrape. Prometheus waits less by default.
	scrapeTimeout = 15 * time.Second
	// sampleTimeout limits how long a scrape waits for the engine and for file systems.
	sampleTimeout = 3 * time.Second
)

// Handler serves the metrics in the formats of Prometheus. It omits and logs metrics that cannot be collected.
func (r *Registry) Handler(log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(r.reg, promhttp.HandlerOpts{
		ErrorLog:            errorLogger{log},
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: maxScrapes,
		Timeout:             scrapeTimeout,
	})
}

// errorLogger is a promhttp.Logger.
type errorLogger struct{ log *slog.Logger }

// Println implements promhttp.Logger.
func (p errorLogger) Println(v ...any) {
	p.log.Warn("cannot collect some metrics", slog.Any("error", v))
}

// Family describes metrics of one name.
type Family struct {
	Name      string
	Type      string // counter, gauge or histogram
	Labels    []string
	Help      string
	Component string // server, worker, bridge or all
}

// Families lists Muster's families by name, without those of the Go runtime and of the process.
func Families() []Family {
	var all []Family
	for component, define := range map[string]func(*registrar){
		"all":    func(s *registrar) { registerCommon(s, Build{}) },
		"server": func(s *registrar) { newServer(s, nil) },
		"worker": func(s *registrar) { newWorker(s, nil) },
		"bridge": func(s *registrar) { newBridge(s) },
	} {
		s := &registrar{reg: prometheus.NewRegistry()}
		define(s)
		for _, f := range s.families {
			f.Component = component
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b Family) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// registrar registers metrics and records their families.
type registrar struct {
	reg      *prometheus.Registry
	families []Family
}

func (s *registrar) record(name, kind, help string, labels []string) {
	s.families = append(s.families, Family{Name: name, Type: kind, Labels: labels, Help: help})
}

// register registers c and records its family.
func register[C prometheus.Collector](s *registrar, c C, name, kind, help string, labels []string) C {
	s.record(name, kind, help, labels)
	s.reg.MustRegister(c)
	return c
}

func (s *registrar) counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return register(s, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels), name, "counter", help, labels)
}

func (s *registrar) counter(name, help string) prometheus.Counter {
	return register(s, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}), name, "counter", help, nil)
}

func (s *registrar) gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return register(s, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels), name, "gauge", help, labels)
}

func (s *registrar) gauge(name, help string) prometheus.Gauge {
	return register(s, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}), name, "gauge", help, nil)
}

func (s *registrar) histogram(name, help string, buckets []float64) prometheus.Histogram {
	return register(s, prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}), name, "histogram", help, nil)
}

func (s *registrar) histogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	opts := prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	return register(s, prometheus.NewHistogramVec(opts, labels), name, "histogram", help, labels)
}

// sampledMetrics are gauges and counters whose values are computed from a sample, which each scrape takes once.
type sampledMetrics[T any] struct {
	reg *registrar
	all []sampledMetric[T]
}

// sampledMetric computes its values from a sample and emits each with the values of its labels.
type sampledMetric[T any] struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	values func(sample *T, emit emitFunc)
}

type emitFunc func(v float64, labels ...string)

// gauge adds a gauge without labels.
func (m *sampledMetrics[T]) gauge(name, help string, value func(*T) float64) {
	m.gaugeVec(name, help, nil, func(sample *T, emit emitFunc) { emit(value(sample)) })
}

// gaugeVec adds a gauge with labels.
func (m *sampledMetrics[T]) gaugeVec(name, help string, labels []string, values func(*T, emitFunc)) {
	m.reg.record(name, "gauge", help, labels)
	m.all = append(m.all, sampledMetric[T]{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue, values})
}

// counter adds a counter without labels.
func (m *sampledMetrics[T]) counter(name, help string, value func(*T) float64) {
	m.reg.record(name, "counter", help, nil)
	m.all = append(m.all, sampledMetric[T]{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, func(sample *T, emit emitFunc) { emit(value(sample)) }})
}

// send sends the values for a sample. It omits unknown values, which are NaN.
func (m *sampledMetrics[T]) send(ch chan<- prometheus.Metric, sample *T) {
	for _, metric := range m.all {
		metric.values(sample, func(v float64, labels ...string) {
			if !math.IsNaN(v) {
				ch <- prometheus.MustNewConstMetric(metric.desc, metric.kind, v, labels...)
			}
		})
	}
}

// collectorFunc collects sampled metrics until ctx ends.
type collectorFunc func(ctx context.Context, ch chan<- prometheus.Metric)

// Describe implements prometheus.Collector. It sends nothing: the registry does not check the metrics.
func (collectorFunc) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collectorFunc) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), sampleTimeout)
	defer cancel()
	c(ctx, ch)
}

// DiskUsage is the usage of the file system with a data directory. A Size of 0 means that it is unknown.
type DiskUsage struct{ Free, Size muster.Size }

func (d DiskUsage) free() float64 {
	if d.Size == 0 {
		return math.NaN()
	}
	return float64(d.Free)
}

func (d DiskUsage) size() float64 { return nonZero(d.Size) }

// nonZero returns a value, NaN if it is 0.
func nonZero[N ~int64](v N) float64 {
	if v == 0 {
		return math.NaN()
	}
	return float64(v)
}

// known returns a value, NaN if it is nil.
func known[N ~int64 | ~float64](v *N) float64 {
	if v == nil {
		return math.NaN()
	}
	return float64(*v)
}

func boolValue(b bool) float64 { return float64(boolIndex(b)) }

// Markdown returns docs/metrics.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString(`# Metrics

Generated from ` + "`internal/obs`" + ` by ` + "`make gen`" + `; do not edit. How to scrape them, the alerts and the dashboard: [observability.md](observability.md).

Times are in seconds, sizes in bytes, energy in joules. A label never has a job, a task or a path, so the number of series does not grow
with the work. The usual families of the Go runtime (` + "`go_…`" + `) and of the process (` + "`process_…`" + `) exist, too.
`)
	for _, part := range []struct{ by, title string }{
		{"server", "Server"}, {"worker", "Worker"}, {"bridge", "Bridge"}, {"all", "All"},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", part.title)
		for _, f := range Families() {
			if f.Component == part.by {
				labels := ""
				if len(f.Labels) > 0 {
					labels = "`" + strings.Join(f.Labels, "`, `") + "`"
				}
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, f.Type, labels, f.Help)
			}
		}
	}
	return b.String()
}

// Endpoint serves the metrics of a registry at a separate address, without a key.
type Endpoint struct {
	listener net.Listener
	http     *http.Server
}

// maxConns is how many connections an Endpoint has: those who reach it need no key.
const maxConns = 32

// Listen listens on an address, host:port; port 0 chooses a free one. Run serves requests. Of more than 32 connections, idle ones are replaced.
func Listen(ctx context.Context, address string, r *Registry, log *slog.Logger) (*Endpoint, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "cannot serve metrics at %s: %w; set --metrics to an address of this machine, such as 127.0.0.1:9700", address, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", r.Handler(log))
	log.Info("serving metrics", slog.String("url", "http://"+listener.Addr().String()+"/metrics"))
	return &Endpoint{listener: connlimit.New(maxConns).Listen(listener), http: &http.Server{
		Handler: connlimit.Handler(mux), ConnContext: connlimit.ConnContext, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: scrapeTimeout + 15*time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}, nil
}

// Run serves until ctx ends, and closes the port.
func (e *Endpoint) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = e.http.Close() }) // scrapes are retried
	defer stop()
	if err := e.http.Serve(e.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
