package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/sched"
)

// source returns a fixed snapshot.
type source struct {
	mu       sync.Mutex
	snapshot *sched.FleetSnapshot
	err      error
}

func (s *source) Fleet(context.Context) (*sched.FleetSnapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot, s.err
}

func (s *source) set(p *sched.FleetSnapshot, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshot, s.err = p, err
}

func open(tb testing.TB, s Source, file string) (*History, *bytes.Buffer) {
	tb.Helper()
	var log bytes.Buffer
	return Open(Config{Source: s, File: file, Log: slog.New(slog.NewTextHandler(&log, nil))}), &log
}

// makeSnapshot returns a snapshot of n workers with this number of tasks each and this load.
func makeSnapshot(n, running int, load float64) *sched.FleetSnapshot {
	p := &sched.FleetSnapshot{}
	offers := &muster.Resources{CPUs: 10, Memory: 64 << 30, GPUs: []muster.GPU{{UUID: "a", Memory: 80 << 30}}}
	used, watts := muster.Size(load*80*(1<<30)), 400*load
	for i := range n {
		p.Workers = append(p.Workers, sched.WorkerSnapshot{
			ID: muster.WorkerID(fmt.Sprint("w", i)), State: muster.WorkerActive, Offers: offers, GPUTasks: []int{0}, Running: running, Price: 2,
			Load: &muster.Load{CPU: load, Memory: muster.Size(load * 64 * (1 << 30)), GPUs: []muster.GPULoad{{UUID: "a", Utilization: &load, Memory: &used, Power: &watts}}},
		})
	}
	p.All.Counts[muster.Queued], p.All.Counts[muster.Running] = 5, int64(n*running)
	return p
}

// newHistory is a history that is not kept.
func newHistory() *History {
	h := &History{}
	h.reset()
	return h
}

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func wantNear(tb testing.TB, name string, got *float64, want float64) {
	tb.Helper()
	if math.IsNaN(want) {
		if got != nil {
			tb.Errorf("%s is %v, want nothing", name, *got)
		}
		return
	}
	if got == nil || math.Abs(*got-want) > math.Abs(want)/500 {
		tb.Errorf("%s is %s, want %v", name, format(got), want)
	}
}

func format(v *float64) string {
	if v == nil {
		return "nothing"
	}
	return fmt.Sprint(*v)
}

// TestRunSamplesAndResumes runs a history for half an hour, stops it, and continues ten minutes later from its file.
func TestRunSamplesAndResumes(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "history")
	synctest.Test(t, func(t *testing.T) {
		src := &source{snapshot: makeSnapshot(2, 3, 0.5)}
		begin := time.Now()
		runFor := func(d time.Duration) *History {
			h, log := open(t, src, file)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- h.Run(ctx) }()
			time.Sleep(d)
			cancel()
			if err := <-ended; err != nil || log.Len() > 0 {
				t.Fatalf("Run returned %v and logged %s", err, log)
			}
			return h
		}
		runFor(30 * time.Minute)
		time.Sleep(10 * time.Minute)
		src.set(makeSnapshot(1, 1, 0.25), nil)
		h := runFor(10 * time.Minute)
		q := Query{From: muster.NewTime(begin), Points: 50}
		all := h.Query(muster.NewTime(time.Now()), q)
		if len(all.Times) != 51 || all.Step != 60 {
			t.Fatalf("%d points with a step of %d seconds", len(all.Times), all.Step)
		}
		wantNear(t, "cpu_used in the first life", all.Series["cpu_used"][10], 10)
		wantNear(t, "cpu_used while the server was away", all.Series["cpu_used"][35], noValue)
		wantNear(t, "cpu_used in the second life", all.Series["cpu_used"][45], 2.5)
		wantNear(t, "running", all.Series["running"][45], 1)
		wantNear(t, "cost_per_hour", all.Series["cost_per_hour"][10], 4)
		q.Worker = "w0"
		one := h.Query(muster.NewTime(time.Now()), q)
		wantNear(t, "a worker's cpu in the first life", one.Series["cpu"][10], 0.5)
		wantNear(t, "a worker's gpu memory", one.Series["gpu_memory"][45], 20<<30)
		wantNear(t, "a worker's power", one.Series["power"][45], 100)
		q.Worker = "w1" // it was removed, with its history
		gone := h.Query(muster.NewTime(time.Now()), q)
		wantNear(t, "a removed worker's cpu", gone.Series["cpu"][10], noValue)
	})
}

// TestResolutionsModel enters loads at random times over nine days and compares each point of random queries with the mean of the samples in
// its step, as far as their resolution is still stored.
func TestResolutionsModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory()
		samples := map[int64]float64{} // by slot of ten seconds
		now := start.Add(time.Duration(rapid.IntRange(0, 600).Draw(t, "first")) * time.Second)
		for range rapid.IntRange(1, 5).Draw(t, "periods") {
			load := rapid.Float64Range(0.01, 1).Draw(t, "load")
			for range rapid.IntRange(1, 500).Draw(t, "samples") {
				h.record(now, makeSnapshot(1, 1, load))
				samples[now.Unix()/10] = load
				now = now.Add(10 * time.Second)
			}
			if rapid.Bool().Draw(t, "pause") {
				now = now.Add(time.Duration(rapid.IntRange(0, 3*24*3600).Draw(t, "away")) * time.Second)
			}
		}
		at := h.newest[0]*10 + 9
		from := at - rapid.Int64Range(0, 8*24*3600).Draw(t, "from")
		to := from + rapid.Int64Range(0, at-from).Draw(t, "length")
		q := Query{Worker: "w0", From: muster.Time(from * 1000), To: muster.Time(to * 1000), Points: rapid.IntRange(10, 2000).Draw(t, "points")}
		got := h.Query(muster.Time(at*1000), q)
		if n := len(got.Times); n > q.Points+2 && got.Step > 600 || n == 0 {
			t.Fatalf("%d points, %d were asked for; the step is %d", n, q.Points, got.Step)
		}
		k := 0
		for k < tiers-1 && got.Step%int(resolutions[k+1].step) == 0 {
			k++
		}
		for i, when := range got.Times {
			first := when.Std().Unix()
			if first%int64(got.Step) != 0 {
				t.Fatalf("a step begins at %s, %d seconds long", when, got.Step)
			}
			lowest, highest, n := 1.0, 0.0, 0
			for slot := first / 10; slot < (first+int64(got.Step))/10; slot++ {
				if v, ok := samples[slot]; ok {
					lowest, highest, n = min(lowest, v), max(highest, v), n+1
				}
			}
			oldest := (at/600 - resolutions[2].slots + 2) * 600
			switch v := got.Series["cpu"][i]; {
			case v == nil && n > 0 && first > oldest && covered(at, first, k):
				t.Fatalf("no value for %s, which has %d samples; the step is %d", when, n, got.Step)
			case v != nil && (n == 0 || *v < lowest*0.999 || *v > highest*1.001):
				t.Fatalf("at %s it is %v, %d samples are from %v to %v; the step is %d", when, *v, n, lowest, highest, got.Step)
			}
		}
	})
}

// covered reports whether a tier still has the slot first.
func covered(at, first int64, k int) bool {
	return first/resolutions[k].step > at/resolutions[k].step-resolutions[k].slots
}

// TestLastHourHasFullResolution checks that the last hour, half a day and week have the finest stored resolution.
func TestLastHourHasFullResolution(t *testing.T) {
	t.Parallel()
	h := newHistory()
	h.record(start, makeSnapshot(1, 1, 0.5))
	for span, want := range map[time.Duration]int{time.Hour: 10, 2 * time.Hour: 60, 12 * time.Hour: 60, 24 * time.Hour: 600, 7 * 24 * time.Hour: 600} {
		got := h.Query(muster.NewTime(start), Query{From: muster.NewTime(start.Add(-span)), Points: 2000})
		wantNear(t, fmt.Sprint("the newest point of ", span), got.Series["cpu_used"][len(got.Times)-1], 5)
		if got.Step != want {
			t.Errorf("%s are shown in steps of %d seconds, want %d", span, got.Step, want)
		}
	}
}

func TestRatesAreComputedFromTotals(t *testing.T) {
	t.Parallel()
	h := newHistory()
	p := makeSnapshot(1, 1, 0.5)
	for i, total := range []int64{100, 150, 10, 40} { // the engine loaded its state again before the third
		p.All.Total = sched.Total{Finished: total, Failed: total / 10}
		h.record(start.Add(time.Duration(i)*10*time.Second), p)
	}
	got := h.Query(muster.NewTime(start.Add(39*time.Second)), Query{From: muster.NewTime(start), Points: 100})
	for i, want := range []float64{noValue, 5, noValue, 3} {
		wantNear(t, fmt.Sprint("finished ", i), got.Series["finished"][i], want)
	}
	wantNear(t, "failed", got.Series["failed"][3], 0.3)
}

func TestClockStepsBack(t *testing.T) {
	t.Parallel()
	h := newHistory()
	h.record(start, makeSnapshot(1, 1, 0.5))
	h.record(start.Add(-time.Minute), makeSnapshot(1, 1, 0.9)) // for a moment: the data stays
	got := h.Query(muster.NewTime(start), Query{From: muster.NewTime(start.Add(-10 * time.Minute)), Points: 100})
	last := len(got.Times) - 1
	wantNear(t, "the newest", got.Series["cpu_used"][last], 5)
	wantNear(t, "a minute before", got.Series["cpu_used"][last-6], noValue)

	// Far behind, as at a boot before the clock is set: nothing is lost, and nothing is recorded.
	wrong := start.Add(-48 * time.Hour)
	for s := time.Duration(0); s < 9*time.Minute; s += sampleInterval {
		h.record(wrong.Add(s), makeSnapshot(1, 1, 0.9))
	}
	h.record(start.Add(time.Minute), makeSnapshot(1, 1, 0.25))
	got = h.Query(muster.NewTime(start.Add(time.Minute)), Query{From: muster.NewTime(start), Points: 100})
	wantNear(t, "before", got.Series["cpu_used"][0], 5)
	wantNear(t, "once the clock is set", got.Series["cpu_used"][len(got.Times)-1], 2.5)

	// The clock stays behind: it was far ahead before.
	for s := time.Duration(0); s <= 10*time.Minute; s += sampleInterval {
		h.record(wrong.Add(s), makeSnapshot(1, 1, 0.9))
	}
	now := muster.NewTime(wrong.Add(10 * time.Minute))
	got = h.Query(now, Query{Points: 100})
	wantNear(t, "after the correction", got.Series["cpu_used"][len(got.Times)-1], 9)
	wantNear(t, "before it", got.Series["cpu_used"][len(got.Times)-2], noValue)
}

// TestRecordedWorkersAreLimited checks that at most maxWorkers are recorded, connected ones first.
func TestRecordedWorkersAreLimited(t *testing.T) {
	t.Parallel()
	h := newHistory()
	p := makeSnapshot(maxWorkers+2, 0, 0.5)
	h.record(start, p)
	if len(h.workers) != maxWorkers || h.workers["w5001"] != nil {
		t.Fatalf("%d workers are remembered", len(h.workers))
	}
	for i := range p.Workers[:10] {
		p.Workers[i].State, p.Workers[i].SeenAt = muster.WorkerGone, muster.Time(100-i)
	}
	h.record(start.Add(10*time.Second), p)
	if len(h.workers) != maxWorkers || h.workers["w5001"] == nil || h.workers["w5000"] == nil || h.workers["w9"] != nil || h.workers["w8"] != nil || h.workers["w7"] == nil {
		t.Errorf("the longest disconnected workers were not replaced")
	}
	h.record(start.Add(20*time.Second), makeSnapshot(3, 0, 0.5))
	if len(h.workers) != 3 {
		t.Errorf("%d workers are remembered after all but 3 were removed", len(h.workers))
	}
}

func TestShort(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]float64{
		0: 0, 1.600000023841858: 1.6, 2923933696.123: 2923930000, 0.12495969235897064: 0.12496, 999999.6: 1e6, 12: 12, 0.000123456789: 0.000123457,
	} {
		if got := roundSix(v); math.Abs(got-want) > want*1e-12 {
			t.Errorf("%v becomes %v, want %v", v, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Float64Range(1e-12, 1e18).Draw(t, "v")
		if got := roundSix(v); math.Abs(got-v) > v*6e-6 || len(strconv.FormatFloat(got, 'e', -1, 64)) > len("1.23456e+00")+6 {
			t.Fatalf("%v becomes %v", v, got)
		}
	})
}

func TestSmallFloats(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Float64Range(0, maxFloat16).Draw(t, "v")
		got := decodeFloat16(encodeFloat16(v))
		if v >= 1.0/(1<<13) && math.Abs(got-v) > v/2048 || v < 1.0/(1<<13) && got > 1.0/(1<<12) {
			t.Fatalf("%v becomes %v", v, got)
		}
		c := rapid.Uint16().Draw(t, "code")
		if back := encodeFloat16(decodeFloat16(c)); back != c && c >= 1<<10 {
			t.Fatalf("code %d becomes %d", c, back)
		}
	})
	for n := range 2049 {
		if got := decodeFloat16(encodeFloat16(float64(n))); got != float64(n) {
			t.Fatalf("%d becomes %v", n, got)
		}
	}
	for v, want := range map[float64]float64{-1: 0, math.Inf(1): decodeFloat16(float16None - 1)} {
		if got := decodeFloat16(encodeFloat16(v)); got != want {
			t.Errorf("%v becomes %v, want %v", v, got, want)
		}
	}
	if !math.IsNaN(decodeFloat16(encodeFloat16(noValue))) {
		t.Error("no value becomes a number")
	}
}

// TestDamagedFilesAreIgnored cuts, changes and replaces the file: the history starts empty, with a log message.
func TestDamagedFilesAreIgnored(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "history")
	h, _ := open(t, &source{}, file)
	h.record(start, makeSnapshot(2, 1, 0.5))
	h.save(start)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	again, log := open(t, &source{}, file)
	if log.Len() > 0 || len(again.workers) != 2 || again.newest != h.newest {
		t.Fatalf("a sound file: %d workers, %s", len(again.workers), log)
	}
	changed := func(at int) []byte {
		b := bytes.Clone(whole)
		b[at] ^= 1
		return b
	}
	for name, data := range map[string][]byte{
		"empty": {}, "text": []byte("no history"), "cut in the head": whole[:100], "cut in a worker": whole[:len(whole)-30_000], "without its sum": whole[:len(whole)-4],
		"another version": changed(len(magic) - 2), "a slot": changed(len(magic) + 7), "the fleet": changed(1_000), "a worker": changed(len(whole) - 100), "the sum": changed(len(whole) - 1),
		"longer": append(bytes.Clone(whole), 0),
	} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		h, log := open(t, &source{}, file)
		if !strings.Contains(log.String(), "starting a new one") || len(h.workers) != 0 || h.newest != [tiers]int64{} {
			t.Errorf("%s: %d workers, log %q", name, len(h.workers), log)
		}
		h.record(start, makeSnapshot(1, 1, 0.5))
		wantNear(t, name+", afterwards", h.Query(muster.NewTime(start), Query{Points: 10}).Series["workers"][10], 1)
	}
}

// TestUnwritableFile checks that an error is logged once, and that the old file stays.
func TestUnwritableFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h, log := open(t, &source{}, filepath.Join(dir, "missing", "history"))
	h.save(start)
	h.save(start)
	if n := strings.Count(log.String(), "cannot save"); n != 1 {
		t.Errorf("it was logged %d times: %s", n, log)
	}
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeFileAtomic(path, func(io.Writer) error { return errors.New("full") }); err == nil {
		t.Error("a failed write succeeded")
	}
	entries, err := os.ReadDir(dir)
	if b, _ := os.ReadFile(path); err != nil || string(b) != "old" || len(entries) != 1 {
		t.Errorf("after a failed write there are %d files, and the old one is %q", len(entries), b)
	}
}

// TestTemporaryFileOfACrashIsOverwritten simulates a kill during a write.
func TestTemporaryFileOfACrashIsOverwritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "history")
	list := func() []string {
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	var partial []string
	if err := writeFileAtomic(path, func(io.Writer) error { partial = list(); return errors.New("killed") }); err == nil || len(partial) != 1 {
		t.Fatalf("it writes to %v", partial)
	}
	if err := os.WriteFile(partial[0], []byte("more than is written next"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeFileAtomic(path, func(w io.Writer) error { _, err := w.Write([]byte("next")); return err }); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "next" || len(list()) != 1 {
		t.Errorf("the file is %q (%v), and there are %v", b, err, list())
	}
}

// TestEngineDoesNotRespond checks that there is a gap, and no rate across it.
func TestEngineDoesNotRespond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{snapshot: makeSnapshot(1, 1, 0.5)}
		h, _ := open(t, src, filepath.Join(t.TempDir(), "history"))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx) }()
		time.Sleep(25 * time.Second)
		synctest.Wait()
		src.set(nil, errors.New("busy"))
		time.Sleep(20 * time.Second)
		synctest.Wait()
		src.set(makeSnapshot(1, 1, 0.5), nil)
		time.Sleep(20 * time.Second)
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		got := h.Query(muster.NewTime(time.Now()), Query{From: muster.NewTime(time.Now().Add(-65 * time.Second)), Points: 100})
		var known []bool
		for _, v := range got.Series["workers"] {
			known = append(known, v != nil)
		}
		if want := "[false true true false false true true]"; fmt.Sprint(known) != want {
			t.Errorf("known: %v, want %s", known, want)
		}
	})
}

func FuzzFile(f *testing.F) {
	h := Open(Config{File: filepath.Join(f.TempDir(), "history"), Log: slog.New(slog.DiscardHandler)})
	h.record(start, makeSnapshot(1, 1, 0.5))
	var b bytes.Buffer
	if err := h.write(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, data []byte) {
		h := newHistory()
		if h.read(bytes.NewReader(data)) != nil {
			return
		}
		var again bytes.Buffer
		if err := h.write(&again); err != nil || len(h.workers) < 2 && !bytes.Equal(again.Bytes(), data) {
			t.Errorf("a file that was read is written as another one, %v", err)
		}
	})
}

// BenchmarkEnter is one sample of 2,000 workers, after which memory is measured.
func BenchmarkEnter(b *testing.B) {
	var before, after runtime.MemStats
	p := makeSnapshot(2_000, 10, 0.5)
	runtime.GC()
	runtime.ReadMemStats(&before)
	h := newHistory()
	now := start
	for b.Loop() {
		h.record(now, p)
		now = now.Add(10 * time.Second)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/2_000, "bytes/worker")
	b.ReportMetric(float64(h.size())/2_000, "file-bytes/worker")
	runtime.KeepAlive(h)
}

// BenchmarkQuery is a day of the fleet in 300 points.
func BenchmarkQuery(b *testing.B) {
	h := newHistory()
	h.record(start, makeSnapshot(2_000, 10, 0.5))
	var got wire.History
	for b.Loop() {
		got = h.Query(muster.NewTime(start), Query{From: muster.NewTime(start.Add(-24 * time.Hour)), Points: 300})
	}
	b.ReportMetric(float64(len(got.Times)), "points")
}

// BenchmarkSave writes the file of 2,000 workers.
func BenchmarkSave(b *testing.B) {
	h := Open(Config{File: filepath.Join(b.TempDir(), "history"), Log: slog.New(slog.DiscardHandler)})
	h.record(start, makeSnapshot(2_000, 10, 0.5))
	for b.Loop() {
		h.save(start)
	}
	if h.schedule.failed {
		b.Fatal("it cannot be written")
	}
}
