package mlochost

import (
	"sync"
	"time"

	"github.com/muster-dev/muster/internal/dialect/mloc"
)

// maxTimed is how many tasks and workers have figures of their own.
const maxTimed = 1_000

// figures counts what GET /metrics shows: since the gateway started, as hosts do it. The zero figures are ready. Its
// methods may be called at the same time.
type figures struct {
	mu                                  sync.Mutex
	submitted, succeeded, failed        int64
	requeued, registered, unregistered  int64
	heartbeats, flushed, restored, late int64
	refused                             int64
	timings                             map[string]*timing // by category
	completed                           []mloc.Object
	workers                             map[string]*workerFigures
}

// timing sums what tasks of one category took.
type timing struct{ queue, execution, total mean }

type mean struct {
	n   int64
	sum float64
}

func (m *mean) add(d time.Duration) {
	if d >= 0 {
		m.n++
		m.sum += d.Seconds()
	}
}

func (m *mean) into(o mloc.Object, name string) {
	avg := 0.0
	if m.n > 0 {
		avg = m.sum / float64(m.n)
	}
	o[name] = mloc.Object{"avg_sec": avg, "count": m.n, "total_sec": m.sum}
}

// workerFigures is what a worker's heartbeats say.
type workerFigures struct {
	heartbeats int64
	at         string
	metrics    mloc.Object
	done       int64
	failed     int64
}

// count adds one to a counter.
func (f *figures) count(n *int64) {
	f.mu.Lock()
	*n++
	f.mu.Unlock()
}

// worker takes in an event.
func (f *figures) worker(e *mloc.WorkerEvent) {
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
	w := f.of(e.WorkerID)
	if w == nil {
		return
	}
	w.at = mloc.Cut(e.TS, 64)
	if e.Type == mloc.EventHeartbeat {
		w.heartbeats++
		if len(mloc.Compact(e.Metrics)) < 16<<10 {
			w.metrics = e.Metrics
		}
	}
}

// of returns the figures of a worker, nil if there are too many. f.mu is held.
func (f *figures) of(id string) *workerFigures {
	if f.workers == nil {
		f.workers = map[string]*workerFigures{}
	}
	w := f.workers[id]
	if w == nil && len(f.workers) < maxTimed && mloc.GoodID(id) {
		w = &workerFigures{}
		f.workers[id] = w
	}
	return w
}

// ended takes in a client's task that ended.
func (f *figures) ended(t *task) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timings == nil {
		f.timings = map[string]*timing{}
	}
	w := f.of(t.Worker)
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
			m = &timing{}
			f.timings[name] = m
		}
		if !t.Started.IsZero() {
			m.queue.add(t.Started.Sub(t.Queued))
			m.execution.add(t.Finished.Sub(t.Started))
		}
		m.total.add(t.Finished.Sub(t.Submitted))
	}
	f.completed = append(f.completed, mloc.Object{
		"task_id": t.ID, "task_type": t.Type, "category": mloc.Category(t.Type), "status": t.State, "worker_id": t.Worker, "finished_at": mloc.Stamp(t.Finished),
		"total_sec": t.Finished.Sub(t.Submitted).Seconds(),
	})
	if len(f.completed) > maxTimed {
		f.completed = f.completed[len(f.completed)-maxTimed:]
	}
}

// show returns all, in the shape of GET /metrics.
func (f *figures) show(now time.Time, active int, disabled []string) mloc.Object {
	f.mu.Lock()
	defer f.mu.Unlock()
	timings := mloc.Object{}
	for _, name := range []string{"overall", mloc.CategoryInference, mloc.CategoryTraining, mloc.CategoryOther} {
		m := f.timings[name]
		if m == nil {
			m = &timing{}
		}
		o := mloc.Object{}
		m.queue.into(o, "queue_time")
		m.execution.into(o, "execution_time")
		m.total.into(o, "total_time")
		timings[name] = o
	}
	workers, cost := mloc.Object{}, 0.0
	for id, w := range f.workers {
		workers[id] = mloc.Object{"heartbeats": w.heartbeats, "last_event_at": w.at, "tasks_succeeded": w.done, "tasks_failed": w.failed, "metrics": mloc.OrObject(w.metrics)}
		cost += mloc.Float(w.metrics["accrued_cost_usd"])
	}
	return mloc.Object{
		"generated_at": mloc.Stamp(now),
		"counters": mloc.Object{
			"tasks_submitted": f.submitted, "tasks_succeeded": f.succeeded, "tasks_failed": f.failed, "tasks_requeued": f.requeued,
			"workers_registered": f.registered, "workers_unregistered": f.unregistered, "worker_heartbeats": f.heartbeats,
			"events_refused": f.refused, "events_late": f.late, "redis_flushes": f.flushed, "workers_restored": f.restored,
		},
		"task_timings":             timings,
		"workers":                  mloc.Object{"totals": mloc.Object{"count": len(f.workers), "accrued_cost_usd": cost}, "workers": workers},
		"active_workers_count":     active,
		"elastic_disabled_workers": mloc.OrList(disabled),
		"completed_tasks":          mloc.OrList(f.completed),
	}
}
