package meter_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/meter"
	"github.com/muster-dev/muster/internal/agent/run"
)

// fakeIsolator has control groups with fixed figures.
type fakeIsolator struct {
	run.Isolator // the rest is not called
	counted      run.CgroupStats
	known        bool // the members of a group are known
}

func (g *fakeIsolator) CurrentStats(*run.IsolationSpec) run.CgroupStats { return g.counted }

func (g *fakeIsolator) Processes(*run.IsolationSpec) ([]int, bool) {
	return []int{os.Getpid()}, g.known
}

// measure watches n attempts that start 170 ms apart, for a minute, and returns how often all processes of the machine were
// read, and the samples of each attempt.
func measure(t *testing.T, n int, cfg meter.Config, grant muster.Grant) (scans int, samples [][]muster.Sample) {
	t.Helper()
	base := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg.Log = slog.New(slog.DiscardHandler)
		m := meter.New(cfg)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		var all []*watcher
		for range n {
			time.Sleep(170 * time.Millisecond)
			h := newWatcher()
			m.Watch(&meter.Subject{
				Task: &run.Task{Spec: &muster.TaskSpec{}, Grant: grant}, Pid: run.Pid{PID: os.Getpid()},
				Isolation: &run.IsolationSpec{}, Folders: run.Folders{Base: base},
			}, h)
			all = append(all, h)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		scans = meter.Scans(m)
		for _, h := range all {
			samples = append(samples, h.samples)
		}
	})
	return scans, samples
}

// Attempts that started at different times share readings of the machine.
func TestAttemptsAreMeasuredTogether(t *testing.T) {
	t.Parallel()
	scans, samples := measure(t, 20, meter.Config{}, muster.Grant{})
	// One every 5 seconds, and for the first samples one in each of the first seconds.
	if scans < 12 || scans > 12+6 {
		t.Errorf("all processes were read %d times in a minute for 20 attempts", scans)
	}
	for i, list := range samples {
		if len(list) < 12 || len(list) > 14 {
			t.Errorf("attempt %d has %d samples of a minute", i, len(list))
		}
		for j := 1; j < len(list); j++ {
			if span := list[j].At.Std().Sub(list[j-1].At.Std()); span < time.Second || span > 8*time.Second {
				t.Errorf("samples %d and %d of attempt %d are %s apart", j-1, j, i, span)
			}
		}
		if last := list[len(list)-1]; last.PIDs == 0 || last.CPU == nil {
			t.Errorf("attempt %d: %+v", i, last)
		}
	}
}

// For an attempt with a control group other processes are not read.
func TestGroupsAreMeasuredSeparately(t *testing.T) {
	t.Parallel()
	all := run.CgroupStats{
		CPU: new(time.Second), Memory: new(muster.Size(1 << 20)), PIDs: new(3), Read: new(muster.Size(0)), Written: new(muster.Size(0)),
	}
	part := all
	part.Read, part.Written = nil, nil // as in version 1
	readings := func() (gpu.Readings, bool) {
		return gpu.Readings{Devices: []gpu.Reading{{GPULoad: muster.GPULoad{UUID: "GPU-1"}, Processes: []gpu.Process{{PID: os.Getpid(), Memory: 1 << 30}}}}}, true
	}
	for name, tc := range map[string]struct {
		limits *fakeIsolator
		grant  muster.Grant
		scans  bool
		own    muster.Size // of the memory of a device
	}{
		"everything is counted":       {limits: &fakeIsolator{counted: all}},
		"transfers are not counted":   {limits: &fakeIsolator{counted: part, known: true}},
		"a device":                    {limits: &fakeIsolator{counted: all, known: true}, grant: muster.Grant{GPUs: []string{"GPU-1"}}, own: 1 << 30},
		"the group cannot be read":    {limits: &fakeIsolator{counted: part}, scans: true},
		"a device, and without group": {limits: &fakeIsolator{counted: all}, grant: muster.Grant{GPUs: []string{"GPU-1"}}, scans: true, own: 1 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scans, samples := measure(t, 1, meter.Config{Isolator: tc.limits, GPUs: readings}, tc.grant)
			if scans > 0 != tc.scans {
				t.Errorf("all processes were read %d times", scans)
			}
			for _, s := range samples[0] {
				if s.PIDs != 3 || s.Memory == nil || *s.Memory != 1<<20 {
					t.Errorf("%+v", s)
				}
				if tc.own > 0 && (len(s.GPUs) != 1 || s.GPUs[0].OwnMemory == nil || *s.GPUs[0].OwnMemory != tc.own) {
					t.Errorf("%+v", s.GPUs)
				}
			}
			if len(samples[0]) < 12 {
				t.Errorf("%d samples", len(samples[0]))
			}
		})
	}
}
