package meter_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/meter"
	"github.com/muster-dev/muster/internal/agent/run"
)

// limit bounds every wait of these tests.
const limit = time.Minute

// watcher collects what a Meter reports of one attempt.
type watcher struct {
	mu        sync.Mutex
	samples   []muster.Sample
	warnings  []string
	exceeded  []*run.Stopped
	onWarning func() // called at a warning; may be nil
	changed   chan struct{}
}

func newWatcher() *watcher { return &watcher{changed: make(chan struct{}, 1)} }

func (h *watcher) change(fn func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fn()
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

func (h *watcher) Sampled(s muster.Sample) { h.change(func() { h.samples = append(h.samples, s) }) }
func (h *watcher) Exceeded(why *run.Stopped) {
	h.change(func() { h.exceeded = append(h.exceeded, why) })
}
func (h *watcher) Warned(line string) {
	if h.onWarning != nil {
		h.onWarning()
	}
	h.change(func() { h.warnings = append(h.warnings, line) })
}

// await returns when want is true.
func (h *watcher) await(tb testing.TB, what string, want func() bool) {
	tb.Helper()
	timeout := time.After(limit)
	for {
		h.mu.Lock()
		ok := want()
		h.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-h.changed:
		case <-timeout:
			tb.Fatalf("no %s within %s: %+v", what, limit, h)
		}
	}
}

// begin runs a Meter for the test.
func begin(tb testing.TB, cfg meter.Config) *meter.Meter {
	tb.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	m := meter.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("it ended with %v", err)
		}
	})
	return m
}

// start starts a shell for the test.
func start(tb testing.TB, script string) *meter.Subject {
	tb.Helper()
	base := tb.TempDir()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Dir = base
	in, err := cmd.StdinPipe() // open until the test ends
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = in.Close() // the script ends what it started, and then itself
		hung := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
		defer hung.Stop()
		_ = cmd.Wait()
	})
	return &meter.Subject{Task: &run.Task{Spec: &muster.TaskSpec{}}, Pid: run.Pid{PID: cmd.Process.Pid}, Folders: run.Folders{Base: base}}
}

// A process tree without a control group is measured with what its children do.
func TestProcessTreeIsMeasured(t *testing.T) {
	m := begin(t, meter.Config{Price: 3600})
	h := newWatcher()
	s := start(t, "dd if=/dev/zero of=file bs=1M count=3 2>/dev/null; (while :; do :; done) & cat; kill $!")
	began := time.Now()
	stop := m.Watch(s, h)
	var last muster.Sample
	h.await(t, "sample of a shell, a loop and a cat, and of a file of 3MiB", func() bool {
		if len(h.samples) > 0 {
			last = h.samples[len(h.samples)-1]
		}
		return last.CPU != nil && *last.CPU >= 0.05 && last.PIDs >= 3 && last.Memory != nil && *last.Memory > 0 && last.Disk != nil && *last.Disk >= 3<<20
	})
	u := stop()
	if u.CPUPeak < *last.CPU || u.PIDsPeak < 3 || u.DiskPeak < *last.Disk || u.DiskPeak > 6<<20 || u.MemoryAvg == 0 || u.MemoryPeak < u.MemoryAvg {
		t.Errorf("usage %+v", u)
	}
	if most := time.Since(began).Seconds(); u.Cost <= 0 || u.Cost > most {
		t.Errorf("at one a second it cost %g in %g seconds", u.Cost, most)
	}
	if again := stop(); again != (muster.Usage{}) {
		t.Errorf("usage is reported twice: %+v", again)
	}
}

// A limit that the kernel does not enforce is reported once, with the figures.
func TestLimitsWithoutKernel(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		script  string
		spec    run.IsolationSpec
		reason  muster.Reason
		message []string
	}{
		"memory": {`a=$(head -c 30000000 /dev/zero | tr '\0' x); cat`, run.IsolationSpec{WatchMemory: 10 << 20}, muster.OutOfMemory, []string{"limit of 10MiB", "resources.memory"}},
		"pids":   {"sleep 100 & a=$!; sleep 100 & b=$!; sleep 100 & cat; kill $a $b $!", run.IsolationSpec{WatchPIDs: 2}, muster.PIDLimit, []string{"limit of 2", "resources.pids"}},
		"disk":   {"cat", run.IsolationSpec{WatchDisk: 1 << 20}, muster.DiskLimit, []string{"4.8MiB", "limit of 1MiB", "resources.disk"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := begin(t, meter.Config{})
			h := newWatcher()
			s := start(t, tc.script)
			s.Isolation = &tc.spec
			file := make([]byte, 5_000_000) // complete before the first walk
			_, _ = rand.Read(file)          // no file system compresses it
			if err := os.WriteFile(filepath.Join(s.Folders.Base, "file"), file, 0o600); err != nil {
				t.Fatal(err)
			}
			stop := m.Watch(s, h)
			h.await(t, "exceeded limit", func() bool { return len(h.exceeded) > 0 && len(h.samples) > 0 })
			stop()
			why := h.exceeded[0]
			if why.Outcome != muster.AttemptFailed || why.Reason != tc.reason {
				t.Errorf("stopped by %s %s", why.Outcome, why.Reason)
			}
			for _, want := range tc.message {
				if !strings.Contains(why.Message, want) {
					t.Errorf("%q does not contain %q", why.Message, want)
				}
			}
		})
	}
}

// A task that exceeds its share of a device is warned, and then stopped; a task that frees memory in time is not.
func TestVRAMBudget(t *testing.T) {
	var mu sync.Mutex
	held := map[int]muster.Size{}
	readings := func() (gpu.Readings, bool) {
		mu.Lock()
		defer mu.Unlock()
		r := gpu.Reading{GPULoad: muster.GPULoad{UUID: "GPU-1", Memory: new(muster.Size(8 << 30)), Utilization: new(0.5), Power: new(100.0)}, Processes: []gpu.Process{}}
		for pid, n := range held {
			r.Processes = append(r.Processes, gpu.Process{PID: pid, Memory: n})
		}
		return gpu.Readings{At: time.Now(), Devices: []gpu.Reading{r}}, true
	}
	hold := func(pid int, n muster.Size) {
		mu.Lock()
		defer mu.Unlock()
		held[pid] = n
	}
	m := begin(t, meter.Config{GPUs: readings})
	greedy, fair := start(t, "cat"), start(t, "cat")
	hears := map[*meter.Subject]*watcher{}
	stops := map[*meter.Subject]func() muster.Usage{}
	for _, s := range []*meter.Subject{greedy, fair} {
		s.Task.Grant = muster.Grant{GPUs: []string{"GPU-1"}, GPUMemory: 2 << 30}
		hold(s.Pid.PID, 3<<30)
		hears[s] = newWatcher()
	}
	hears[fair].onWarning = func() { hold(fair.Pid.PID, 2<<30) }
	for s, h := range hears {
		stops[s] = m.Watch(s, h)
	}
	h := hears[fair]
	h.await(t, "warning", func() bool { return len(h.warnings) > 0 })
	if w := h.warnings[0]; !strings.Contains(w, "holds 3GiB") || !strings.Contains(w, "granted 2GiB") {
		t.Errorf("the warning is %q", w)
	}
	h = hears[greedy]
	h.await(t, "end", func() bool { return len(h.exceeded) > 0 })
	if why := h.exceeded[0]; why.Reason != muster.GPUMemory || !strings.Contains(why.Message, "held 3GiB") {
		t.Errorf("stopped by %s: %s", why.Reason, why.Message)
	}
	u := stops[greedy]()
	// 3 of 8 GiB in use: that part of the device's 100 W.
	if u.VRAMPeak != 3<<30 || u.GPUPeak != 0.5 || u.PowerAvg < 37 || u.PowerAvg > 38 || u.EnergyWh <= 0 {
		t.Errorf("usage %+v", u)
	}
	stops[fair]()
	if over := hears[fair].exceeded; len(over) > 0 {
		t.Errorf("a task that freed memory was stopped: %s", over[0].Message)
	}
}

// Samples from before a restart of the worker are part of the usage.
func TestHistoryCounts(t *testing.T) {
	started := time.Now().Add(-time.Hour)
	var past []muster.Sample
	for at := started; at.Before(time.Now()); at = at.Add(5 * time.Second) {
		past = append(past, muster.Sample{At: muster.NewTime(at), Memory: new(muster.Size(1 << 30)), PIDs: 7,
			GPUs: []muster.GPUSample{{GPULoad: muster.GPULoad{UUID: "GPU-1", Power: new(200.0), Utilization: new(1.0)}}}})
	}
	m := begin(t, meter.Config{Price: 2, History: func(muster.AttemptID) ([]muster.Sample, error) { return past, nil }})
	s := start(t, "cat")
	s.Task.Recovered = &run.Recovered{Started: muster.NewTime(started)}
	s.Task.Grant = muster.Grant{GPUs: []string{"GPU-1"}}
	u := m.Watch(s, newWatcher())()
	if u.EnergyWh < 195 || u.EnergyWh > 205 || u.PIDsPeak != 7 || u.MemoryAvg != 1<<30 || u.GPUAvg != 1 {
		t.Errorf("an hour at 200 W: %+v", u)
	}
	if u.Cost < 1.99 || u.Cost > 2.1 {
		t.Errorf("an hour at 2 an hour costs %g", u.Cost)
	}
}

// A process that reuses the number of an earlier one is not measured.
func TestRecycledNumberIsNotMeasured(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("this system does not report when a process started")
	}
	m := begin(t, meter.Config{})
	h := newWatcher()
	s := start(t, "cat")
	s.Pid.StartTicks = 1
	stop := m.Watch(s, h)
	h.await(t, "sample", func() bool { return len(h.samples) > 0 })
	stop()
	if got := h.samples[0]; got.Memory != nil || got.PIDs != 0 || got.CPU != nil {
		t.Errorf("measured %+v of another process", got)
	}
}

// BenchmarkTick takes one sample of 100 attempts, each with two processes and a folder.
func BenchmarkTick(b *testing.B) {
	var list []*meter.Subject
	for range 100 {
		s := start(b, "cat")
		if err := os.WriteFile(filepath.Join(s.Folders.Base, "f"), nil, 0o600); err != nil {
			b.Fatal(err)
		}
		list = append(list, s)
	}
	m := meter.New(meter.Config{Log: slog.New(slog.DiscardHandler)})
	h := newWatcher()
	for _, s := range list {
		m.Watch(s, h)
	}
	for b.Loop() {
		meter.Tick(b.Context(), m)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/100, "µs/attempt")
}
