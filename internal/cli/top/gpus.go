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

// gpus is the tab with the devices of all connected workers.
type gpus struct{ local[wire.OverviewGPU] }

func newGPUs() *gpus { return &gpus{newLocal(&gpuRows)} }

func (p *gpus) name() string { return "GPUs" }

func (p *gpus) hints() []hint {
	return []hint{{"Enter", "worker"}, {"H", "check quarantined GPUs"}, {"/", "filter"}, {"s", "sort"}}
}

func (p *gpus) load(m *model) tea.Cmd {
	return read(m, &p.reader, func(ctx context.Context) (wire.Overview, error) {
		return m.api.Overview(ctx, true)
	}, func(_ *model, o wire.Overview) {
		p.all = o.GPUs
		p.arrange()
	})
}

var gpuRows = localRows[wire.OverviewGPU]{
	columns: gpuColumns, compare: gpuOrder, cells: gpuCells,
	id:    func(g *wire.OverviewGPU) string { return string(g.Worker) + " " + g.UUID }, // workers of one machine have the same devices
	title: func(g *wire.OverviewGPU) string { return g.WorkerName },
	words: func(g *wire.OverviewGPU) []string { return []string{g.WorkerName, g.Name, g.UUID, deviceState(g)} },
	none:  "no GPUs: no connected worker has one",
}

var gpuColumns = []column{
	{title: "WORKER", width: 12, flex: 1, sort: true},
	{title: "#", width: 2, right: true},
	{title: "NAME", width: 10, flex: 2, drop: 2, sort: true},
	{title: "USE", width: 4, right: true, sort: true, style: loadStyle},
	{title: "", width: 10, drop: 3},
	{title: "VRAM", width: 17, right: true, sort: true},
	{title: "°C", width: 3, right: true, drop: 1, sort: true},
	{title: "POWER", width: 6, right: true, drop: 1, sort: true},
	{title: "STATE", width: 12, flex: 1, sort: true, style: deviceStyle},
}

var gpuOrder = []func(a, b *wire.OverviewGPU) int{
	func(a, b *wire.OverviewGPU) int {
		return cmp.Or(cmp.Compare(a.WorkerName, b.WorkerName), a.Index-b.Index)
	},
	nil,
	func(a, b *wire.OverviewGPU) int { return cmp.Compare(a.Name, b.Name) },
	func(a, b *wire.OverviewGPU) int { return cmp.Compare(orNone(b.Utilization), orNone(a.Utilization)) },
	nil,
	func(a, b *wire.OverviewGPU) int { return cmp.Compare(vramOf(b), vramOf(a)) },
	func(a, b *wire.OverviewGPU) int { return cmp.Compare(orNone(b.Temperature), orNone(a.Temperature)) },
	func(a, b *wire.OverviewGPU) int { return cmp.Compare(orNone(b.Power), orNone(a.Power)) },
	func(a, b *wire.OverviewGPU) int { return cmp.Compare(deviceState(b), deviceState(a)) },
}

// orNone is a reading; -1 if there is none.
func orNone(v *float64) float64 {
	if v == nil {
		return -1
	}
	return *v
}

func vramOf(g *wire.OverviewGPU) float64 {
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
		return tasksOf(int64(g.Tasks))
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

func gpuCells(g *wire.OverviewGPU, _ time.Time) []string {
	memory, bar, degrees, power := g.Memory.String(), "", "", ""
	if g.MemoryUsed != nil {
		memory = g.MemoryUsed.String() + "/" + memory
	}
	if g.Utilization != nil {
		bar = term.Bar(10, *g.Utilization)
	}
	if g.Temperature != nil {
		degrees = strconv.FormatFloat(*g.Temperature, 'f', 0, 64)
	}
	if g.Power != nil {
		power = watts(*g.Power)
	}
	return []string{g.WorkerName, strconv.Itoa(g.Index), g.Name, percent(orNone(g.Utilization)), bar, memory, degrees, power, deviceState(g)}
}

func (p *gpus) key(m *model, k string) (tea.Cmd, bool) {
	return p.onSelected(k, func(g *wire.OverviewGPU) (tea.Cmd, bool) {
		switch k {
		case "enter":
			return m.open(newWorker(g.Worker, g.WorkerName)), true
		case "H":
			return m.workerKey(g.Worker, g.WorkerName, 0, k)
		default:
			return nil, false
		}
	})
}
