package mlochost

import (
	"maps"
	"sync"
	"time"

	"github.com/muster-dev/muster/internal/dialect/mloc"
)

// maxTracked is how many tasks and workers have figures of their own.
const maxTracked = 1_000

// gatewayMetrics is what GET /metrics shows: since the gateway started, as hosts do it. Its methods may be called at the same time.
type gatewayMetrics struct {
	mu        sync.Mutex
	counters  counters
	timings   map[string]categoryTimings // by category
	completed []mloc.Object
	workers   map[string]workerMetrics
}

func newGatewayMetrics() *gatewayMetrics {
	return &gatewayMetrics{
		timings:   map[string]categoryTimings{"overall": {}, mloc.CategoryInference: {}, mloc.CategoryTraining: {}, mloc.CategoryOther: {}},
		completed: []mloc.Object{}, workers: map[string]workerMetrics{},
	}
}

type counters struct {
	Submitted    int64 `json:"tasks_submitted"`
	Succeeded    int64 `json:"tasks_succeeded"`
	Failed       int64 `json:"tasks_failed"`
	Requeued     int64 `json:"tasks_requeued"`
	Registered   int64 `json:"workers_registered"`
	Unregistered int64 `json:"workers_unregistered"`
	Heartbeats   int64 `json:"worker_heartbeats"`
	Refused      int64 `json:"events_refused"`
	Late         int64 `json:"events_late"`
	Flushes      int64 `json:"redis_flushes"`
	Restored     int64 `json:"workers_restored"`
}

// categoryTimings sums what tasks of one category took.
type categoryTimings struct {
	Queue     timing `json:"queue_time"`
	Execution timing `json:"execution_time"`
	Total     timing `json:"total_time"`
}

type timing struct {
	Average float64 `json:"avg_sec"`
	Count   int64   `json:"count"`
	Sum     float64 `json:"total_sec"`
}

func (t *timing) add(d time.Duration) {
	if d >= 0 {
		t.Count++
		t.Sum += d.Seconds()
		t.Average = t.Sum / float64(t.Count)
	}
}

// workerMetrics is what a worker's heartbeats say.
type workerMetrics struct {
	Heartbeats  int64       `json:"heartbeats"`
	LastEventAt string      `json:"last_event_at"`
	Succeeded   int64       `json:"tasks_succeeded"`
	Failed      int64       `json:"tasks_failed"`
	Metrics     mloc.Object `json:"metrics"`
}

func (m *gatewayMetrics) count(counter *int64, n int) {
	m.mu.Lock()
	*counter += int64(n)
	m.mu.Unlock()
}

func (m *gatewayMetrics) recordEvent(e *mloc.WorkerEvent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch e.Type {
	case mloc.EventRegister:
		m.counters.Registered++
	case mloc.EventUnregister:
		m.counters.Unregistered++
	case mloc.EventHeartbeat:
		m.counters.Heartbeats++
	}
	m.updateWorker(e.WorkerID, func(w *workerMetrics) {
		w.LastEventAt = mloc.Truncate(e.TS, 64)
		if e.Type != mloc.EventHeartbeat {
			return
		}
		w.Heartbeats++
		if len(mloc.EncodeString(e.Metrics)) < 16<<10 {
			w.Metrics = mloc.NonNilObject(e.Metrics)
		}
	})
}

// updateWorker changes the figures of a worker, unless there are too many. m.mu is held.
func (m *gatewayMetrics) updateWorker(id string, change func(*workerMetrics)) {
	w, known := m.workers[id]
	if known || len(m.workers) < maxTracked && mloc.ValidID(id) {
		w.Metrics = mloc.NonNilObject(w.Metrics)
		change(&w)
		m.workers[id] = w
	}
}

// recordEnd takes in a client's task that ended.
func (m *gatewayMetrics) recordEnd(t *task) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.State == mloc.StateDone {
		m.counters.Succeeded++
		m.updateWorker(t.Worker, func(w *workerMetrics) { w.Succeeded++ })
	} else {
		m.counters.Failed++
		m.updateWorker(t.Worker, func(w *workerMetrics) { w.Failed++ })
	}
	total := t.Finished.Sub(t.Submitted)
	for _, name := range []string{"overall", mloc.Category(t.Type)} {
		timings := m.timings[name]
		if !t.Started.IsZero() {
			timings.Queue.add(t.Started.Sub(t.Queued))
			timings.Execution.add(t.Finished.Sub(t.Started))
		}
		timings.Total.add(total)
		m.timings[name] = timings
	}
	m.completed = append(m.completed, mloc.Object{
		"task_id": t.ID, "task_type": t.Type, "category": mloc.Category(t.Type), "status": t.State, "worker_id": t.Worker,
		"finished_at": mloc.FormatTime(t.Finished), "total_sec": total.Seconds(),
	})
	m.completed = m.completed[max(0, len(m.completed)-maxTracked):]
}

// snapshot returns all, in the shape of GET /metrics.
func (m *gatewayMetrics) snapshot(now time.Time, active int, disabled []string) mloc.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	cost := 0.0
	for _, w := range m.workers {
		cost += mloc.Float(w.Metrics["accrued_cost_usd"])
	}
	return mloc.Object{
		"generated_at": mloc.FormatTime(now),
		"counters":     m.counters,
		"task_timings": maps.Clone(m.timings),
		"workers": mloc.Object{
			"totals": mloc.Object{"count": len(m.workers), "accrued_cost_usd": cost}, "workers": maps.Clone(m.workers),
		},
		"active_workers_count":     active,
		"elastic_disabled_workers": mloc.NonNilList(disabled),
		"completed_tasks":          m.completed,
	}
}
