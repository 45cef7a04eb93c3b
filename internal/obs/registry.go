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
	r.spans = everywhere(&set{reg: r.reg}, b)
	return r
}

// everywhere registers what every process has, and returns the counter of spans.
func everywhere(s *set, b Build) *prometheus.CounterVec {
	s.gaugeVec("muster_build_info", "The build that runs, as labels. The value is always 1.", "version", "revision", "go_version").
		WithLabelValues(b.Version, b.Revision, runtime.Version()).Set(1)
	spans := s.counterVec("muster_trace_spans_total", "Spans that were sent to the collector of traces (sent), that it did not take (failed), or that were dropped because too many waited for it (dropped).", "result")
	spans.WithLabelValues("sent")
	spans.WithLabelValues("failed")
	spans.WithLabelValues("dropped")
	return spans
}

const (
	// scrapesAtOnce bounds how many scrapes are answered at a time; others are refused with 503.
	scrapesAtOnce = 4
	// scrapeTimeout bounds a scrape, and is more than Prometheus waits by default.
	scrapeTimeout = 15 * time.Second
)

// Handler serves the metrics in the formats of Prometheus. A metric that cannot be collected is left out and logged.
func (r *Registry) Handler(log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(r.reg, promhttp.HandlerOpts{
		ErrorLog:            printer{log},
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: scrapesAtOnce,
		Timeout:             scrapeTimeout,
	})
}

// printer is a promhttp.Logger.
type printer struct{ log *slog.Logger }

// Println logs what a scrape could not collect.
func (p printer) Println(v ...any) {
	p.log.Warn("some metrics cannot be collected", slog.Any("error", v))
}

// Family describes metrics of one name.
type Family struct {
	Name   string
	Type   string // counter, gauge or histogram
	Labels []string
	Help   string
	By     string // who has it: server, worker, bridge or all
}

// Families lists all families of Muster's own, by name. Those of the Go runtime and of the process come on top.
func Families() []Family {
	var all []Family
	for by, define := range map[string]func(*set){
		"all":    func(s *set) { everywhere(s, Build{}) },
		"server": func(s *set) { newServer(s, ServerSources{}) },
		"worker": func(s *set) { newWorker(s, WorkerSources{}) },
		"bridge": func(s *set) { newBridge(s) },
	} {
		s := &set{reg: prometheus.NewRegistry()}
		define(s)
		for _, f := range s.families {
			f.By = by
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b Family) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// set registers metrics and notes their families.
type set struct {
	reg      *prometheus.Registry
	families []Family
}

func (s *set) note(name, kind, help string, labels []string) {
	s.families = append(s.families, Family{Name: name, Type: kind, Labels: labels, Help: help})
}

func (s *set) counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	s.note(name, "counter", help, labels)
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	s.reg.MustRegister(c)
	return c
}

func (s *set) counter(name, help string) prometheus.Counter {
	s.note(name, "counter", help, nil)
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	s.reg.MustRegister(c)
	return c
}

func (s *set) gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	s.note(name, "gauge", help, labels)
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	s.reg.MustRegister(g)
	return g
}

func (s *set) gauge(name, help string) prometheus.Gauge {
	s.note(name, "gauge", help, nil)
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	s.reg.MustRegister(g)
	return g
}

func (s *set) histogram(name, help string, buckets []float64) prometheus.Histogram {
	s.note(name, "histogram", help, nil)
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	s.reg.MustRegister(h)
	return h
}

func (s *set) histogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	s.note(name, "histogram", help, labels)
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	s.reg.MustRegister(h)
	return h
}

// reading is a gauge or a counter that is read when it is collected.
type reading struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// reading makes a gauge that is read.
func (s *set) reading(name, help string, labels ...string) reading {
	s.note(name, "gauge", help, labels)
	return reading{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

// total makes a counter that is read.
func (s *set) total(name, help string) reading {
	s.note(name, "counter", help, nil)
	return reading{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue}
}

// to sends a value.
func (r reading) to(ch chan<- prometheus.Metric, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(r.desc, r.kind, v, labels...)
}

// collector reads gauges and counters. Its families differ from those of all others, so it needs not to describe them.
type collector func(ch chan<- prometheus.Metric)

// Describe implements prometheus.Collector: the collector is unchecked.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) { c(ch) }

// flag is a truth as a value.
func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
