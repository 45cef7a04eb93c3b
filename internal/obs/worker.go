package obs

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-dev/muster"
)

// WorkerSources are the sources of a worker's gauges. Every scrape calls those that are not nil. They must return quickly
// and be safe for simultaneous calls.
type WorkerSources struct {
	// Connected reports whether the worker has a session at the server.
	Connected func() bool
	// Constrained returns why the worker takes no tasks, or "".
	Constrained func() string
	// Attempts returns how many attempts are executed, and how many are executed or have an unacknowledged report or log.
	Attempts func() (executing, held int)
	// Traffic returns counters of the link.
	Traffic func() Traffic
	// Load returns the last load of the host, or nil.
	Load func() *muster.Load
	// Resources returns the offered resources.
	Resources func() muster.Resources
	// Disk returns bytes of the file system of the data directory.
	Disk func(ctx context.Context) (free, size int64, err error)
	// Cache returns bytes of the blob cache.
	Cache func() (used, budget int64)
	// GPUs lists the devices.
	GPUs func() []Device
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
	sources WorkerSources

	ended           *prometheus.CounterVec
	attemptDuration *prometheus.HistogramVec
	running         *prometheus.GaugeVec
	reportsAcked    [2]prometheus.Counter
	energy          prometheus.Counter
	cpu             prometheus.Counter
	transferBytes   [2]prometheus.Counter
	cacheRequests   [2]prometheus.Counter

	connected, constrained, executing, held     sampledMetric
	sessions, expired, logSent, logPending      sampledMetric
	cpuUsed, memoryUsed, diskFree, diskSize     sampledMetric
	cpus, memory, slots, cacheUsed, cacheBudget sampledMetric

	gpuInfo, gpuUtilization, gpuMemoryUsed, gpuMemory, gpuTemperature, gpuPower, gpuQuarantined sampledMetric
}

// NewWorker registers the metrics of a worker.
func NewWorker(r *Registry, from WorkerSources) *Worker {
	return newWorker(&registrar{reg: r.reg}, from)
}

func newWorker(s *registrar, from WorkerSources) *Worker {
	m := &Worker{sources: from}
	m.ended = s.counterVec("muster_worker_attempts_total", "Attempts that ended on this worker, by kind, outcome and reason; none means no reason.", "kind", "outcome", "reason")
	m.attemptDuration = s.histogramVec("muster_worker_attempt_duration_seconds", "Duration of attempts on this worker, including fetching inputs and saving outputs.", durationBuckets(), "kind")
	m.running = s.gaugeVec("muster_worker_running_attempts", "Attempts running on this worker, by kind.", "kind")
	acked := s.counterVec("muster_worker_reports_total", "Reports of ended attempts that the server recorded, or no longer needed (unwanted).", "result")
	m.reportsAcked[0], m.reportsAcked[1] = acked.WithLabelValues("unwanted"), acked.WithLabelValues("recorded")
	m.energy = s.counter("muster_worker_gpu_energy_joules_total", "Energy used by the GPUs of ended attempts.")
	m.cpu = s.counter("muster_worker_cpu_seconds_total", "CPU time of ended attempts.")
	moved := s.counterVec("muster_worker_transfer_bytes_total", "Bytes of inputs, outputs and checkpoints fetched (in) or uploaded (out).", "direction")
	m.transferBytes[0], m.transferBytes[1] = moved.WithLabelValues("out"), moved.WithLabelValues("in")
	cache := s.counterVec("muster_worker_cache_requests_total", "Blobs that tasks needed and the cache had (hit) or did not have (miss).", "result")
	m.cacheRequests[0], m.cacheRequests[1] = cache.WithLabelValues("miss"), cache.WithLabelValues("hit")

	m.connected = s.gaugeFunc("muster_worker_connected", "Whether the worker is connected to its server: 1 or 0.")
	m.constrained = s.gaugeFunc("muster_worker_constrained", "Whether the worker takes no new tasks, for example for lack of disk or while its owner uses the machine: 1 or 0.")
	m.executing = s.gaugeFunc("muster_worker_attempts_executing", "Attempts in execution, including those that only fetch or save files.")
	m.held = s.gaugeFunc("muster_worker_attempts_held", "Attempts in execution, or whose report or log the server does not have yet.")
	m.sessions = s.counterFunc("muster_worker_link_sessions_opened_total", "Sessions opened with the server. More than one means that the connection was lost.")
	m.expired = s.counterFunc("muster_worker_lease_expirations_total", "Attempts killed, or whose result was dropped, because their lease expired without contact to the server.")
	m.logSent = s.counterFunc("muster_worker_log_sent_bytes_total", "Bytes of task logs sent to the server, including those sent again.")
	m.logPending = s.gaugeFunc("muster_worker_log_pending_bytes", "Bytes of task logs that the server has not acknowledged.")
	m.cpuUsed = s.gaugeFunc("muster_worker_cpu_utilization_ratio", "Share of the host's CPU cores in use, 0 to 1, at the last heartbeat.")
	m.memoryUsed = s.gaugeFunc("muster_worker_memory_used_bytes", "Memory of the host in use, at the last heartbeat.")
	m.diskFree = s.gaugeFunc("muster_worker_disk_free_bytes", "Free bytes of the file system with the worker's data directory.")
	m.diskSize = s.gaugeFunc("muster_worker_disk_size_bytes", "Size of the file system with the worker's data directory.")
	m.cpus = s.gaugeFunc("muster_worker_cpus", "CPU cores that the worker offers.")
	m.memory = s.gaugeFunc("muster_worker_memory_bytes", "Memory that the worker offers.")
	m.slots = s.gaugeFunc("muster_worker_slots", "Slots that the worker offers, for tasks that name no CPUs.")
	m.cacheUsed = s.gaugeFunc("muster_worker_cache_bytes", "Bytes in the cache of blobs.")
	m.cacheBudget = s.gaugeFunc("muster_worker_cache_budget_bytes", "Limit of the cache of blobs in bytes.")

	device := []string{"gpu", "uuid"}
	m.gpuInfo = s.gaugeFunc("muster_gpu_info", "The GPUs of this worker, as labels. The value is always 1.", append(device, "vendor", "name")...)
	m.gpuUtilization = s.gaugeFunc("muster_gpu_utilization_ratio", "Share of the time in which the GPU was busy, 0 to 1.", device...)
	m.gpuMemoryUsed = s.gaugeFunc("muster_gpu_memory_used_bytes", "Memory of the GPU in use.", device...)
	m.gpuMemory = s.gaugeFunc("muster_gpu_memory_bytes", "Memory of the GPU.", device...)
	m.gpuTemperature = s.gaugeFunc("muster_gpu_temperature_celsius", "Temperature of the GPU.", device...)
	m.gpuPower = s.gaugeFunc("muster_gpu_power_watts", "Power usage of the GPU.", device...)
	m.gpuQuarantined = s.gaugeFunc("muster_gpu_quarantined", "Whether the GPU gets no tasks until it is healed or passes a check: 1 or 0.", device...)
	s.reg.MustRegister(collectorFunc(m.collect))
	return m
}

func (m *Worker) collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), sourceTimeout)
	defer cancel()
	from := &m.sources
	if from.Connected != nil {
		m.connected.send(ch, boolValue(from.Connected()))
	}
	if from.Constrained != nil {
		m.constrained.send(ch, boolValue(from.Constrained() != ""))
	}
	if from.Attempts != nil {
		executing, held := from.Attempts()
		m.executing.send(ch, float64(executing))
		m.held.send(ch, float64(held))
	}
	if from.Traffic != nil {
		t := from.Traffic()
		m.sessions.send(ch, float64(t.Sessions))
		m.expired.send(ch, float64(t.Expired))
		m.logSent.send(ch, float64(t.LogSent))
		m.logPending.send(ch, float64(t.LogPending))
	}
	if from.Load != nil {
		if l := from.Load(); l != nil {
			m.cpuUsed.send(ch, l.CPU)
			m.memoryUsed.send(ch, float64(l.Memory))
		}
	}
	if from.Resources != nil {
		r := from.Resources()
		m.cpus.send(ch, r.CPUs)
		m.memory.send(ch, float64(r.Memory))
		m.slots.send(ch, float64(r.Slots))
	}
	if from.Disk != nil {
		if free, size, err := from.Disk(ctx); err == nil {
			m.diskFree.send(ch, float64(free))
			m.diskSize.send(ch, float64(size))
		}
	}
	if from.Cache != nil {
		used, budget := from.Cache()
		m.cacheUsed.send(ch, float64(used))
		m.cacheBudget.send(ch, float64(budget))
	}
	if from.GPUs != nil {
		for _, d := range from.GPUs() {
			m.device(ch, &d)
		}
	}
}

func (m *Worker) device(ch chan<- prometheus.Metric, d *Device) {
	index := strconv.Itoa(d.Index)
	m.gpuInfo.send(ch, 1, index, d.UUID, d.Vendor, d.Name)
	m.gpuMemory.send(ch, float64(d.Memory), index, d.UUID)
	m.gpuQuarantined.send(ch, boolValue(d.Quarantined != ""), index, d.UUID)
	if d.Load.Memory != nil {
		m.gpuMemoryUsed.send(ch, float64(*d.Load.Memory), index, d.UUID)
	}
	for r, v := range map[*sampledMetric]*float64{&m.gpuUtilization: d.Load.Utilization, &m.gpuTemperature: d.Load.Temperature, &m.gpuPower: d.Load.Power} {
		if v != nil {
			r.send(ch, *v, index, d.UUID)
		}
	}
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
