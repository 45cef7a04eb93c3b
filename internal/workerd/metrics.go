package workerd

import (
	"context"
	"encoding/json"
	"errors"
	"io"
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
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/traceparent"
)

// gaugeSources are the sources of a worker's gauges. They change when it joins again.
type gaugeSources struct {
	agent   atomic.Pointer[agent.Agent]
	devices atomic.Pointer[gpu.Stream]
	blobs   atomic.Pointer[transfer.Client]
	load    atomic.Pointer[muster.Load]
}

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

// recordLoad adds the load of the devices and of the data dir's disk to that of the host, which may be nil, and stores it for scrapes.
func (w *Worker) recordLoad(l *muster.Load, devices *gpu.Stream, disk *muster.DiskLoad) *muster.Load {
	if l != nil {
		l.Disk = disk
		if rs, ok := devices.Latest(); ok {
			for i := range rs.Devices {
				l.GPUs = append(l.GPUs, rs.Devices[i].GPULoad)
			}
		}
	}
	w.gauges.load.Store(l)
	return l
}

// onSettled counts a report that the server recorded or refused.
func (w *Worker) onSettled(id muster.AttemptID, recorded bool) {
	if w.metrics != nil {
		w.metrics.ReportAcked(recorded)
	}
	w.cfg.Tracer.ReportAcked(id, recorded)
}

// onRefused counts what the worker refused.
func (w *Worker) onRefused(reason string) {
	if w.metrics != nil {
		w.metrics.Refused(reason)
	}
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

type startRecorder struct {
	run.Reporter

	startedAt time.Time
	started   atomic.Int64 // muster.Time
}

func (m *startRecorder) Started(at muster.Time) {
	m.started.CompareAndSwap(0, int64(at))
	m.Reporter.Started(at)
}

func readSamples(ctx context.Context, logs *tasklog.Dir, id muster.AttemptID) (list []muster.Sample, err error) {
	r, err := logs.Open(ctx, id, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	dec := tasklog.NewDecoder(r)
	for {
		rec, err := dec.Next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return list, nil
		case err != nil:
			return list, err
		case rec.Stream != tasklog.Usage:
			continue
		}
		var s muster.Sample
		if err := json.Unmarshal(rec.Data, &s); err != nil {
			return list, err
		}
		list = append(list, s)
	}
}
