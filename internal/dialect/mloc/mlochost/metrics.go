package mlochost

import (
	"sync"
	"time"

	"github.com/muster-dev/muster/internal/dialect/mloc"
)

// maxTracked is how many tasks and workers have figures of their own.
const maxTracked = 1_000

// gatewayMetrics counts what GET /metrics shows: since the gateway started, as hosts do it. The zero figures are ready. Its
// methods may be called at the same time.
type gatewayMetrics struct {
	mu                                  sync.Mutex
	submitted, succeeded, failed        int64
	requeued, registered, unregistered  int64
	heartbeats, flushed, restored, late int64
	refused                             int64
	timings                             map[string]*categoryTimings // by category
	completed                           []mloc.Object
	workers                             map[string]*workerMetrics
}

// categoryTimings sums what tasks of one category took.
type categoryTimings struct{ queue, execution, total average }

type average struct {
	n   int64
	sum float64
}

func (m *average) add(d time.Duration) {
	if d >= 0 {
		m.n++
		m.sum += d.Seconds()
	}
}

func (m *average) writeTo(o mloc.Object, name string) {
	avg := 0.0
	if m.n > 0 {
		avg = m.sum / float64(m.n)
	}
	o[name] = mloc.Object{"avg_sec": avg, "count": m.n, "total_sec": m.sum}
}

// workerMetrics is what a worker's heartbeats say.
type workerMetrics struct {
	heartbeats int64
	at         string
	metrics    mloc.Object
	done       int64
	failed     int64
}

// count adds one to a counter.
func (f *gatewayMetrics) count(n *int64) {
	f.mu.Lock()
	*n++
	f.mu.Unlock()
}

// recordEvent takes in an event.
func (f *gatewayMetrics) recordEvent(e *mloc.WorkerEvent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch e.Type {
	case mloc.EventRegister:
		f.registered++
	case mloc.EventUnregister:
		f.unregistered++
	case mloc.EventHeartbeat:
		f.heartbeats++
	}
	w := f.forWorker(e.WorkerID)
	if w == nil {
		return
	}
	w.at = mloc.Truncate(e.TS, 64)
	if e.Type == mloc.EventHeartbeat {
		w.heartbeats++
		if len(mloc.EncodeString(e.Metrics)) < 16<<10 {
			w.metrics = e.Metrics
		}
	}
}

// forWorker returns the figures of a worker, nil if there are too many. f.mu is held.
func (f *gatewayMetrics) forWorker(id string) *workerMetrics {
	if f.workers == nil {
		f.workers = map[string]*workerMetrics{}
	}
	w := f.workers[id]
	if w == nil && len(f.workers) < maxTracked && mloc.ValidID(id) {
		w = &workerMetrics{}
		f.workers[id] = w
	}
	return w
}

// recordEnd takes in a client's task that ended.
func (f *gatewayMetrics) recordEnd(t *task) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timings == nil {
		f.timings = map[string]*categoryTimings{}
	}
	w := f.forWorker(t.Worker)
	if t.State == mloc.StateDone {
		f.succeeded++
		if w != nil {
			w.done++
		}
	} else {
		f.failed++
		if w != nil {
			w.failed++
		}
	}
	for _, name := range []string{"overall", mloc.Category(t.Type)} {
		m := f.timings[name]
		if m == nil {
			m = &categoryTimings{}
			f.timings[name] = m
		}
		if !t.Started.IsZero() {
			m.queue.add(t.Started.Sub(t.Queued))
			m.execution.add(t.Finished.Sub(t.Started))
		}
		m.total.add(t.Finished.Sub(t.Submitted))
	}
	f.completed = append(f.completed, mloc.Object{
		"task_id": t.ID, "task_type": t.Type, "category": mloc.Category(t.Type), "status": t.State, "worker_id": t.Worker, "finished_at": mloc.FormatTime(t.Finished),
		"total_sec": t.Finished.Sub(t.Submitted).Seconds(),
	})
	if len(f.completed) > maxTracked {
		f.completed = f.completed[len(f.completed)-maxTracked:]
	}
}

// snapshot returns all, in the shape of GET /metrics.
func (f *gatewayMetrics) snapshot(now time.Time, active int, disabled []string) mloc.Object {
	f.mu.Lock()
	defer f.mu.Unlock()
	timings := mloc.Object{}
	for _, name := range []string{"overall", mloc.CategoryInference, mloc.CategoryTraining, mloc.CategoryOther} {
		m := f.timings[name]
		if m == nil {
			m = &categoryTimings{}
		}
		o := mloc.Object{}
		m.queue.writeTo(o, "queue_time")
		m.execution.writeTo(o, "execution_time")
		m.total.writeTo(o, "total_time")
		timings[name] = o
	}
	workers, cost := mloc.Object{}, 0.0
	for id, w := range f.workers {
		workers[id] = mloc.Object{"heartbeats": w.heartbeats, "last_event_at": w.at, "tasks_succeeded": w.done, "tasks_failed": w.failed, "metrics": mloc.NonNilObject(w.metrics)}
		cost += mloc.Float(w.metrics["accrued_cost_usd"])
	}
	return mloc.Object{
		"generated_at": mloc.FormatTime(now),
		"counters": mloc.Object{
			"tasks_submitted": f.submitted, "tasks_succeeded": f.succeeded, "tasks_failed": f.failed, "tasks_requeued": f.requeued,
			"workers_registered": f.registered, "workers_unregistered": f.unregistered, "worker_heartbeats": f.heartbeats,
			"events_refused": f.refused, "events_late": f.late, "redis_flushes": f.flushed, "workers_restored": f.restored,
		},
		"task_timings":             timings,
		"workers":                  mloc.Object{"totals": mloc.Object{"count": len(f.workers), "accrued_cost_usd": cost}, "workers": workers},
		"active_workers_count":     active,
		"elastic_disabled_workers": mloc.NonNilList(disabled),
		"completed_tasks":          mloc.NonNilList(f.completed),
	}
}
