package usage

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/series"
)

// figure is one row of the table: one thing that is measured.
type figure struct {
	name           string
	of             func(*muster.Sample) *float64 // nil where it was not measured
	words          func(float64) string
	average, total string
	peak           float64 // as it was reported, which may be above all samples
	full           float64 // the top of the drawn series; 0 means the peak
}

// rows returns the figures of which there is something to say.
func (v *view) rows() []figure {
	u := muster.Usage{}
	if v.Usage != nil {
		u = *v.Usage
	}
	all := slices.Concat(machineFigures(&u), v.deviceFigures(&u))
	return slices.DeleteFunc(all, func(r figure) bool {
		return r.average == "" && r.total == "" && r.peak == 0 && !slices.ContainsFunc(v.Samples, func(s muster.Sample) bool { return r.of(&s) != nil })
	})
}

func machineFigures(u *muster.Usage) []figure {
	return []figure{
		{name: "cpu cores", of: func(s *muster.Sample) *float64 { return s.CPU }, words: decimal,
			average: unlessZero(u.CPUAvg, decimal), peak: u.CPUPeak, total: unlessZero(u.CPUSeconds, func(s float64) string { return term.Elapsed(seconds(s)) })},
		{name: "memory", of: func(s *muster.Sample) *float64 { return number(s.Memory) }, words: size,
			average: unlessZero(float64(u.MemoryAvg), size), peak: float64(u.MemoryPeak)},
		{name: "disk", of: func(s *muster.Sample) *float64 { return number(s.Disk) }, words: size, peak: float64(u.DiskPeak)},
		{name: "read/s", of: func(s *muster.Sample) *float64 { return s.Read }, words: size, total: unlessZero(float64(u.ReadBytes), size)},
		{name: "write/s", of: func(s *muster.Sample) *float64 { return s.Write }, words: size, total: unlessZero(float64(u.WriteBytes), size)},
		{name: "threads", of: threads, words: whole, peak: float64(u.PIDsPeak)},
		{name: "host in/s", of: func(s *muster.Sample) *float64 { return s.NetIn }, words: size, total: unlessZero(float64(u.NetIn), size)},
		{name: "host out/s", of: func(s *muster.Sample) *float64 { return s.NetOut }, words: size, total: unlessZero(float64(u.NetOut), size)},
	}
}

// deviceFigures are those of all devices together, then of each if there are several.
func (v *view) deviceFigures(u *muster.Usage) []figure {
	shared := v.task.Grant != nil && v.task.Grant.GPUMemory > 0
	rows := []figure{
		{name: "gpu", of: utilization, words: term.Percent, full: 1, average: unlessZero(u.GPUAvg, term.Percent), peak: u.GPUPeak},
		{name: "vram", of: own, words: size, peak: float64(u.VRAMPeak)},
		{name: "gpu °C", of: temperature, words: whole, peak: u.GPUTempPeak},
		{name: "gpu watts", of: func(s *muster.Sample) *float64 { return power(s, shared) }, words: whole, average: unlessZero(u.PowerAvg, whole), total: Energy(u)},
	}
	devices := 0
	for i := range v.Samples {
		devices = max(devices, len(v.Samples[i].GPUs))
	}
	for n := range devices {
		if devices == 1 {
			break
		}
		rows = append(rows, figure{name: "gpu " + strconv.Itoa(n), words: term.Percent, full: 1, of: func(s *muster.Sample) *float64 {
			if n >= len(s.GPUs) {
				return nil
			}
			return s.GPUs[n].Utilization
		}})
	}
	return rows
}

// said is what a sample says of a figure.
func said(r figure, s *muster.Sample) string {
	if v := r.of(s); v != nil {
		return r.words(*v)
	}
	return ""
}

func (r *figure) peakOf(samples []muster.Sample) string {
	top, known := r.peak, r.peak > 0
	for i := range samples {
		if v := r.of(&samples[i]); v != nil {
			top, known = max(top, *v), true
		}
	}
	if !known {
		return ""
	}
	return r.words(top)
}

// spark draws the series over its time in width columns. A column without a sample is
// empty.
func (r *figure) spark(samples []muster.Sample, width int) string {
	if len(samples) < 2 {
		return ""
	}
	first, last := samples[0].At, samples[len(samples)-1].At
	span := max(1, float64(last-first))
	column := func(at muster.Time) int { return min(width-1, int(float64(at-first)/span*float64(width))) }
	values := slices.Repeat([]float64{math.NaN()}, width)
	top := max(r.full, r.peak)
	for i := range samples {
		v := r.of(&samples[i])
		if v == nil {
			continue
		}
		if r.full == 0 {
			top = max(top, *v)
		}
		from := column(samples[i].At)
		if i > 0 && samples[i].At.Sub(samples[i-1].At).Std() <= longest(samples) {
			from = min(from, column(samples[i-1].At)+1) // it stands for the time before it
		}
		for c := from; c <= column(samples[i].At); c++ {
			values[c] = max(*v, orZero(values[c]))
		}
	}
	return strings.TrimRight(term.Spark(values, top), " ")
}

// longest is the longest time between two samples that is no gap.
func longest(samples []muster.Sample) time.Duration {
	usual := samples[len(samples)-1].At.Sub(samples[0].At).Std() / time.Duration(len(samples)-1)
	return max(series.MaxSpan, 3*usual)
}

func orZero(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}

func number(s *muster.Size) *float64 {
	if s == nil {
		return nil
	}
	return new(float64(*s))
}

func threads(s *muster.Sample) *float64 {
	if s.PIDs == 0 {
		return nil
	}
	return new(float64(s.PIDs))
}

// over folds a figure of all devices; it is nil if none tells it.
func over(s *muster.Sample, of func(*muster.GPUSample) *float64, fold func(sum, v float64) float64) (sum *float64, n int) {
	for i := range s.GPUs {
		v := of(&s.GPUs[i])
		if v == nil {
			continue
		}
		if n++; sum == nil {
			sum = new(float64)
		}
		*sum = fold(*sum, *v)
	}
	return sum, n
}

func add(sum, v float64) float64 { return sum + v }

func utilization(s *muster.Sample) *float64 {
	sum, n := over(s, func(g *muster.GPUSample) *float64 { return g.Utilization }, add)
	if n > 0 {
		*sum /= float64(n)
	}
	return sum
}

func own(s *muster.Sample) *float64 {
	sum, _ := over(s, func(g *muster.GPUSample) *float64 { return number(g.OwnMemory) }, add)
	return sum
}

func temperature(s *muster.Sample) *float64 {
	top, _ := over(s, func(g *muster.GPUSample) *float64 { return g.Temperature }, func(top, v float64) float64 { return max(top, v) })
	return top
}

// power is the attempt's part of the devices' power.
func power(s *muster.Sample, shared bool) *float64 {
	if watts, ok := series.Power(s, shared); ok {
		return &watts
	}
	return nil
}

func unlessZero(v float64, words func(float64) string) string {
	if v == 0 {
		return ""
	}
	return words(v)
}

func decimal(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
func whole(v float64) string   { return strconv.FormatFloat(v, 'f', 0, 64) }
func size(v float64) string    { return muster.Size(v).String() }

// Energy says what the devices consumed, "" if that is unknown.
func Energy(u *muster.Usage) string {
	return unlessZero(u.EnergyWh, func(wh float64) string { return fmt.Sprintf("%.3gWh", wh) })
}

// Cost says what the time cost, "" if nothing.
func Cost(u *muster.Usage) string {
	return unlessZero(u.Cost, func(c float64) string { return strconv.FormatFloat(c, 'g', 3, 64) })
}
