package usageseries_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/usageseries"
)

// drawSamples makes a series of whole numbers, some of them not measured.
func drawSamples(t *rapid.T) []muster.Sample {
	figure := rapid.Ptr(rapid.Map(rapid.IntRange(0, 1000), func(n int) float64 { return float64(n) }), true)
	size := rapid.Ptr(rapid.Map(rapid.IntRange(0, 1<<40), func(n int) muster.Size { return muster.Size(n) }), true)
	device := func(uuid string) muster.GPUSample {
		return muster.GPUSample{OwnMemory: size.Draw(t, "own"), GPULoad: muster.GPULoad{
			UUID: uuid, Utilization: figure.Draw(t, "utilization"), Memory: size.Draw(t, "memory"), Temperature: figure.Draw(t, "temperature"), Power: figure.Draw(t, "power"),
		}}
	}
	all := make([]muster.Sample, rapid.IntRange(0, 200).Draw(t, "samples"))
	at := muster.Time(1_700_000_000_000)
	for i := range all {
		at += muster.Time(rapid.IntRange(1, 60_000).Draw(t, "span"))
		all[i] = muster.Sample{
			At: at, CPU: figure.Draw(t, "cpu"), Memory: size.Draw(t, "memory"), Disk: size.Draw(t, "disk"), Read: figure.Draw(t, "read"), Write: figure.Draw(t, "write"),
			NetIn: figure.Draw(t, "in"), NetOut: figure.Draw(t, "out"), PIDs: rapid.IntRange(0, 100).Draw(t, "pids"),
		}
		for n := range rapid.IntRange(0, 3).Draw(t, "devices") {
			all[i].GPUs = append(all[i].GPUs, device(fmt.Sprintf("GPU-%d", n)))
		}
	}
	return all
}

// figures returns every figure of a sample by name.
func figures(s *muster.Sample) map[string]float64 {
	m := map[string]float64{"pids": float64(s.PIDs)}
	number := func(name string, p *float64) {
		if p != nil {
			m[name] = *p
		}
	}
	size := func(name string, p *muster.Size) {
		if p != nil {
			m[name] = float64(*p)
		}
	}
	number("cpu", s.CPU)
	size("memory", s.Memory)
	size("disk", s.Disk)
	number("read", s.Read)
	number("write", s.Write)
	number("in", s.NetIn)
	number("out", s.NetOut)
	for _, g := range s.GPUs {
		number(g.UUID+" utilization", g.Utilization)
		size(g.UUID+" memory", g.Memory)
		number(g.UUID+" temperature", g.Temperature)
		number(g.UUID+" power", g.Power)
		size(g.UUID+" own", g.OwnMemory)
	}
	return m
}

func maxSample(all []muster.Sample) map[string]float64 {
	top := map[string]float64{}
	for i := range all {
		for name, v := range figures(&all[i]) {
			top[name] = max(top[name], v)
		}
	}
	return top
}

// A downsampled series is short, in order, ends with the exact last sample, and has every
// peak in the point of its time. The input is not changed.
func TestDownsamplingKeepsPeaks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := drawSamples(t)
		maxPoints := rapid.IntRange(4, 40).Draw(t, "most")
		thin := usageseries.NewSampleSeries(maxPoints)
		for _, s := range all {
			thin.Add(s)
		}
		before := fmt.Sprint(maxSample(all))
		points := thin.Points()
		switch {
		case points == nil || thin.Len() != len(all):
			t.Fatalf("points %v of %d samples", points, thin.Len())
		case len(points) > maxPoints:
			t.Fatalf("%d points of %d samples, at most %d were wanted", len(points), len(all), maxPoints)
		case len(all) <= maxPoints && !slices.EqualFunc(points, all, func(a, b muster.Sample) bool { return cmp.Equal(a, b) }):
			t.Fatalf("a short series was changed")
		case len(all) > maxPoints && len(points) < maxPoints/2:
			t.Fatalf("%d points of %d samples: %d were allowed", len(points), len(all), maxPoints)
		case len(all) > 0 && !cmp.Equal(points[len(points)-1], all[len(all)-1]):
			t.Fatal("the last point is not the last sample")
		}
		from := 0
		for _, p := range points {
			to := slices.IndexFunc(all, func(s muster.Sample) bool { return s.At == p.At }) + 1
			if to <= from {
				t.Fatalf("the point at %v represents no samples", p.At)
			}
			if diff := cmp.Diff(maxSample(all[from:to]), maxSample([]muster.Sample{p})); diff != "" {
				t.Fatalf("the point at %v is not the highest of its samples (-want +got):\n%s", p.At, diff)
			}
			from = to
		}
		if from != len(all) {
			t.Fatalf("%d samples have no point", len(all)-from)
		}
		if after := fmt.Sprint(maxSample(all)); after != before {
			t.Fatal("the samples themselves were changed")
		}
	})
}

func TestSums(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	at := func(s int) muster.Time { return muster.NewTime(begin.Add(time.Duration(s) * time.Second)) }
	device := func(busy, watts float64, memory, own muster.Size) muster.GPUSample {
		return muster.GPUSample{OwnMemory: &own, GPULoad: muster.GPULoad{UUID: "GPU-a", Utilization: &busy, Power: &watts, Memory: &memory, Temperature: new(70 + busy)}}
	}
	all := []muster.Sample{
		{At: at(10), CPU: new(2.0), Memory: new(muster.Size(100)), Read: new(5.0), PIDs: 3, GPUs: []muster.GPUSample{device(1, 100, 8<<30, 2<<30)}},
		{At: at(40), CPU: new(1.0), Memory: new(muster.Size(300)), Disk: new(muster.Size(7)), NetOut: new(1.0), GPUs: []muster.GPUSample{device(0, 300, 8<<30, 4<<30)}},
		{At: at(4000), PIDs: 1}, // after a gap
	}
	for _, tt := range []struct {
		shared bool
		watts  float64 // times seconds
	}{{false, 100*10 + 300*30}, {true, 100*10/4 + 300*30/2}} {
		sums := usageseries.Accumulator{Shared: tt.shared}
		before := begin
		for i := range all {
			sums.AddSince(before, &all[i])
			before = all[i].At.Std()
		}
		want := muster.Usage{
			CPUAvg: (2*10 + 30) / 40.0, CPUPeak: 2, MemoryAvg: (100*10 + 300*30) / 40, MemoryPeak: 300, DiskPeak: 7, ReadBytes: 50, NetOut: 30, PIDsPeak: 3,
			GPUAvg: 0.25, GPUPeak: 1, VRAMPeak: 4 << 30, GPUTempPeak: 71, PowerAvg: tt.watts / 40, EnergyWh: tt.watts / 3600,
		}
		if diff := cmp.Diff(want, sums.Usage()); diff != "" || sums.Len() != 3 {
			t.Errorf("shared %t (-want +got):\n%s", tt.shared, diff)
		}
	}
}

// Points are bounded, whatever a worker sends.
func TestDownsamplingIsBounded(t *testing.T) {
	thin := usageseries.NewSampleSeries(10)
	for i := range 5000 {
		thin.Add(muster.Sample{At: muster.Time(i), GPUs: []muster.GPUSample{{GPULoad: muster.GPULoad{UUID: strconv.Itoa(i)}}}})
	}
	for _, p := range thin.Points() {
		if len(p.GPUs) > 64 {
			t.Fatalf("a point has %d devices", len(p.GPUs))
		}
	}
}

func BenchmarkThin(b *testing.B) {
	const days = 30 // a sample each minute
	s := muster.Sample{CPU: new(1.0), Memory: new(muster.Size(1)), GPUs: make([]muster.GPUSample, 8)}
	for b.Loop() {
		thin := usageseries.NewSampleSeries(1000)
		for i := range days * 1440 {
			s.At = muster.Time(i)
			thin.Add(s)
		}
	}
}
