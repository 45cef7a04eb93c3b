package obs

import (
	"cmp"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Registry has the metrics of one process.
type Registry struct {
	reg   *prometheus.Registry
	spans *prometheus.CounterVec
}

// Build says what program runs.
type Build struct{ Version, Revision string }

// NewRegistry makes a registry with what every process has: build information, the Go runtime and the process itself.
func NewRegistry(b Build) *Registry {
	r := &Registry{reg: prometheus.NewRegistry()}
	r.reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.spans = registerCommon(&registrar{reg: r.reg}, b)
	return r
}

// registerCommon registers what every process has, and returns the counter of spans.
func registerCommon(s *registrar, b Build) *prometheus.CounterVec {
	s.gaugeVec("muster_build_info", "The build that runs, as labels. The value is always 1.", "version", "revision", "go_version").
		WithLabelValues(b.Version, b.Revision, runtime.Version()).Set(1)
	spans := s.counterVec("muster_trace_spans_total", "Spans that were sent to the collector of traces (sent), that it did not take (failed), or that were dropped because too many waited for it (dropped).", "result")
	spans.WithLabelValues("sent")
	spans.WithLabelValues("failed")
	spans.WithLabelValues("dropped")
	return spans
}

const (
	// maxScrapes bounds how many scrapes are answered at a time; others are refused with 503.
	maxScrapes = 4
	// scrapeTimeout bounds a scrape, and is more than Prometheus waits by default.
	scrapeTimeout = 15 * time.Second
)

// Handler serves the metrics in the formats of Prometheus. A metric that cannot be collected is left out and logged.
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

// Println logs what a scrape could not collect.
func (p errorLogger) Println(v ...any) {
	p.log.Warn("some metrics cannot be collected", slog.Any("error", v))
}

// Family describes metrics of one name.
type Family struct {
	Name      string
	Type      string // counter, gauge or histogram
	Labels    []string
	Help      string
	Component string // who has it: server, worker, bridge or all
}

// Families lists all families of Muster's own, by name. Those of the Go runtime and of the process come on top.
func Families() []Family {
	var all []Family
	for component, define := range map[string]func(*registrar){
		"all":    func(s *registrar) { registerCommon(s, Build{}) },
		"server": func(s *registrar) { newServer(s, ServerSources{}) },
		"worker": func(s *registrar) { newWorker(s, WorkerSources{}) },
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

// registrar registers metrics and notes their families.
type registrar struct {
	reg      *prometheus.Registry
	families []Family
}

func (s *registrar) record(name, kind, help string, labels []string) {
	s.families = append(s.families, Family{Name: name, Type: kind, Labels: labels, Help: help})
}

func (s *registrar) counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	s.record(name, "counter", help, labels)
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	s.reg.MustRegister(c)
	return c
}

func (s *registrar) counter(name, help string) prometheus.Counter {
	s.record(name, "counter", help, nil)
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	s.reg.MustRegister(c)
	return c
}

func (s *registrar) gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	s.record(name, "gauge", help, labels)
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	s.reg.MustRegister(g)
	return g
}

func (s *registrar) gauge(name, help string) prometheus.Gauge {
	s.record(name, "gauge", help, nil)
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	s.reg.MustRegister(g)
	return g
}

func (s *registrar) histogram(name, help string, buckets []float64) prometheus.Histogram {
	s.record(name, "histogram", help, nil)
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	s.reg.MustRegister(h)
	return h
}

func (s *registrar) histogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	s.record(name, "histogram", help, labels)
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	s.reg.MustRegister(h)
	return h
}

// sampledMetric is a gauge or a counter that is read when it is collected.
type sampledMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// gaugeFunc makes a gauge that is read.
func (s *registrar) gaugeFunc(name, help string, labels ...string) sampledMetric {
	s.record(name, "gauge", help, labels)
	return sampledMetric{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

// counterFunc makes a counter that is read.
func (s *registrar) counterFunc(name, help string) sampledMetric {
	s.record(name, "counter", help, nil)
	return sampledMetric{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue}
}

// send sends a value.
func (r sampledMetric) send(ch chan<- prometheus.Metric, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(r.desc, r.kind, v, labels...)
}

// collectorFunc reads gauges and counters. Its families differ from those of all others, so it needs not to describe them.
type collectorFunc func(ch chan<- prometheus.Metric)

// Describe implements prometheus.Collector: the collector is unchecked.
func (collectorFunc) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collectorFunc) Collect(ch chan<- prometheus.Metric) { c(ch) }

// boolValue is a truth as a value.
func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
