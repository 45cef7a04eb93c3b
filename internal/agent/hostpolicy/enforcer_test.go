package hostpolicy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

// fakeWorker is a Worker that records its calls.
type fakeWorker struct {
	running     []Running
	calls       []string
	withheld    map[string]string
	freezeFails bool // nothing can be frozen
}

func (c *fakeWorker) Constrain(source, why string)            { c.record("constrain %s: %s", source, why) }
func (c *fakeWorker) Running() []Running                      { return c.running }
func (c *fakeWorker) Preempt(id muster.AttemptID, why string) { c.record("preempt %s: %s", id, why) }
func (c *fakeWorker) Withhold(devices map[string]string)      { c.withheld = devices }
func (c *fakeWorker) record(format string, args ...any) {
	c.calls = append(c.calls, fmt.Sprintf(format, args...))
}
func (c *fakeWorker) Freeze(id muster.AttemptID, on bool, _ string) error {
	if c.freezeFails {
		return errors.New("no such process")
	}
	c.record("freeze %s %t", id, on)
	return nil
}

// takeCalls returns the calls since it was last called.
func (c *fakeWorker) takeCalls() []string {
	calls := c.calls
	c.calls = nil
	return calls
}

func attemptID(n int) muster.AttemptID {
	return muster.AttemptID{Task: muster.TaskID{Job: 1, Num: n}, N: 1}
}

var quiet = slog.New(slog.DiscardHandler)

func expect(t *testing.T, c *fakeWorker, want ...string) {
	t.Helper()
	got := c.takeCalls()
	if len(got) != len(want) {
		t.Fatalf("the worker received %q, want %q", got, want)
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Fatalf("the worker received %q, want %q", got, want)
		}
	}
}

func TestThresholdsAreReportedOnce(t *testing.T) {
	c := &fakeWorker{}
	g := New(Config{Options: Options{MaxCPU: new(80.0), MaxMemory: new(75.0)}, Worker: c, Log: quiet})
	none := math.NaN()
	g.updateThresholds(epoch, load{none, 40, none, none})
	expect(t, c)
	g.updateThresholds(epoch.Add(2*time.Second), load{93, 40, none, none})
	expect(t, c, "constrain cpu: cpu at 93% is over --max-cpu-percent 80")
	g.updateThresholds(epoch.Add(4*time.Second), load{95, 80, none, none})
	expect(t, c, "constrain memory: memory at 80%")
	for s := 6; s <= 36; s += 2 {
		g.updateThresholds(epoch.Add(time.Duration(s)*time.Second), load{10, 80, none, none})
	}
	expect(t, c, "constrain cpu: ")
}

func TestHoursPreempt(t *testing.T) {
	c := &fakeWorker{running: []Running{{Attempt: attemptID(1), Started: true}, {Attempt: attemptID(2), Started: true, Checkpoint: true}}}
	g := New(Config{Options: Options{Hours: mustHours(t, "18:00-08:00"), AfterHours: Preempt}, Worker: c, Log: quiet})
	g.check(t.Context(), epoch.Add(-5*time.Hour))
	expect(t, c)
	g.check(t.Context(), epoch)
	expect(t, c, "constrain hours: outside its hours 18:00-08:00; opens at 18:00 UTC", "preempt 1.1#1: the worker's hours 18:00-08:00 are over", "preempt 1.2#1")
	c.running = append(c.running[1:], Running{Attempt: attemptID(3)}) // it was on its way
	g.check(t.Context(), epoch.Add(2*time.Second))
	expect(t, c, "preempt 1.3#1")
	c.running = nil
	g.check(t.Context(), epoch.Add(6*time.Hour))
	expect(t, c, "constrain hours: ")
	if len(g.tasks) != 0 {
		t.Error("attempts that ended are remembered")
	}
}

func TestHoursFinish(t *testing.T) {
	c := &fakeWorker{running: []Running{{Attempt: attemptID(1), Started: true}}}
	g := New(Config{Options: Options{Hours: mustHours(t, "18:00-08:00"), AfterHours: Finish}, Worker: c, Log: quiet})
	g.check(t.Context(), epoch)
	expect(t, c, "constrain hours")
}

// fakeGPUs is devices whose readings a test sets.
type fakeGPUs struct {
	devices []gpu.Reading
	at      time.Time
}

func (w *fakeGPUs) readings() (gpu.Readings, bool) {
	return gpu.Readings{At: w.at, Devices: w.devices}, !w.at.IsZero()
}

// startProcess starts a process that no worker's program is a parent of, as far as
// can be seen, and returns its pid.
func startProcess(t *testing.T) int {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("a process without a parent requires a Linux shell")
	}
	out := filepath.Join(t.TempDir(), "pid")
	// The shell in the middle ends, so that init, or a reaper above, adopts the sleeper.
	cmd := exec.Command("setsid", "sh", "-c", `sleep 600 & echo $! >"$0.new"; mv "$0.new" "$0"`, out)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	if err := cmd.Run(); err != nil {
		t.Skip("no setsid: ", err)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	pid := 0
	if _, err := fmt.Sscan(string(b), &pid); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	})
	return pid
}

func TestYieldToOwner(t *testing.T) {
	pid := startProcess(t)
	now := epoch
	w := &fakeGPUs{}
	c := &fakeWorker{running: []Running{
		{Attempt: attemptID(1), GPUs: []string{"GPU-1"}, Started: true},
		{Attempt: attemptID(2), GPUs: []string{"GPU-0", "GPU-1"}, Started: true, Checkpoint: true},
		{Attempt: attemptID(3), GPUs: []string{"GPU-0"}, Started: true},
		{Attempt: attemptID(4), GPUs: []string{"GPU-1"}},
		{Attempt: attemptID(5), Started: true},
		{Attempt: attemptID(6), GPUs: []string{"MIG-1"}, Started: true},
	}}
	devices := func() []muster.GPU {
		return []muster.GPU{{UUID: "GPU-0"}, {UUID: "GPU-1"}, {UUID: "MIG-1", Parent: "GPU-1"}}
	}
	g := New(Config{Options: Options{Yield: true}, Worker: c, GPUs: w.readings, Devices: devices, Log: quiet})
	check := func(after time.Duration, readings ...gpu.Reading) {
		now = now.Add(after)
		if readings != nil {
			w.devices, w.at = readings, now
		}
		g.check(t.Context(), now)
	}
	check(0)
	expect(t, c) // a task that was frozen before a restart stays frozen until it is known that it may continue
	check(2*time.Second, reading(gib, gpu.Process{PID: pid, Name: "blender", Memory: gib}))
	expect(t, c, "freeze 1.1#1 true", "freeze 1.2#1 false", "preempt 1.2#1: its GPU is in use by its owner: pid", "freeze 1.3#1 false", "freeze 1.6#1 true")
	if why := c.withheld["GPU-1"]; !contains(why, fmt.Sprintf("in use by its owner: pid %d blender", pid)) || len(c.withheld) != 2 || c.withheld["MIG-1"] != why {
		t.Fatalf("withheld are %q", c.withheld)
	}
	c.running = slices.Delete(c.running, 1, 2) // the preempted one has ended
	c.running[2].Started = true                // the one that was on its way has begun
	check(2*time.Second, reading(gib, gpu.Process{PID: pid, Name: "blender", Memory: gib}))
	expect(t, c, "freeze 1.4#1 true")
	check(2*time.Second, reading(0))
	check(27*time.Second, reading(0))
	expect(t, c)
	check(time.Second, reading(0))
	expect(t, c, "freeze 1.1#1 false", "freeze 1.4#1 false", "freeze 1.6#1 false")
	if len(c.withheld) != 0 {
		t.Fatalf("withheld are %q", c.withheld)
	}
	check(2*time.Second, reading(0))
	expect(t, c)
}

// Without --yield-to-owner, and without readings of devices, a task that was frozen before a restart of the worker
// continues.
func TestTasksFrozenByAnEarlierProcess(t *testing.T) {
	task := []Running{{Attempt: attemptID(1), GPUs: []string{"GPU-1"}, Started: true}}
	c := &fakeWorker{running: task, freezeFails: true}
	g := New(Config{Worker: c, Log: quiet})
	g.check(t.Context(), epoch)
	expect(t, c)
	c.freezeFails = false // a failure is not the last word
	g.check(t.Context(), epoch.Add(2*time.Second))
	expect(t, c, "freeze 1.1#1 false")
	g.check(t.Context(), epoch.Add(4*time.Second))
	expect(t, c)

	c = &fakeWorker{running: task}
	none := func() []muster.GPU { return nil }
	g = New(Config{Options: Options{Yield: true}, GPUs: (&fakeGPUs{}).readings, Devices: none, Worker: c, Log: quiet})
	g.check(t.Context(), epoch)
	expect(t, c)
	g.check(t.Context(), epoch.Add(staleAfter))
	expect(t, c, "freeze 1.1#1 false")
}

func TestRunSamplesUntilStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &fakeWorker{}
		hours := time.Now().Add(time.Minute).Format("15:04-") + time.Now().Add(2*time.Minute).Format("15:04")
		g := New(Config{Options: Options{Hours: mustHours(t, hours)}, Worker: c, Log: quiet})
		ctx, cancel := context.WithTimeout(t.Context(), 61*time.Second)
		defer cancel()
		if err := g.Run(ctx); err != nil {
			t.Fatal(err)
		}
		expect(t, c, "constrain hours: outside", "constrain hours: ")
	})
}

// The host's readings are measured fractions.
func TestHostReadings(t *testing.T) {
	var h host
	if first := h.cpu(t.Context()); !math.IsNaN(first) {
		t.Errorf("the first reading is %g%%, want NaN because there is no earlier one", first)
	}
	for range 1000 { // the kernel counts in ticks: look until one has passed
		if p := h.cpu(t.Context()); !math.IsNaN(p) {
			if p < 0 || p > 100 {
				t.Errorf("the cpu is at %g%%", p)
			}
			break
		}
	}
	if p := h.memory(t.Context()); !(p > 0 && p < 100) {
		t.Errorf("the memory is at %g%%", p)
	}
}

func TestProcessOwners(t *testing.T) {
	other := startProcess(t)
	child, tagged := exec.Command("sleep", "600"), exec.Command("sleep", "600")
	tagged.Env = append(os.Environ(), "MUSTER_ATTEMPT=1")
	for _, cmd := range []*exec.Cmd{child, tagged} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	// A program that has just been executed has no environment yet.
	for deadline := time.Now().Add(time.Minute); runtime.GOOS == "linux"; time.Sleep(time.Millisecond) {
		if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", tagged.Process.Pid)); err != nil || time.Now().After(deadline) {
			t.Fatal("it has no environment: ", err)
		} else if len(env) > 0 {
			break
		}
	}
	m := newProcOwners()
	m.self = -1 // so that only the environment decides
	m.program = "none"
	of := m.snapshot(t.Context())
	want := ownedByUser
	if os.Getuid() == 0 {
		want = ownedByRoot
	}
	if got := of(other); got != want {
		t.Errorf("a stranger is %v, want %v", got, want)
	}
	if got := of(child.Process.Pid); got != want {
		t.Errorf("a child of another process is %v, want %v", got, want)
	}
	if got := of(tagged.Process.Pid); got != ownedByTask {
		t.Errorf("a process with a task's environment is %v", got)
	}
	m = newProcOwners()
	if got := m.snapshot(t.Context())(child.Process.Pid); got != ownedByTask {
		t.Errorf("a child of ours is %v", got)
	}
	if got := m.snapshot(t.Context())(1 << 22); got != ownedByNobody { // above the kernel's highest
		t.Errorf("a missing process is %v", got)
	}
}

// Every worker performs a check every two seconds.
func BenchmarkLook(b *testing.B) {
	g := New(Config{Options: Options{MaxCPU: new(80.0), MaxMemory: new(75.0), Hours: mustHours(b, "mon-sun")}, Worker: &fakeWorker{}, Log: quiet})
	for b.Loop() {
		g.check(b.Context(), epoch)
	}
}
