package obs

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/ratelimit"
	"github.com/muster-dev/muster/internal/sched"
)

// ServerSample has the values of a server's gauges at a scrape.
type ServerSample struct {
	Inbox     int                  // events that wait for the engine
	Sessions  int                  // connected workers
	StoreSize int64                // of the database's files; 0 if unknown
	Disk      DiskUsage            // of the data directory
	Removals  Removals             // of retention
	Ends      map[string]time.Time // of certificates; zero for one that is not there yet
	Fleet     *sched.FleetSnapshot // nil if the engine does not work
}

// Removals is how far retention is.
type Removals struct {
	Waiting  int         // removed jobs whose logs and rows are still to be deleted, counted up to a maximum
	LastPass muster.Time // 0 if there was none, or if it is unknown
}

// Server has the metrics of a server.
type Server struct {
	transitions   [len(muster.Counts{})]prometheus.Counter // by state
	submitted     prometheus.Counter
	ended         *prometheus.CounterVec
	queueDuration prometheus.Histogram
	startDuration prometheus.Histogram
	runDuration   prometheus.Histogram
	renewals      prometheus.Counter
	expirations   prometheus.Counter
	energy        prometheus.Counter
	cpu           prometheus.Counter

	events         prometheus.Counter
	batchSize      prometheus.Histogram
	decideDuration prometheus.Histogram
	commitDuration prometheus.Histogram
	commitFailures prometheus.Counter
	published      map[muster.EventType]prometheus.Counter
	endCounters    map[endKey]prometheus.Counter // of ended; used by the engine's goroutine

	sessionsOpened prometheus.Counter
	framesRejected map[string]prometheus.Counter // by reason
	framesIn       prometheus.Counter
	framesOut      prometheus.Counter
	logBytes       prometheus.Counter
	blobsIn        prometheus.Counter
	blobsOut       prometheus.Counter
	removed        map[string]prometheus.Counter // by what
	freedLogs      prometheus.Counter
	freedBlobs     prometheus.Counter
	lastBackup     prometheus.Gauge
	backupBytes    prometheus.Gauge
	httpRequests   *prometheus.CounterVec
	httpDurations  *prometheus.HistogramVec
	httpInFlight   prometheus.Gauge
	httpLimited    map[ratelimit.Reason]prometheus.Counter
	batchesDropped prometheus.Counter
}

// NewServer registers the metrics of a server. Every scrape calls sample, unless it is nil, for the gauges; simultaneous
// calls must be safe.
func NewServer(r *Registry, sample func(ctx context.Context) ServerSample) *Server {
	return newServer(&registrar{reg: r.reg}, sample)
}

func newServer(s *registrar, sample func(ctx context.Context) ServerSample) *Server {
	m := &Server{published: map[muster.EventType]prometheus.Counter{}, endCounters: map[endKey]prometheus.Counter{}}

	transitions := s.counterVec("muster_task_transitions_total", "Tasks that entered a state, including by submission or retry.", "state")
	for _, state := range muster.TaskStates {
		m.transitions[state] = transitions.WithLabelValues(state.String())
	}
	m.submitted = s.counter("muster_jobs_submitted_total", "Accepted jobs.")
	m.ended = s.counterVec("muster_attempts_ended_total", "Attempts that ended, by outcome and reason; none means no reason.", "outcome", "reason")
	m.queueDuration = s.histogram("muster_attempt_queue_duration_seconds", "Time from the queuing of a task to the assignment of its attempt, observed at the assignment.", durationBuckets())
	m.startDuration = s.histogram("muster_attempt_start_duration_seconds", "Time from the assignment of an attempt to the start of its task, observed at the start.", durationBuckets())
	m.runDuration = s.histogram("muster_attempt_run_duration_seconds", "Time from the start of a task to the end of its attempt.", durationBuckets())
	m.renewals = s.counter("muster_lease_renewals_total", "Leases of attempts renewed by heartbeats.")
	m.expirations = s.counter("muster_lease_expirations_total", "Attempts lost because their lease expired without contact to their worker.")
	m.energy = s.counter("muster_attempt_gpu_energy_joules_total", "Energy used by the GPUs of attempts, as reported at their end.")
	m.cpu = s.counter("muster_attempt_cpu_seconds_total", "CPU time of attempts, as reported at their end.")

	m.events = s.counter("muster_engine_events_total", "Events and calls that the engine processed.")
	m.batchSize = s.histogram("muster_engine_batch_size", "Events processed and committed together.", []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000})
	m.decideDuration = s.histogram("muster_engine_decide_duration_seconds", "Time to process a batch of events and to place tasks.", prometheus.ExponentialBuckets(10e-6, 4, 10))
	m.commitDuration = s.histogram("muster_engine_commit_duration_seconds", "Time to commit a batch.", prometheus.ExponentialBuckets(250e-6, 2, 14))
	m.commitFailures = s.counter("muster_engine_commit_failures_total", "Commits that failed. After each, the engine reloads its state.")
	published := s.counterVec("muster_events_published_total", "Events published to subscribers, by type.", "type")
	for _, t := range []muster.EventType{muster.EventJob, muster.EventTask, muster.EventWorker} {
		m.published[t] = published.WithLabelValues(string(t))
	}

	m.sessionsOpened = s.counter("muster_link_sessions_opened_total", "Sessions opened by workers.")
	frames := s.counterVec("muster_link_frames_total", "Frames of the link protocol received (in) or sent (out) by the server.", "direction")
	m.framesIn, m.framesOut = frames.WithLabelValues("in"), frames.WithLabelValues("out")
	rejected := s.counterVec("muster_link_frames_rejected_total", "Frames of the link protocol that the server rejected, by what is wrong with their signature. Each ended its session.", "reason")
	m.framesRejected = map[string]prometheus.Counter{}
	for _, reason := range link.RejectReasons() {
		m.framesRejected[reason] = rejected.WithLabelValues(reason)
	}
	m.logBytes = s.counter("muster_log_received_bytes_total", "Bytes of task logs received from workers and stored.")
	blobs := s.counterVec("muster_blob_bytes_total", "Bytes of blobs received (in) or sent (out) by the server.", "direction")
	m.blobsIn, m.blobsOut = blobs.WithLabelValues("in"), blobs.WithLabelValues("out")
	removed := s.counterVec("muster_retention_removed_total", "What retention, prune and rm deleted.", "what")
	m.removed = map[string]prometheus.Counter{}
	for _, what := range []string{"jobs", "tasks", "logs", "artifacts", "late_reports", "workers", "blobs"} {
		m.removed[what] = removed.WithLabelValues(what)
	}
	m.freedLogs = s.counter("muster_retention_freed_log_bytes_total", "Bytes of files of logs that were deleted.")
	m.freedBlobs = s.counter("muster_retention_freed_blob_bytes_total", "Bytes of blobs that were deleted because nothing refers to them.")

	m.lastBackup = s.gauge("muster_backup_last_timestamp_seconds", "Time of the last complete backup of this process, as seconds since the Unix epoch; 0 if there was none.")
	m.backupBytes = s.gauge("muster_backup_last_bytes", "Bytes of the files in the last complete backup of this process.")

	m.httpRequests = s.counterVec("muster_http_requests_total", "Completed HTTP requests, by route pattern and status. Streams count when they end.", "method", "route", "code")
	m.httpDurations = s.histogramVec("muster_http_request_duration_seconds", "Duration of HTTP requests, by route pattern, without connections of workers.",
		[]float64{.001, .005, .025, .1, .5, 2.5, 10}, "route")
	m.httpInFlight = s.gauge("muster_http_requests_in_flight", "HTTP requests in progress, including streams and connections of workers.")
	limited := s.counterVec("muster_http_requests_limited_total", "Requests that were refused because of a limit per second: of one key (key), or of an address without a valid key (address).", "reason")
	m.httpLimited = map[ratelimit.Reason]prometheus.Counter{}
	for _, reason := range []ratelimit.Reason{ratelimit.Key, ratelimit.Address} {
		m.httpLimited[reason] = limited.WithLabelValues(string(reason))
	}
	m.batchesDropped = s.counter("muster_trace_batches_dropped_total", "Batches of the engine whose spans were dropped because tracing could not keep up.")
	gauges, fleet := &sampledMetrics[ServerSample]{reg: s}, &sampledMetrics[fleetSample]{reg: s}
	defineServerGauges(gauges)
	defineFleetGauges(fleet)
	s.reg.MustRegister(collectorFunc(func(ctx context.Context, ch chan<- prometheus.Metric) {
		if sample == nil {
			return
		}
		values := sample(ctx)
		gauges.send(ch, &values)
		if values.Fleet != nil {
			fleet.send(ch, newFleetSample(values.Fleet))
		}
	}))
	return m
}

// durationBuckets returns buckets from 10 ms to 3 days.
func durationBuckets() []float64 {
	return []float64{.01, .1, .5, 1, 5, 15, 60, 300, 1_800, 7_200, 28_800, 86_400, 259_200}
}

// ObserveBatch records a batch of the engine. Only the engine's goroutine may call it.
func (m *Server) ObserveBatch(b *sched.Batch) {
	m.events.Add(float64(b.Events))
	m.decideDuration.Observe(b.Decided.Sub(b.Began).Seconds())
	if b.Failed {
		m.commitFailures.Inc()
		return
	}
	if b.Committed.IsZero() {
		return
	}
	m.batchSize.Observe(float64(b.Events))
	m.commitDuration.Observe(b.Committed.Sub(b.Decided).Seconds())
	m.submitted.Add(float64(len(b.Submitted)))
	for state, n := range b.Effects.Entered {
		if n > 0 {
			m.transitions[state].Add(float64(n))
		}
	}
	for _, send := range b.Effects.Commands {
		if a, ok := send.(sched.Assign); ok && a.QueuedAt != 0 {
			m.queueDuration.Observe(a.At.Sub(a.QueuedAt).Std().Seconds())
		}
	}
	for _, s := range b.Effects.AttemptsStarted {
		m.startDuration.Observe(s.At.Sub(s.AssignedAt).Std().Seconds())
	}
	for i := range b.Effects.AttemptsEnded {
		m.attemptEnded(&b.Effects.AttemptsEnded[i])
	}
}

// Published counts published events.
func (m *Server) Published(events []muster.Event) {
	for from := 0; from < len(events); { // most have the type of the previous one
		to := from + 1
		for to < len(events) && events[to].Type == events[from].Type {
			to++
		}
		if c := m.published[events[from].Type]; c != nil {
			c.Add(float64(to - from))
		}
		from = to
	}
}

// endKey is how an attempt ended.
type endKey struct {
	outcome muster.Outcome
	reason  muster.Reason
}

func (m *Server) attemptEnded(e *sched.AttemptEnded) {
	key := endKey{e.Outcome, e.Reason}
	ended := m.endCounters[key]
	if ended == nil {
		ended = m.ended.WithLabelValues(string(e.Outcome), reasonLabel(e.Reason))
		m.endCounters[key] = ended
	}
	ended.Inc()
	if e.Outcome == muster.AttemptLost && e.Reason == muster.WorkerLost {
		m.expirations.Inc()
	}
	if e.StartedAt != 0 {
		m.runDuration.Observe(e.At.Sub(e.StartedAt).Std().Seconds())
	}
	addUsage(m.energy, m.cpu, e.Usage)
}

// SessionOpened counts a session that a worker opened.
func (m *Server) SessionOpened() { m.sessionsOpened.Inc() }

// FrameIn counts a frame from a worker, and the leases that it renews.
func (m *Server) FrameIn(renewed int) {
	m.framesIn.Inc()
	m.renewals.Add(float64(renewed))
}

// FrameRejected counts a frame from a worker that was rejected.
func (m *Server) FrameRejected(reason string) {
	if c := m.framesRejected[reason]; c != nil {
		c.Inc()
	}
}

// FrameOut counts a frame to a worker.
func (m *Server) FrameOut() { m.framesOut.Inc() }

// LogBytes counts stored bytes of logs.
func (m *Server) LogBytes(n int) { m.logBytes.Add(float64(n)) }

// BlobBytesIn counts received bytes of blobs.
func (m *Server) BlobBytesIn(n int) { m.blobsIn.Add(float64(n)) }

// BlobBytesOut counts sent bytes of blobs.
func (m *Server) BlobBytesOut(n int) { m.blobsOut.Add(float64(n)) }

// BackedUp records a complete backup.
func (m *Server) BackedUp(at time.Time, bytes int64) {
	m.lastBackup.Set(float64(at.Unix()))
	m.backupBytes.Set(float64(bytes))
}

// Removed counts what retention deleted: jobs, tasks, logs (of jobs), artifacts (of jobs), late_reports, workers or blobs.
func (m *Server) Removed(what string, n int64) { m.removed[what].Add(float64(n)) }

// Freed counts the bytes of deleted logs and blobs.
func (m *Server) Freed(logs, blobs muster.Size) {
	m.freedLogs.Add(float64(logs))
	m.freedBlobs.Add(float64(blobs))
}

// SpansDropped counts a batch whose spans were dropped.
func (m *Server) SpansDropped() { m.batchesDropped.Inc() }

// RequestStarted counts a request. The caller must call done at its end.
func (m *Server) RequestStarted(method, route string) (done func(status int, stream bool)) {
	start := time.Now()
	m.httpInFlight.Inc()
	return func(status int, stream bool) {
		m.httpInFlight.Dec()
		m.httpRequests.WithLabelValues(methodLabel(method), route, strconv.Itoa(status)).Inc()
		if !stream {
			m.httpDurations.WithLabelValues(route).Observe(time.Since(start).Seconds())
		}
	}
}

// RequestLimited counts a request that was refused because of a rate limit.
func (m *Server) RequestLimited(reason ratelimit.Reason) { m.httpLimited[reason].Inc() }

// methodLabel limits the values of the label method, which clients choose.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	default:
		return "other"
	}
}
