package mloc

import (
	"sync"
	"time"
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
	completed                           []object
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

func (m *mean) into(o object, name string) {
	avg := 0.0
	if m.n > 0 {
		avg = m.sum / float64(m.n)
	}
	o[name] = object{"avg_sec": avg, "count": m.n, "total_sec": m.sum}
}

// workerFigures is what a worker's heartbeats say.
type workerFigures struct {
	heartbeats int64
	at         string
	metrics    object
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
func (f *figures) worker(e *workerEvent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch e.Type {
	case eventRegister:
		f.registered++
	case eventUnregister:
		f.unregistered++
	case eventHeartbeat:
		f.heartbeats++
	}
	w := f.of(e.WorkerID)
	if w == nil {
		return
	}
	w.at = cut(e.TS, 64)
	if e.Type == eventHeartbeat {
		w.heartbeats++
		if len(compact(e.Metrics)) < 16<<10 {
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
	if w == nil && len(f.workers) < maxTimed && goodID(id) {
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
	if t.State == stateDone {
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
	for _, name := range []string{"overall", category(t.Type)} {
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
	f.completed = append(f.completed, object{
		"task_id": t.ID, "task_type": t.Type, "category": category(t.Type), "status": t.State, "worker_id": t.Worker, "finished_at": stamp(t.Finished),
		"total_sec": t.Finished.Sub(t.Submitted).Seconds(),
	})
	if len(f.completed) > maxTimed {
		f.completed = f.completed[len(f.completed)-maxTimed:]
	}
}

// show returns all, in the shape of GET /metrics.
func (f *figures) show(now time.Time, active int, disabled []string) object {
	f.mu.Lock()
	defer f.mu.Unlock()
	timings := object{}
	for _, name := range []string{"overall", categoryInference, categoryTraining, categoryOther} {
		m := f.timings[name]
		if m == nil {
			m = &timing{}
		}
		o := object{}
		m.queue.into(o, "queue_time")
		m.execution.into(o, "execution_time")
		m.total.into(o, "total_time")
		timings[name] = o
	}
	workers, cost := object{}, 0.0
	for id, w := range f.workers {
		workers[id] = object{"heartbeats": w.heartbeats, "last_event_at": w.at, "tasks_succeeded": w.done, "tasks_failed": w.failed, "metrics": orObject(w.metrics)}
		cost += float(w.metrics["accrued_cost_usd"])
	}
	return object{
		"generated_at": stamp(now),
		"counters": object{
			"tasks_submitted": f.submitted, "tasks_succeeded": f.succeeded, "tasks_failed": f.failed, "tasks_requeued": f.requeued,
			"workers_registered": f.registered, "workers_unregistered": f.unregistered, "worker_heartbeats": f.heartbeats,
			"events_refused": f.refused, "events_late": f.late, "redis_flushes": f.flushed, "workers_restored": f.restored,
		},
		"task_timings":             timings,
		"workers":                  object{"totals": object{"count": len(f.workers), "accrued_cost_usd": cost}, "workers": workers},
		"active_workers_count":     active,
		"elastic_disabled_workers": orList(disabled),
		"completed_tasks":          orList(f.completed),
	}
}
