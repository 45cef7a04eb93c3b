package workerd

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"time"

	"github.com/shirou/gopsutil/v4/disk"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/transfer"
	"github.com/muster-dev/muster/internal/obs"
	"github.com/muster-dev/muster/internal/traceparent"
)

// gaugeSources are the sources of a worker's gauges. They change when it joins again.
type gaugeSources struct {
	agent   atomic.Pointer[agent.Agent]
	devices atomic.Pointer[gpu.Stream]
	blobs   atomic.Pointer[transfer.Client]
	load    atomic.Pointer[muster.Load]
}

// registerMetrics registers the worker's metrics, if there is a registry for them.
func (w *Worker) registerMetrics() {
	if w.cfg.Metrics == nil {
		return
	}
	w.metrics = obs.NewWorker(w.cfg.Metrics, w.sample)
}

// sample returns the current values of the gauges.
func (w *Worker) sample(ctx context.Context) obs.WorkerSample {
	st := w.status()
	sample := obs.WorkerSample{
		Connected: st.Connected, Constrained: st.Constrained, Executing: st.Executing, Held: st.Held, Traffic: obs.Traffic(st.Traffic), Resources: st.Offers,
		Load: w.gauges.load.Load(), GPUs: w.gpuDevices(st.Offers.GPUs),
	}
	if u, err := disk.UsageWithContext(ctx, w.cfg.Data); err == nil {
		sample.Disk = obs.DiskUsage{Free: muster.Size(u.Free), Size: muster.Size(u.Total)}
	}
	if c := w.gauges.blobs.Load(); c != nil {
		sample.CacheUsed, sample.CacheBudget = c.Cache()
	}
	return sample
}

// status returns the agent's status; before it exists, the worker is starting.
func (w *Worker) status() agent.Status {
	if a := w.gauges.agent.Load(); a != nil {
		return a.Status()
	}
	return agent.Status{Constrained: "starting"}
}

// gpuDevices lists the offered GPUs with their last readings.
func (w *Worker) gpuDevices(offered []muster.GPU) []obs.Device {
	list := make([]obs.Device, len(offered))
	readings := map[string]muster.GPULoad{}
	if g := w.gauges.devices.Load(); g != nil {
		if rs, ok := g.Latest(); ok {
			for i := range rs.Devices {
				readings[rs.Devices[i].UUID] = rs.Devices[i].GPULoad
			}
		}
	}
	for i := range offered {
		list[i] = obs.Device{GPU: offered[i], Load: readings[offered[i].UUID]}
	}
	return list
}

// recordLoad returns a function that measures the load of the host and of the data dir's disk, and stores it for scrapes.
func (w *Worker) recordLoad(load func(context.Context) *muster.Load, disk func() *muster.DiskLoad) func(context.Context) *muster.Load {
	return func(ctx context.Context) *muster.Load {
		l := load(ctx)
		if l != nil {
			l.Disk = disk()
		}
		w.gauges.load.Store(l)
		return l
	}
}

// onSettled counts a report that the server recorded or refused.
func (w *Worker) onSettled(id muster.AttemptID, recorded bool) {
	if w.metrics != nil {
		w.metrics.ReportAcked(recorded)
	}
	w.cfg.Tracer.ReportAcked(id, recorded)
}

// instrument makes executors count and trace attempts, and pass the trace context to tasks.
func (w *Worker) instrument(executors []run.Executor, worker muster.WorkerID) []run.Executor {
	list := make([]run.Executor, len(executors))
	for i, ex := range executors {
		list[i] = instrumentedExecutor{Executor: ex, metrics: w.metrics, tracer: w.cfg.Tracer, attempts: w.cfg.Attempts, worker: worker}
	}
	return list
}

type instrumentedExecutor struct {
	run.Executor

	metrics  *obs.Worker // may be nil
	tracer   *obs.Tracer // may be nil
	attempts *obs.AttemptTraces
	worker   muster.WorkerID
}

// Run implements run.Executor.
func (x instrumentedExecutor) Run(ctx context.Context, t *run.Task, sink run.Reporter) (report muster.Report) {
	setTraceparent(t, x.tracer.Traceparent(t.Job, t.Attempt))
	if x.metrics == nil && x.tracer == nil && x.attempts == nil {
		return x.Executor.Run(ctx, t, sink)
	}
	defer x.attempts.Add(t.Attempt, t.Job)()
	if x.metrics != nil {
		x.metrics.AttemptStarted(x.Kind())
	}
	m := &startRecorder{Reporter: sink, startedAt: time.Now()}
	defer func() {
		p := recover()
		if p != nil {
			report = muster.Report{Outcome: muster.AttemptFailed, Reason: muster.WorkerInternal}
		}
		x.finish(ctx, t, &report, m)
		if p != nil {
			panic(p) // the agent reports it
		}
	}()
	return x.Executor.Run(ctx, t, m)
}

// finish counts and traces an attempt that has ended or was detached.
func (x instrumentedExecutor) finish(ctx context.Context, t *run.Task, report *muster.Report, m *startRecorder) {
	detached, now := errors.Is(context.Cause(ctx), run.ErrDetach), time.Now()
	switch {
	case x.metrics == nil:
	case detached:
		x.metrics.AttemptDetached(x.Kind())
	default:
		x.metrics.AttemptEnded(x.Kind(), report, now.Sub(m.startedAt))
	}
	if detached || x.tracer == nil {
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
	if t.Recovered != nil && started != 0 { // it began before a restart of the worker
		m.startedAt = at
	}
	x.tracer.AttemptRun(t.Job, report, t.Attempt, x.worker, m.startedAt, at, now)
}

// setTraceparent sets the trace context of a task, unless the job sets one.
func setTraceparent(t *run.Task, value string) {
	if value == "" || t.Spec == nil || t.Spec.Env[traceparent.EnvVar] != "" {
		return
	}
	spec := *t.Spec // other attempts share it
	spec.Env = maps.Clone(spec.Env)
	if spec.Env == nil {
		spec.Env = map[string]string{}
	}
	spec.Env[traceparent.EnvVar] = value
	t.Spec = &spec
}

// startRecorder records when a task started.
type startRecorder struct {
	run.Reporter

	startedAt time.Time
	started   atomic.Int64 // muster.Time
}

// Started implements run.Reporter.
func (m *startRecorder) Started(at muster.Time) {
	m.started.CompareAndSwap(0, int64(at))
	m.Reporter.Started(at)
}

// onTransfer and onCacheLookup return callbacks that count transfers, nil without metrics.
func (w *Worker) onTransfer() func(in bool, n int) {
	if w.metrics == nil {
		return nil
	}
	return w.metrics.BlobBytes
}

func (w *Worker) onCacheLookup() func(hit bool) {
	if w.metrics == nil {
		return nil
	}
	return w.metrics.CacheLookup
}
