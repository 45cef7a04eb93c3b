package runtest

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/meter"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/process"
	"github.com/muster-dev/muster/internal/tasklog"
)

// fakeIsolator isolates nothing and counts its calls.
type fakeIsolator struct {
	stats              run.CgroupStats
	prepared, released atomic.Int64
}

func (l *fakeIsolator) Prepare(_ *run.Task, f run.Folders) (*run.IsolationSpec, error) {
	if f.Base == "" || f.Checkpoint == "" {
		return nil, run.Failf(muster.WorkerInternal, "folders are missing: %+v", f)
	}
	l.prepared.Add(1)
	return &run.IsolationSpec{}, nil
}

func (*fakeIsolator) PrepareContainer(*run.Task) (*run.IsolationSpec, error) { return nil, nil } //nolint:nilnil // no control groups

func (*fakeIsolator) PrepareTool([]string, []string) *run.IsolationSpec { return &run.IsolationSpec{} }

func (l *fakeIsolator) Stats(*run.IsolationSpec) run.CgroupStats { return l.stats }

func (l *fakeIsolator) CurrentStats(*run.IsolationSpec) run.CgroupStats { return l.stats }

func (*fakeIsolator) Processes(*run.IsolationSpec) ([]int, bool) { return nil, false }

func (l *fakeIsolator) Release(*run.IsolationSpec) { l.released.Add(1) }

// fakeMeter reports its fields.
type fakeMeter struct {
	usage    muster.Usage
	exceeded *run.Stopped
}

func (m *fakeMeter) Watch(s *meter.Subject, w meter.Handler) func() muster.Usage {
	if s.Pid.PID == 0 || s.Task == nil {
		return func() muster.Usage { return muster.Usage{} }
	}
	w.Sampled(muster.Sample{At: 5, PIDs: 3})
	w.Warned("it is about to be too much")
	if m.exceeded != nil {
		w.Exceeded(m.exceeded)
	}
	return func() muster.Usage { return m.usage }
}

// fakeDevices counts acquisitions and releases.
type fakeDevices struct {
	acquired, released atomic.Int64
	fault              error
}

func (*fakeDevices) Environ(g *muster.Grant) []string {
	return []string{"CUDA_VISIBLE_DEVICES=" + strings.Join(g.GPUs, "+")}
}

func (d *fakeDevices) Acquire(context.Context, muster.AttemptID, *muster.Grant) { d.acquired.Add(1) }

func (d *fakeDevices) Release(_ context.Context, _ muster.AttemptID, _ *muster.Grant, envTag string) error {
	d.released.Add(1)
	if !strings.HasPrefix(envTag, "MUSTER_OUT=") {
		return run.Failf(muster.WorkerInternal, "the environment tag is %q", envTag)
	}
	return d.fault
}

func isolation(t *testing.T, o suite) {
	t.Helper()
	o.run(t, "what the kernel counted explains a failure", func(t *testing.T) {
		for _, c := range []struct {
			stats    run.CgroupStats
			shell    string
			reason   muster.Reason
			wantMsgs []string
		}{
			{run.CgroupStats{OOMKills: new(1), MemoryPeak: new(muster.Size(512 << 20))}, "kill -KILL $$", muster.OutOfMemory, []string{"512MiB", "1GiB", "resources.memory"}},
			{run.CgroupStats{OOMKills: new(1)}, "exit 1", muster.OutOfMemory, []string{"1GiB"}},
			{run.CgroupStats{PIDsDenied: new(7)}, "exit 2", muster.PIDLimit, []string{"exit code 2", "it may have 64", "resources.pids"}},
			{run.CgroupStats{OOMKills: new(0), PIDsDenied: new(0)}, "exit 2", muster.ExitCode, []string{"exit code 2"}},
			{run.CgroupStats{OOMKills: new(1), PIDsDenied: new(1)}, "exit 0", muster.NoReason, nil},
		} {
			l := &fakeIsolator{stats: c.stats}
			b := open(t, o, func(e *process.Deps) { e.Isolator = l })
			task := b.task(c.shell)
			task.Grant = muster.Grant{Memory: 1 << 30, PIDs: 64}
			r := b.done(t, task)
			if r.Reason != c.reason {
				t.Errorf("%s: %s, %q", c.shell, r.Reason, r.Message)
			}
			for _, s := range c.wantMsgs {
				if !strings.Contains(r.Message, s) {
					t.Errorf("message %q does not contain %q", r.Message, s)
				}
			}
			if l.prepared.Load() != 1 || l.released.Load() != 1 {
				t.Errorf("prepared %d times, released %d times", l.prepared.Load(), l.released.Load())
			}
			if c.stats.MemoryPeak != nil && r.Usage.MemoryPeak != *c.stats.MemoryPeak {
				t.Errorf("usage %+v", r.Usage)
			}
		}
	})
	o.run(t, "what the meter finds too much ends it, and its samples are kept", func(t *testing.T) {
		m := &fakeMeter{usage: muster.Usage{DiskPeak: 9 << 20, CPUSeconds: 1000}}
		m.exceeded = &run.Stopped{Outcome: muster.AttemptFailed, Reason: muster.DiskLimit, Message: "its folders have 9MiB"}
		b := open(t, o, func(e *process.Deps) { e.Meter = m })
		task := b.task("exec sleep 1000")
		r := b.done(t, task)
		want(t, r, muster.AttemptFailed, muster.DiskLimit, "9MiB")
		if r.Usage.DiskPeak != 9<<20 || r.Usage.CPUSeconds != 1000 || r.Usage.WallSeconds <= 0 {
			t.Errorf("usage %+v", r.Usage)
		}
		var s muster.Sample
		if err := json.Unmarshal([]byte(b.Output(t, task.Attempt, tasklog.Usage)), &s); err != nil || s.PIDs != 3 {
			t.Errorf("the sample is %+v, %v", s, err)
		}
		b.wantOutput(t, task, tasklog.System, "it is about to be too much\n")
	})
	o.run(t, "devices are acquired and released, and their fault is the failure", func(t *testing.T) {
		fault := run.Failf(muster.GPUFault, "GPU-a failed: XID 79")
		for shell, c := range map[string]struct {
			fault  error
			reason muster.Reason
		}{
			"test $CUDA_VISIBLE_DEVICES = GPU-a+GPU-b": {nil, muster.NoReason},
			"exit 1":      {fault, muster.GPUFault},
			"exit 0":      {fault, muster.NoReason},
			"exit 2":      {nil, muster.ExitCode},
			"./not-there": {nil, muster.StartFailed},
			"sleep 1000":  {fault, muster.GPUFault}, // until its timeout
		} {
			d := &fakeDevices{fault: c.fault}
			b := open(t, o, func(e *process.Deps) { e.GPUs = d })
			task := b.task(shell)
			if shell == "./not-there" {
				task.Spec.Run = &muster.Command{Argv: []string{shell}}
			}
			task.Grant.GPUs = []string{"GPU-a", "GPU-b"}
			if shell == "sleep 1000" {
				task.Spec.Timeout = muster.Duration(200 * time.Millisecond)
			}
			if r := b.done(t, task); r.Reason != c.reason {
				t.Errorf("%s: %s, %q", shell, r.Reason, r.Message)
			}
			if d.acquired.Load() != 1 || d.released.Load() != 1 {
				t.Errorf("%s: acquired %d times, released %d times", shell, d.acquired.Load(), d.released.Load())
			}
		}
	})
	o.run(t, "a preempted task gets the signal of its checkpoint", func(t *testing.T) {
		b := open(t, o)
		task := b.task("trap 'echo saved; exit 0' USR2; trap 'echo wrong' TERM; echo ready; while :; do sleep 0.02; done")
		task.Spec.Checkpoint = &muster.Checkpoint{Signal: "SIGUSR2", Grace: muster.Duration(Timeout)}
		task.Spec.Kill.Grace = muster.Duration(time.Millisecond)
		r := b.startUntil(t, task, "ready\n")(&run.Stopped{Outcome: muster.AttemptFailed, Reason: muster.Preempted, Message: "preempted for job 5"})
		b.check(t, task, &r)
		want(t, r, muster.AttemptFailed, muster.Preempted, "job 5")
		b.wantOutput(t, task, tasklog.Stdout, "ready\nsaved\n")
	})
}
