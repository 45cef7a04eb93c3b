package usage

import (
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/term"
)

// Add adds what a task used to the facts about it.
func Add(f *frame.Facts, u *muster.Usage) {
	f.Add("used", list(decimal(u.CPUAvg)+" cores"+peak(u.CPUPeak, decimal), unlessZero(float64(u.MemoryPeak), size)+" memory"))
	if u.GPUAvg > 0 || u.VRAMPeak > 0 {
		f.Add("gpu", list(term.Percent(u.GPUAvg)+peak(u.GPUPeak, term.Percent), unlessZero(float64(u.VRAMPeak), size)+" memory", unlessZero(u.PowerAvg, whole)+" watts"))
	}
	f.Add("energy", Energy(u))
	f.Add("cost", Cost(u))
}

func peak(v float64, words func(float64) string) string {
	if v == 0 {
		return ""
	}
	return " (peak " + words(v) + ")"
}

// list joins what begins with a figure, and leaves out what lacks it.
func list(parts ...string) string {
	var full []string
	for _, p := range parts {
		if p != "" && p[0] != ' ' {
			full = append(full, p)
		}
	}
	return strings.Join(full, ", ")
}

// Columns are those of a wide table of tasks for what they used.
func Columns() []term.Column {
	return []term.Column{
		{Title: "CPU", Right: true}, {Title: "MEMORY", Right: true}, {Title: "GPU", Right: true}, {Title: "VRAM", Right: true},
		{Title: "ENERGY", Right: true}, {Title: "COST", Right: true},
	}
}

// Cells are a row of Columns: averages of cores and of the GPUs, and the most of memory.
func Cells(u *muster.Usage) []string {
	if u == nil {
		return nil
	}
	return []string{
		unlessZero(u.CPUAvg, decimal), unlessZero(float64(u.MemoryPeak), size), unlessZero(u.GPUAvg, term.Percent), unlessZero(float64(u.VRAMPeak), size),
		Energy(u), Cost(u),
	}
}
