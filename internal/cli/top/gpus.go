package top

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/cli/term"
)

// gpusPage is the tab with the devices of all connected workers.
type gpusPage struct{ localList[wire.OverviewGPU] }

func newGPUs() *gpusPage {
	return &gpusPage{localList[wire.OverviewGPU]{
		pacer: pacer{interval: 3 * time.Second},
		list: list[wire.OverviewGPU]{
			columns: gpuColumns, cells: gpuCells,
			rowID: func(g *wire.OverviewGPU) string { return string(g.Worker) + " " + g.UUID }, // workers of one machine share devices
			tie:   ascending(func(g *wire.OverviewGPU) string { return g.WorkerName }),
		},
		searchText:   func(g *wire.OverviewGPU) []string { return []string{g.WorkerName, g.Name, g.UUID, deviceState(g)} },
		emptyMessage: "no GPUs: no connected worker has one",
	}}
}

func (p *gpusPage) name() string { return "GPUs" }

func (p *gpusPage) hints() []hint {
	return []hint{{"Enter", "worker"}, {"H", "check quarantined GPUs"}, {"/", "filter"}, {"s", "sort"}}
}

func (p *gpusPage) load(m *model) tea.Cmd {
	return read(m, &p.pacer, func(ctx context.Context) (wire.Overview, error) {
		return m.api.Overview(ctx, true)
	}, func(_ *model, o wire.Overview) {
		p.all = o.GPUs
		p.arrange()
	})
}

var gpuColumns = []column[wire.OverviewGPU]{
	{title: "WORKER", width: 12, flex: 1, compare: func(a, b *wire.OverviewGPU) int {
		return cmp.Or(cmp.Compare(a.WorkerName, b.WorkerName), a.Index-b.Index)
	}},
	{title: "#", width: 2, alignRight: true},
	{title: "NAME", width: 10, flex: 2, dropPriority: 2, compare: ascending(func(g *wire.OverviewGPU) string { return g.Name })},
	{title: "USE", width: 4, alignRight: true, style: loadStyle, compare: descending(func(g *wire.OverviewGPU) float64 { return orMinusOne(g.Utilization) })},
	{title: "", width: 10, dropPriority: 3},
	{title: "VRAM", width: 17, alignRight: true, compare: descending(vramFraction)},
	{title: "°C", width: 3, alignRight: true, dropPriority: 1, compare: descending(func(g *wire.OverviewGPU) float64 { return orMinusOne(g.Temperature) })},
	{title: "POWER", width: 6, alignRight: true, dropPriority: 1, compare: descending(func(g *wire.OverviewGPU) float64 { return orMinusOne(g.Power) })},
	{title: "STATE", width: 12, flex: 1, style: deviceStyle, compare: descending(deviceState)},
}

// orMinusOne returns a reading, -1 if it is nil.
func orMinusOne(v *float64) float64 {
	if v == nil {
		return -1
	}
	return *v
}

func vramFraction(g *wire.OverviewGPU) float64 {
	if g.MemoryUsed == nil {
		return -1
	}
	return ratio(float64(*g.MemoryUsed), float64(g.Memory))
}

func deviceState(g *wire.OverviewGPU) string {
	switch {
	case g.Quarantined != "":
		return "quarantined: " + g.Quarantined
	case g.Tasks > 0:
		return pluralTasks(int64(g.Tasks))
	default:
		return "free"
	}
}

func deviceStyle(state string) term.Style {
	if strings.HasPrefix(state, "quarantined") {
		return term.Red
	}
	return term.Plain
}

func gpuCells(g *wire.OverviewGPU, _ *model) []string {
	memory, bar, degrees, power := g.Memory.String(), "", "", ""
	if g.MemoryUsed != nil {
		memory = g.MemoryUsed.String() + "/" + memory
	}
	if g.Utilization != nil {
		bar = term.ProgressBar(10, *g.Utilization)
	}
	if g.Temperature != nil {
		degrees = strconv.FormatFloat(*g.Temperature, 'f', 0, 64)
	}
	if g.Power != nil {
		power = formatWatts(*g.Power)
	}
	return []string{g.WorkerName, strconv.Itoa(g.Index), g.Name, percentOrEmpty(orMinusOne(g.Utilization)), bar, memory, degrees, power, deviceState(g)}
}

func (p *gpusPage) handleKey(m *model, k string) (tea.Cmd, bool) {
	return p.handleRowKey(k, func(g *wire.OverviewGPU) (tea.Cmd, bool) {
		switch k {
		case "enter":
			return m.push(newWorker(g.Worker, g.WorkerName)), true
		case "H":
			return m.workerKey(g.Worker, g.WorkerName, 0, k)
		default:
			return nil, false
		}
	})
}
