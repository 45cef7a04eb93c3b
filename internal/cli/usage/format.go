package usage

import (
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
)

// AddDetails adds what a task used to the facts about it.
func AddDetails(f *app.Details, u *muster.Usage) {
	f.Add("used", joinNonEmpty(formatDecimal(u.CPUAvg)+" cores"+formatPeakSuffix(u.CPUPeak, formatDecimal), formatNonZero(float64(u.MemoryPeak), formatSize)+" memory"))
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

// joinNonEmpty joins what begins with a figure, and leaves out what lacks it.
func joinNonEmpty(parts ...string) string {
	var kept []string
	for _, p := range parts {
		if p != "" && p[0] != ' ' {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, ", ")
}

// Columns are those of a wide table of tasks for what they used.
func Columns() []term.Column {
	return []term.Column{
		{Title: "CPU", AlignRight: true}, {Title: "MEMORY", AlignRight: true}, {Title: "GPU", AlignRight: true}, {Title: "VRAM", AlignRight: true},
		{Title: "ENERGY", AlignRight: true}, {Title: "COST", AlignRight: true},
	}
}

// Cells are a row of Columns: averages of cores and of the GPUs, and the most of memory.
func Cells(u *muster.Usage) []string {
	if u == nil {
		return nil
	}
	return []string{
		formatNonZero(u.CPUAvg, formatDecimal), formatNonZero(float64(u.MemoryPeak), formatSize), formatNonZero(u.GPUAvg, term.FormatPercent), formatNonZero(float64(u.VRAMPeak), formatSize),
		FormatEnergy(u), FormatCost(u),
	}
}
