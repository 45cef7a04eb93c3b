package obs

import (
	"cmp"
	"context"
	"math"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-dev/muster"
)

// WorkerSample has the values of a worker's gauges at a scrape.
type WorkerSample struct {
	Connected   bool   // the worker has a session at the server
	Constrained string // why the worker takes no tasks, or ""
	Executing   int    // attempts that are executed
	Held        int    // attempts that are executed or have an unacknowledged report or log
	Traffic     Traffic
	Load        *muster.Load // the last one of the host, or nil
	Resources   muster.Resources
	Disk        DiskUsage // of the data directory
	CacheUsed   int64     // bytes of the blob cache
	CacheBudget int64
	GPUs        []Device
}

// Traffic has counters of a worker's link since it joined.
type Traffic struct {
	Sessions, Expired, LogSent, LogPending int64
}

// Device is a GPU of a worker and its last reading.
type Device struct {
	muster.GPU

	Load muster.GPULoad
}

// Worker has the metrics of a worker.
type Worker struct {
	ended           *prometheus.CounterVec
	attemptDuration *prometheus.HistogramVec
	running         *prometheus.GaugeVec
	reportsAcked    [2]prometheus.Counter
	refused         map[string]prometheus.Counter
	energy          prometheus.Counter
	cpu             prometheus.Counter
	transferBytes   [2]prometheus.Counter
	cacheRequests   [2]prometheus.Counter
}

// NewWorker registers the metrics of a worker. Every scrape calls sample, unless it is nil, for the gauges; simultaneous calls
// must be safe.
func NewWorker(r *Registry, sample func(ctx context.Context) WorkerSample) *Worker {
	return newWorker(&registrar{reg: r.reg}, sample)
}

func newWorker(s *registrar, sample func(ctx context.Context) WorkerSample) *Worker {
	m := &Worker{}
	m.ended = s.counterVec("muster_worker_attempts_total", "Attempts that ended on this worker, by kind, outcome and reason; none means no reason.", "kind", "outcome", "reason")
	m.attemptDuration = s.histogramVec("muster_worker_attempt_duration_seconds", "Duration of attempts on this worker, including fetching inputs and saving outputs.", durationBuckets(), "kind")
	m.running = s.gaugeVec("muster_worker_running_attempts", "Attempts running on this worker, by kind.", "kind")
	acked := s.counterVec("muster_worker_reports_total", "Reports of ended attempts that the server recorded, or no longer needed (unwanted).", "result")
	m.reportsAcked[0], m.reportsAcked[1] = acked.WithLabelValues("unwanted"), acked.WithLabelValues("recorded")
	refused := s.counterVec("muster_worker_refused_total", "What the server sent and the worker refused, by reason: assignments, or frames with a wrong signature (frame).", "reason")
	m.refused = map[string]prometheus.Counter{}
	for _, reason := range []string{"allow", "project", "kind", "feature", "resources", "spec", "frame"} {
		m.refused[reason] = refused.WithLabelValues(reason)
	}
	m.energy = s.counter("muster_worker_gpu_energy_joules_total", "Energy used by the GPUs of ended attempts.")
	m.cpu = s.counter("muster_worker_cpu_seconds_total", "CPU time of ended attempts.")
	moved := s.counterVec("muster_worker_transfer_bytes_total", "Bytes of inputs, outputs and checkpoints fetched (in) or uploaded (out).", "direction")
	m.transferBytes[0], m.transferBytes[1] = moved.WithLabelValues("out"), moved.WithLabelValues("in")
	cache := s.counterVec("muster_worker_cache_requests_total", "Blobs that tasks needed and the cache had (hit) or did not have (miss).", "result")
	m.cacheRequests[0], m.cacheRequests[1] = cache.WithLabelValues("miss"), cache.WithLabelValues("hit")

	gauges := &sampledMetrics[WorkerSample]{reg: s}
	defineWorkerGauges(gauges)
	s.reg.MustRegister(collectorFunc(func(ctx context.Context, ch chan<- prometheus.Metric) {
		if sample != nil {
			values := sample(ctx)
			gauges.send(ch, &values)
		}
	}))
	return m
}

// defineWorkerGauges adds the gauges of a worker and its devices, and the counters that others keep.
func defineWorkerGauges(g *sampledMetrics[WorkerSample]) {
	g.gauge("muster_worker_connected", "Whether the worker is connected to its server: 1 or 0.", func(w *WorkerSample) float64 { return boolValue(w.Connected) })
	g.gauge("muster_worker_constrained", "Whether the worker takes no new tasks, for example for lack of disk or while its owner uses the machine: 1 or 0.", func(w *WorkerSample) float64 { return boolValue(w.Constrained != "") })
	g.gauge("muster_worker_attempts_executing", "Attempts in execution, including those that only fetch or save files.", func(w *WorkerSample) float64 { return float64(w.Executing) })
	g.gauge("muster_worker_attempts_held", "Attempts in execution, or whose report or log the server does not have yet.", func(w *WorkerSample) float64 { return float64(w.Held) })
	g.counter("muster_worker_link_sessions_opened_total", "Sessions opened with the server. More than one means that the connection was lost.", func(w *WorkerSample) float64 { return float64(w.Traffic.Sessions) })
	g.counter("muster_worker_lease_expirations_total", "Attempts killed, or whose result was dropped, because their lease expired without contact to the server.", func(w *WorkerSample) float64 { return float64(w.Traffic.Expired) })
	g.counter("muster_worker_log_sent_bytes_total", "Bytes of task logs sent to the server, including those sent again.", func(w *WorkerSample) float64 { return float64(w.Traffic.LogSent) })
	g.gauge("muster_worker_log_pending_bytes", "Bytes of task logs that the server has not acknowledged.", func(w *WorkerSample) float64 { return float64(w.Traffic.LogPending) })
	g.gauge("muster_worker_cpu_utilization_ratio", "Share of the host's CPU cores in use, 0 to 1, at the last heartbeat.", func(w *WorkerSample) float64 {
		if w.Load == nil {
			return math.NaN()
		}
		return w.Load.CPU
	})
	g.gauge("muster_worker_memory_used_bytes", "Memory of the host in use, at the last heartbeat.", func(w *WorkerSample) float64 {
		if w.Load == nil {
			return math.NaN()
		}
		return float64(w.Load.Memory)
	})
	g.gauge("muster_worker_disk_free_bytes", "Free bytes of the file system with the worker's data directory.", func(w *WorkerSample) float64 { return w.Disk.free() })
	g.gauge("muster_worker_disk_size_bytes", "Size of the file system with the worker's data directory.", func(w *WorkerSample) float64 { return w.Disk.size() })
	g.gauge("muster_worker_cpus", "CPU cores that the worker offers.", func(w *WorkerSample) float64 { return w.Resources.CPUs })
	g.gauge("muster_worker_memory_bytes", "Memory that the worker offers.", func(w *WorkerSample) float64 { return float64(w.Resources.Memory) })
	g.gauge("muster_worker_slots", "Slots that the worker offers, for tasks that name no CPUs.", func(w *WorkerSample) float64 { return float64(w.Resources.Slots) })
	g.gauge("muster_worker_cache_bytes", "Bytes in the cache of blobs.", func(w *WorkerSample) float64 { return float64(w.CacheUsed) })
	g.gauge("muster_worker_cache_budget_bytes", "Limit of the cache of blobs in bytes.", func(w *WorkerSample) float64 { return float64(w.CacheBudget) })

	device := []string{"gpu", "uuid"}
	g.gaugeVec("muster_gpu_info", "The GPUs of this worker, as labels. The value is always 1.", append(device, "vendor", "name"), func(w *WorkerSample, emit emitFunc) {
		for _, d := range w.GPUs {
			emit(1, strconv.Itoa(d.Index), d.UUID, d.Vendor, d.Name)
		}
	})
	gpu := func(name, help string, value func(*Device) float64) {
		g.gaugeVec(name, help, device, func(w *WorkerSample, emit emitFunc) {
			for i := range w.GPUs {
				emit(value(&w.GPUs[i]), strconv.Itoa(w.GPUs[i].Index), w.GPUs[i].UUID)
			}
		})
	}
	gpu("muster_gpu_utilization_ratio", "Share of the time in which the GPU was busy, 0 to 1.", func(d *Device) float64 { return known(d.Load.Utilization) })
	gpu("muster_gpu_memory_used_bytes", "Memory of the GPU in use.", func(d *Device) float64 { return known(d.Load.Memory) })
	gpu("muster_gpu_memory_bytes", "Memory of the GPU.", func(d *Device) float64 { return float64(d.Memory) })
	gpu("muster_gpu_temperature_celsius", "Temperature of the GPU.", func(d *Device) float64 { return known(d.Load.Temperature) })
	gpu("muster_gpu_power_watts", "Power usage of the GPU.", func(d *Device) float64 { return known(d.Load.Power) })
	gpu("muster_gpu_quarantined", "Whether the GPU gets no tasks until it is healed or passes a check: 1 or 0.", func(d *Device) float64 { return boolValue(d.Quarantined != "") })
}

// AttemptStarted counts a running attempt.
func (m *Worker) AttemptStarted(kind string) { m.running.WithLabelValues(kind).Inc() }

// AttemptDetached undoes AttemptStarted for an attempt that the next incarnation of the worker continues.
func (m *Worker) AttemptDetached(kind string) { m.running.WithLabelValues(kind).Dec() }

// AttemptEnded counts an ended attempt.
func (m *Worker) AttemptEnded(kind string, r *muster.Report, duration time.Duration) {
	m.running.WithLabelValues(kind).Dec()
	m.ended.WithLabelValues(kind, string(r.Outcome), reasonLabel(r.Reason)).Inc()
	m.attemptDuration.WithLabelValues(kind).Observe(duration.Seconds())
	addUsage(m.energy, m.cpu, r.Usage)
}

func reasonLabel(r muster.Reason) string { return cmp.Or(string(r), "none") }

func addUsage(energy, cpu prometheus.Counter, u *muster.Usage) {
	if u != nil {
		energy.Add(max(u.EnergyWh, 0) * 3600)
		cpu.Add(max(u.CPUSeconds, 0))
	}
}

// ReportAcked counts a report that the server recorded, or no longer needed.
func (m *Worker) ReportAcked(recorded bool) { m.reportsAcked[boolIndex(recorded)].Inc() }

// Refused counts what the worker refused.
func (m *Worker) Refused(reason string) {
	if c := m.refused[reason]; c != nil {
		c.Inc()
	}
}

// BlobBytes counts fetched (in) or uploaded bytes of blobs.
func (m *Worker) BlobBytes(in bool, n int) { m.transferBytes[boolIndex(in)].Add(float64(n)) }

// CacheLookup counts a blob that a task needs, which the cache has (hit) or not.
func (m *Worker) CacheLookup(hit bool) { m.cacheRequests[boolIndex(hit)].Inc() }

func boolIndex(b bool) int {
	if b {
		return 1
	}
	return 0
}
