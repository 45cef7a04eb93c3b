package work

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"time"

	"github.com/shirou/gopsutil/v4/disk"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/transfer"
	"github.com/muster-dev/muster/internal/obs"
	"github.com/muster-dev/muster/internal/traceparent"
)

// parts are what the gauges of a worker are read from. They change when it joins again.
type parts struct {
	agent   atomic.Pointer[agent.Agent]
	devices atomic.Pointer[gpus]
	blobs   atomic.Pointer[transfer.Client]
	load    atomic.Pointer[muster.Load]
}

// measure registers the worker's metrics, if there is a registry for them.
func (w *Worker) measure() {
	if w.cfg.Metrics == nil {
		return
	}
	w.metrics = obs.NewWorker(w.cfg.Metrics, obs.WorkerSources{
		Connected:   func() bool { return w.status().Connected },
		Constrained: func() string { return w.status().Constrained },
		Attempts:    func() (executing, held int) { s := w.status(); return s.Executing, s.Held },
		Traffic:     func() obs.Traffic { return obs.Traffic(w.status().Traffic) },
		Load:        w.parts.load.Load,
		Resources:   func() muster.Resources { return w.status().Offers },
		Disk: func(ctx context.Context) (free, size int64, err error) {
			u, err := disk.UsageWithContext(ctx, w.cfg.Data)
			if err != nil {
				return 0, 0, err
			}
			return int64(u.Free), int64(u.Total), nil
		},
		Cache: func() (used, budget int64) {
			if c := w.parts.blobs.Load(); c != nil {
				return c.Cache()
			}
			return 0, 0
		},
		GPUs: w.devices,
	})
}

// status is how the agent stands; before there is one, the worker is not connected and starting.
func (w *Worker) status() agent.Status {
	if a := w.parts.agent.Load(); a != nil {
		return a.Status()
	}
	return agent.Status{Constrained: "it starts"}
}

// devices lists what is offered of GPUs, with their last readings.
func (w *Worker) devices() []obs.Device {
	offered := w.status().Offers.GPUs
	list := make([]obs.Device, len(offered))
	readings := map[string]muster.GPULoad{}
	if g := w.parts.devices.Load(); g != nil {
		if rs, ok := g.Latest(); ok {
			for i := range rs.Each {
				readings[rs.Each[i].UUID] = rs.Each[i].GPULoad
			}
		}
	}
	for i := range offered {
		list[i] = obs.Device{GPU: offered[i], Load: readings[offered[i].UUID]}
	}
	return list
}

// noted returns a func that measures the load of the host with that of the data dir's disk, and remembers it for scrapes.
func (w *Worker) noted(load func(context.Context) *muster.Load, disk func() *muster.DiskLoad) func(context.Context) *muster.Load {
	return func(ctx context.Context) *muster.Load {
		l := load(ctx)
		if l != nil {
			l.Disk = disk()
		}
		w.parts.load.Store(l)
		return l
	}
}

// settled counts a report that the server recorded or did not want.
func (w *Worker) settled(id muster.AttemptID, recorded bool) {
	if w.metrics != nil {
		w.metrics.ReportAcked(recorded)
	}
	w.cfg.Tracer.ReportAcked(id, recorded)
}

// measured has executors count and trace what they run, and tell tasks of their trace.
func (w *Worker) measured(executors []run.Executor, worker muster.WorkerID) []run.Executor {
	list := make([]run.Executor, len(executors))
	for i, ex := range executors {
		list[i] = measuredExecutor{Executor: ex, metrics: w.metrics, tracer: w.cfg.Tracer, attempts: w.cfg.Attempts, worker: worker}
	}
	return list
}

type measuredExecutor struct {
	run.Executor

	metrics  *obs.Worker // nil if nothing is counted
	tracer   *obs.Tracer // nil if nothing is traced
	attempts *obs.AttemptTraces
	worker   muster.WorkerID
}

// Run implements run.Executor.
func (x measuredExecutor) Run(ctx context.Context, t *run.Task, sink run.Sink) (report muster.Report) {
	tell(t, x.tracer.Traceparent(t.Job, t.Attempt))
	if x.metrics == nil && x.tracer == nil && x.attempts == nil {
		return x.Executor.Run(ctx, t, sink)
	}
	defer x.attempts.Add(t.Attempt, t.Job)()
	if x.metrics != nil {
		x.metrics.AttemptStarted(x.Kind())
	}
	m := &measured{Sink: sink, began: time.Now()}
	defer func() {
		p := recover()
		if p != nil {
			report = muster.Report{Outcome: muster.AttemptFailed, Reason: muster.WorkerInternal}
		}
		x.ended(ctx, t, &report, m)
		if p != nil {
			panic(p) // the agent reports it
		}
	}()
	return x.Executor.Run(ctx, t, m)
}

// ended counts and traces an attempt that ended, or that another life of the worker goes on with.
func (x measuredExecutor) ended(ctx context.Context, t *run.Task, report *muster.Report, m *measured) {
	left, now := errors.Is(context.Cause(ctx), run.ErrLeave), time.Now()
	switch {
	case x.metrics == nil:
	case left:
		x.metrics.AttemptDetached(x.Kind())
	default:
		x.metrics.AttemptEnded(x.Kind(), report, now.Sub(m.began))
	}
	if left || x.tracer == nil {
		return
	}
	started := report.StartedAt
	if started == 0 {
		started = muster.Time(m.started.Load())
	}
	var at time.Time
	if started != 0 {
		at = started.Std()
	}
	if t.Held != nil && started != 0 { // an earlier life began it
		m.began = at
	}
	x.tracer.AttemptRun(t.Job, report, t.Attempt, x.worker, m.began, at, now)
}

// tell sets the trace context of a task, unless the job does itself.
func tell(t *run.Task, value string) {
	if value == "" || t.Spec == nil || t.Spec.Env[traceparent.EnvVar] != "" {
		return
	}
	spec := *t.Spec // which other attempts share
	spec.Env = maps.Clone(spec.Env)
	if spec.Env == nil {
		spec.Env = map[string]string{}
	}
	spec.Env[traceparent.EnvVar] = value
	t.Spec = &spec
}

// measured notes when a task started.
type measured struct {
	run.Sink

	began   time.Time
	started atomic.Int64 // muster.Time
}

// Started implements run.Sink.
func (m *measured) Started(at muster.Time) {
	m.started.CompareAndSwap(0, int64(at))
	m.Sink.Started(at)
}

// moved and cached count what transfers do, nil if nothing is measured.
func (w *Worker) moved() func(in bool, n int) {
	if w.metrics == nil {
		return nil
	}
	return w.metrics.BlobBytes
}

func (w *Worker) cached() func(hit bool) {
	if w.metrics == nil {
		return nil
	}
	return w.metrics.CacheLookup
}
