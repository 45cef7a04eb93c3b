package usage

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/usageseries"
)

// metric is one row of the table.
type metric struct {
	name           string
	value          func(*muster.Sample) *float64 // nil where it was not measured
	format         func(float64) string
	average, total string
	peak           float64 // as reported, which may be above all samples
	scaleMax       float64 // top of the sparkline; 0 means the peak
}

// metrics returns the metrics that have values.
func (v *view) metrics() []metric {
	u := muster.Usage{}
	if v.Usage != nil {
		u = *v.Usage
	}
	all := slices.Concat(machineMetrics(&u), v.deviceMetrics(&u))
	return slices.DeleteFunc(all, func(r metric) bool {
		return r.average == "" && r.total == "" && r.peak == 0 && !slices.ContainsFunc(v.Samples, func(s muster.Sample) bool { return r.value(&s) != nil })
	})
}

func machineMetrics(u *muster.Usage) []metric {
	return []metric{
		{name: "cpu cores", value: func(s *muster.Sample) *float64 { return s.CPU }, format: formatDecimal,
			average: formatNonZero(u.CPUAvg, formatDecimal), peak: u.CPUPeak, total: formatNonZero(u.CPUSeconds, func(s float64) string { return term.FormatDuration(seconds(s)) })},
		{name: "memory", value: func(s *muster.Sample) *float64 { return sizeValue(s.Memory) }, format: formatSize,
			average: formatNonZero(float64(u.MemoryAvg), formatSize), peak: float64(u.MemoryPeak)},
		{name: "disk", value: func(s *muster.Sample) *float64 { return sizeValue(s.Disk) }, format: formatSize, peak: float64(u.DiskPeak)},
		{name: "read/s", value: func(s *muster.Sample) *float64 { return s.Read }, format: formatSize, total: formatNonZero(float64(u.ReadBytes), formatSize)},
		{name: "write/s", value: func(s *muster.Sample) *float64 { return s.Write }, format: formatSize, total: formatNonZero(float64(u.WriteBytes), formatSize)},
		{name: "threads", value: threads, format: formatInt, peak: float64(u.PIDsPeak)},
		{name: "host in/s", value: func(s *muster.Sample) *float64 { return s.NetIn }, format: formatSize, total: formatNonZero(float64(u.NetIn), formatSize)},
		{name: "host out/s", value: func(s *muster.Sample) *float64 { return s.NetOut }, format: formatSize, total: formatNonZero(float64(u.NetOut), formatSize)},
	}
}

// deviceMetrics returns those of all devices together, then of each device if there are several.
func (v *view) deviceMetrics(u *muster.Usage) []metric {
	shared := v.task.Grant != nil && v.task.Grant.GPUMemory > 0
	rows := []metric{
		{name: "gpu", value: utilization, format: term.FormatPercent, scaleMax: 1, average: formatNonZero(u.GPUAvg, term.FormatPercent), peak: u.GPUPeak},
		{name: "vram", value: attemptVRAM, format: formatSize, peak: float64(u.VRAMPeak)},
		{name: "gpu °C", value: temperature, format: formatInt, peak: u.GPUTempPeak},
		{name: "gpu watts", value: func(s *muster.Sample) *float64 { return power(s, shared) }, format: formatInt, average: formatNonZero(u.PowerAvg, formatInt), total: FormatEnergy(u)},
	}
	devices := 0
	for i := range v.Samples {
		devices = max(devices, len(v.Samples[i].GPUs))
	}
	for n := range devices {
		if devices == 1 {
			break
		}
		rows = append(rows, metric{name: "gpu " + strconv.Itoa(n), format: term.FormatPercent, scaleMax: 1, value: func(s *muster.Sample) *float64 {
			if n >= len(s.GPUs) {
				return nil
			}
			return s.GPUs[n].Utilization
		}})
	}
	return rows
}

// formatSample formats the value of a metric in a sample, "" if it was not measured.
func formatSample(r metric, s *muster.Sample) string {
	if v := r.value(s); v != nil {
		return r.format(*v)
	}
	return ""
}

func (r *metric) formatPeak(samples []muster.Sample) string {
	top, found := r.peak, r.peak > 0
	for i := range samples {
		if v := r.value(&samples[i]); v != nil {
			top, found = max(top, *v), true
		}
	}
	if !found {
		return ""
	}
	return r.format(top)
}

// spark draws the series over time in width columns. A column without a sample is empty.
func (r *metric) spark(samples []muster.Sample, width int) string {
	if len(samples) < 2 {
		return ""
	}
	first, last := samples[0].At, samples[len(samples)-1].At
	span := max(1, float64(last-first))
	column := func(at muster.Time) int { return min(width-1, int(float64(at-first)/span*float64(width))) }
	values := slices.Repeat([]float64{math.NaN()}, width)
	top := max(r.scaleMax, r.peak)
	for i := range samples {
		v := r.value(&samples[i])
		if v == nil {
			continue
		}
		if r.scaleMax == 0 {
			top = max(top, *v)
		}
		from := column(samples[i].At)
		if i > 0 && samples[i].At.Sub(samples[i-1].At).Std() <= maxSampleGap(samples) {
			from = min(from, column(samples[i-1].At)+1) // a sample covers the time before it
		}
		for c := from; c <= column(samples[i].At); c++ {
			values[c] = max(*v, orZero(values[c]))
		}
	}
	return strings.TrimRight(term.Sparkline(values, top), " ")
}

// maxSampleGap returns the longest time between two samples that is not a gap.
func maxSampleGap(samples []muster.Sample) time.Duration {
	average := samples[len(samples)-1].At.Sub(samples[0].At).Std() / time.Duration(len(samples)-1)
	return max(usageseries.MaxSpan, 3*average)
}

func orZero(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}

func sizeValue(s *muster.Size) *float64 {
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

// foldDevices folds a value over all devices; the result is nil if no device reports it.
func foldDevices(s *muster.Sample, get func(*muster.GPUSample) *float64, fold func(sum, v float64) float64) (sum *float64, n int) {
	for i := range s.GPUs {
		v := get(&s.GPUs[i])
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
	sum, n := foldDevices(s, func(g *muster.GPUSample) *float64 { return g.Utilization }, add)
	if n > 0 {
		*sum /= float64(n)
	}
	return sum
}

func attemptVRAM(s *muster.Sample) *float64 {
	sum, _ := foldDevices(s, func(g *muster.GPUSample) *float64 { return sizeValue(g.OwnMemory) }, add)
	return sum
}

func temperature(s *muster.Sample) *float64 {
	top, _ := foldDevices(s, func(g *muster.GPUSample) *float64 { return g.Temperature }, func(top, v float64) float64 { return max(top, v) })
	return top
}

// power returns the attempt's share of the power of its devices.
func power(s *muster.Sample, shared bool) *float64 {
	if watts, ok := usageseries.Power(s, shared); ok {
		return &watts
	}
	return nil
}

func formatNonZero(v float64, format func(float64) string) string {
	if v == 0 {
		return ""
	}
	return format(v)
}

func formatDecimal(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
func formatInt(v float64) string     { return strconv.FormatFloat(v, 'f', 0, 64) }
func formatSize(v float64) string    { return muster.Size(v).String() }

// FormatEnergy formats the energy of the devices, "" if unknown.
func FormatEnergy(u *muster.Usage) string {
	return formatNonZero(u.EnergyWh, func(wh float64) string { return fmt.Sprintf("%.3gWh", wh) })
}

// FormatCost formats the cost, "" if 0.
func FormatCost(u *muster.Usage) string {
	return formatNonZero(u.Cost, func(c float64) string { return strconv.FormatFloat(c, 'g', 3, 64) })
}

// Sparkline is one metric with its series as a line of bars.
type Sparkline struct {
	Name, Now, Peak, Line string
}

// Sparklines draws the usage of an attempt, width columns each.
func Sparklines(s client.Series, t muster.Task, width int) []Sparkline {
	v := view{Series: s, task: t}
	rows := v.metrics()
	lines := make([]Sparkline, len(rows))
	for i, r := range rows {
		now := r.average
		if n := len(s.Samples); n > 0 && !s.State.Final() {
			now = formatSample(r, &s.Samples[n-1])
		}
		lines[i] = Sparkline{Name: r.name, Now: now, Peak: r.formatPeak(s.Samples), Line: r.spark(s.Samples, width)}
	}
	return lines
}

// AddDetails adds the usage of a task to its details.
func AddDetails(f *app.Details, u *muster.Usage) {
	f.Add("used", joinNonEmpty(formatNonZero(u.CPUAvg, func(cores float64) string {
		return formatDecimal(cores) + " cores" + formatPeakSuffix(u.CPUPeak, formatDecimal)
	}), formatNonZero(float64(u.MemoryPeak), formatSize)+" memory"))
	if u.GPUAvg > 0 || u.VRAMPeak > 0 {
		f.Add("gpu", joinNonEmpty(term.FormatPercent(u.GPUAvg)+formatPeakSuffix(u.GPUPeak, term.FormatPercent), formatNonZero(float64(u.VRAMPeak), formatSize)+" memory", formatNonZero(u.PowerAvg, formatInt)+" watts"))
	}
	f.Add("energy", FormatEnergy(u))
	f.Add("cost", FormatCost(u))
}

func formatPeakSuffix(v float64, format func(float64) string) string {
	if v == 0 {
		return ""
	}
	return " (peak " + format(v) + ")"
}

// joinNonEmpty joins the parts that begin with a number.
func joinNonEmpty(parts ...string) string {
	var kept []string
	for _, p := range parts {
		if p != "" && p[0] != ' ' {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, ", ")
}

// Columns returns the columns of usage in a wide table of tasks.
func Columns() []term.Column {
	return []term.Column{
		{Title: "CPU", AlignRight: true}, {Title: "MEMORY", AlignRight: true}, {Title: "GPU", AlignRight: true}, {Title: "VRAM", AlignRight: true},
		{Title: "ENERGY", AlignRight: true}, {Title: "COST", AlignRight: true},
	}
}

// Cells returns a row of Columns: averages of CPU and GPU, and peaks of memory.
func Cells(u *muster.Usage) []string {
	if u == nil {
		return nil
	}
	return []string{
		formatNonZero(u.CPUAvg, formatDecimal), formatNonZero(float64(u.MemoryPeak), formatSize), formatNonZero(u.GPUAvg, term.FormatPercent), formatNonZero(float64(u.VRAMPeak), formatSize),
		FormatEnergy(u), FormatCost(u),
	}
}
