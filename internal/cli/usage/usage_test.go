package usage

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

// testView is an attempt on two shared devices that was measured, with a gap in the middle.
func testView() view {
	begin := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	v := view{task: muster.Task{Attempt: 1, Worker: "w-rig", Grant: &muster.Grant{GPUs: []string{"GPU-a", "GPU-b"}, GPUMemory: 4 << 30}}}
	v.Attempt, v.State = 1, muster.Succeeded
	v.Usage = &muster.Usage{
		WallSeconds: 600, CPUSeconds: 900, CPUAvg: 1.5, CPUPeak: 4, MemoryAvg: 1 << 30, MemoryPeak: 2 << 30, WriteBytes: 3 << 20,
		GPUAvg: 0.4, GPUPeak: 1, VRAMPeak: 5 << 30, GPUTempPeak: 81, PowerAvg: 50, EnergyWh: 25, Cost: 0.125,
	}
	for i := range 120 {
		if i >= 40 && i < 80 {
			continue
		}
		busy := float64(i) / 119
		device := muster.GPUSample{OwnMemory: new(muster.Size(2 << 30)), GPULoad: muster.GPULoad{
			UUID: "GPU-a", Utilization: new(busy), Memory: new(muster.Size(8 << 30)), Temperature: new(60 + 20*busy), Power: new(200.0),
		}}
		v.Samples = append(v.Samples, muster.Sample{
			At: muster.NewTime(begin.Add(time.Duration(i) * 5 * time.Second)), CPU: new(2.0), Memory: new(muster.Size(1 << 30)), Write: new(0.0), PIDs: 12,
			GPUs: []muster.GPUSample{device, {GPULoad: muster.GPULoad{UUID: "GPU-b"}}},
		})
	}
	v.Taken = len(v.Samples)
	return v
}

func render(t *testing.T, v view, width int) string {
	t.Helper()
	var out bytes.Buffer
	if err := v.draw(&app.App{Out: term.Screen{Writer: &out, Width: width}}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestDraw(t *testing.T) {
	want := `task     0.0
state    succeeded
worker   w-rig
took     10m00s
samples  80
energy   25Wh
cost     0.125

METRIC     AVERAGE  PEAK   TOTAL  OVER 9m55s
cpu cores     1.50  4.00  15m00s  ▅▅▅▅▅▅▅▅▅▅          ▅▅▅▅▅▅▅▅▅▅
memory        1GiB  2GiB          ▅▅▅▅▅▅▅▅▅▅          ▅▅▅▅▅▅▅▅▅▅
write/s               0B    3MiB  ▁▁▁▁▁▁▁▁▁▁          ▁▁▁▁▁▁▁▁▁▁
threads               12          ██████████          ██████████
gpu            40%  100%          ▁▁▁▂▂▂▂▃▃▃          ▆▆▇▇▇▇████
vram                5GiB          ▄▄▄▄▄▄▄▄▄▄          ▄▄▄▄▄▄▄▄▄▄
gpu °C                81          ▆▇▇▇▇▇▇▇▇▇          ██████████
gpu watts       50    50    25Wh  ██████████          ██████████
gpu 0               100%          ▁▁▁▂▂▂▂▃▃▃          ▆▆▇▇▇▇████
`
	if diff := cmp.Diff(want, render(t, testView(), 80)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// No line is wider than the terminal, and values that were not measured are omitted.
func TestDrawPartialSeries(t *testing.T) {
	v := testView()
	for _, width := range []int{40, 60, 80, 120, 300} {
		for line := range strings.Lines(render(t, v, width)) {
			if n := term.Width(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("a line takes %d of %d columns: %s", n, width, line)
			}
		}
	}
	v = view{Series: client.Series{Attempt: 1, State: muster.Running}}
	if got, want := render(t, v, 0), "task     0.0\nstate    running\nattempt  \nsamples  none yet\n"; got != strings.Replace(want, "attempt  \n", "", 1) {
		t.Errorf("before the first sample: %s", got)
	}
	v.Samples, v.Taken = []muster.Sample{{At: muster.NewTime(time.Now()), PIDs: 1}}, 1
	if got := render(t, v, 0); strings.Contains(got, "cpu") || strings.Contains(got, "gpu") || !strings.Contains(got, "threads") {
		t.Errorf("of one thread: %s", got)
	}
}

func TestPrinter(t *testing.T) {
	v := testView()
	var out, stderr bytes.Buffer
	p := printer{app: &app.App{Out: term.Screen{Writer: &out}, Err: term.Screen{Writer: &stderr}}, attempt: 1, shared: true}
	none := client.Sample{Attempt: 2, Sample: muster.Sample{At: v.Samples[0].At}}
	for _, s := range []client.Sample{{Attempt: 1, Sample: v.Samples[79]}, {Attempt: 1, Sample: v.Samples[79]}, none} {
		if err := p.print(s); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(out.String(), "\n")
	clock := func(s muster.Sample) string { return s.At.Std().Local().Format(time.TimeOnly) }
	full := clock(v.Samples[79]) + "    2.00        1GiB           -           -          0B       12  100%        2GiB   80     50"
	want := []string{
		"TIME         CPU      MEMORY        DISK      READ/S     WRITE/S  THREADS   GPU        VRAM   °C  WATTS", full, full,
		"TIME         CPU      MEMORY        DISK      READ/S     WRITE/S  THREADS",
		clock(v.Samples[0]) + "       -           -           -           -           -        -", "",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := stderr.String(); got != "muster: the task was retried: attempt 2\n" {
		t.Errorf("got %q", got)
	}
}

func TestWords(t *testing.T) {
	u := testView().Usage
	var out bytes.Buffer
	f := app.Details{App: &app.App{Out: term.Screen{Writer: &out}}}
	AddDetails(&f, u)
	AddDetails(&f, &muster.Usage{CPUAvg: 0.25})
	AddDetails(&f, &muster.Usage{MemoryPeak: 1 << 20})
	if err := f.Draw(); err != nil {
		t.Fatal(err)
	}
	want := "used    1.50 cores (peak 4.00), 2GiB memory\ngpu     40% (peak 100%), 5GiB memory, 50 watts\nenergy  25Wh\ncost    0.125\nused    0.25 cores\nused    1MiB memory\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if cells := Cells(u); len(cells) != len(Columns()) || Cells(nil) != nil {
		t.Errorf("%d cells for %d columns", len(cells), len(Columns()))
	}
}
