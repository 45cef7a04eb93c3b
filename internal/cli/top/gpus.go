package top

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/term"
)

// gpus is the tab with the devices of all connected workers.
type gpus struct {
	reader
	list
	order

	filter string
	all    []wire.OverviewGPU
	rows   []wire.OverviewGPU // of all, those that match
}

func newGPUs() *gpus { return &gpus{order: order{by: 0}, reader: reader{every: 3 * time.Second}} }

func (p *gpus) name() string { return "GPUs" }
func (p *gpus) close()       {}

func (p *gpus) hints() []hint {
	return []hint{{"Enter", "worker"}, {"H", "check quarantined GPUs"}, {"/", "filter"}, {"s", "sort"}}
}

func (p *gpus) changed(b live.Batch) {
	p.stale = p.stale || b.All || slices.ContainsFunc(b.Events, func(e muster.Event) bool { return e.Type == muster.EventWorker })
}

func (p *gpus) load(m *model) tea.Cmd {
	return read(m, &p.reader, func(ctx context.Context) (wire.Overview, error) {
		return m.api.Overview(ctx, true)
	}, func(_ *model, o wire.Overview) {
		p.all = o.GPUs
		p.arrange()
	})
}

func (p *gpus) arrange() {
	p.rows = p.rows[:0]
	words := strings.Fields(strings.ToLower(p.filter))
	for i := range p.all {
		g := &p.all[i]
		text := strings.ToLower(strings.Join([]string{g.WorkerName, g.Name, g.UUID, deviceState(g)}, " "))
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) }) {
			p.rows = append(p.rows, *g)
		}
	}
	if p.by >= 0 {
		slices.SortStableFunc(p.rows, func(a, b wire.OverviewGPU) int {
			c := gpuOrder[p.by](&a, &b)
			if p.reverse {
				c = -c
			}
			return c
		})
	}
	ids := make([]string, len(p.rows))
	for i := range p.rows {
		ids[i] = p.rows[i].UUID
	}
	p.hold(ids)
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

func gpuCells(g *wire.OverviewGPU) []string {
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

func (p *gpus) draw(m *model, width, height int) []string {
	if len(p.rows) == 0 {
		return m.empty(&p.reader, p.filter != "", "no GPUs: no connected worker has one")
	}
	p.fit(height, len(p.rows), "")
	rows := make([]row, 0, p.height)
	for i := p.top; i < min(len(p.rows), p.top+p.height); i++ {
		rows = append(rows, row{cells: gpuCells(&p.rows[i])})
	}
	return m.table(gpuColumns, p.order, rows, p.sel-p.top, width, "")
}

func (p *gpus) key(m *model, k string) (tea.Cmd, bool) {
	switch {
	case p.move(k, len(p.rows)):
		if p.sel < len(p.rows) {
			p.id = p.rows[p.sel].UUID
		}
		return nil, true
	case p.order.key(k, gpuColumns):
		p.by = max(p.by, 0) // there is no order of the server
		p.first()
		p.arrange()
		return nil, true
	}
	if p.sel >= len(p.rows) {
		return nil, false
	}
	g := &p.rows[p.sel]
	if k == "enter" {
		return m.open(newWorker(g.Worker, g.WorkerName)), true
	}
	if k == "H" {
		return m.workerKey(g.Worker, g.WorkerName, 0, k)
	}
	return nil, false
}

func (p *gpus) prompt() (label, text string) { return "filter", p.filter }

func (p *gpus) search(_ *model, text string) {
	p.filter = text
	p.first()
	p.arrange()
}
