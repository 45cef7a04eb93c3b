package top

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/term"
)

// workers is the tab with all workers.
type workers struct {
	reader
	list
	order

	filter string
	all    []muster.Worker // those that have not left
	rows   []muster.Worker // of them, those that match
}

func newWorkers() *workers {
	return &workers{order: order{by: 0}, reader: reader{every: 3 * time.Second}}
}

func (p *workers) name() string { return "Workers" }
func (p *workers) close()       {}

func (p *workers) hints() []hint {
	return []hint{{"Enter", "open"}, {"d", "drain"}, {"p", "pause"}, {"u", "resume"}, {"/", "filter"}, {"s", "sort"}}
}

func (p *workers) changed(b live.Batch) {
	p.stale = p.stale || b.All || slices.ContainsFunc(b.Events, func(e muster.Event) bool { return e.Type == muster.EventWorker })
}

func (p *workers) load(m *model) tea.Cmd {
	return read(m, &p.reader, m.api.Workers, func(m *model, all []muster.Worker) {
		m.names.learn(all)
		p.all = slices.DeleteFunc(all, func(w muster.Worker) bool { return w.State == muster.WorkerGone })
		p.arrange()
	})
}

func (p *workers) arrange() {
	p.rows = p.rows[:0]
	for i := range p.all {
		if workerMatches(&p.all[i], p.filter) {
			p.rows = append(p.rows, p.all[i])
		}
	}
	if p.by >= 0 {
		slices.SortStableFunc(p.rows, func(a, b muster.Worker) int {
			c := workerOrder[p.by](&a, &b)
			if p.reverse {
				c = -c
			}
			return cmp.Or(c, cmp.Compare(a.Name, b.Name))
		})
	}
	ids := make([]string, len(p.rows))
	for i := range p.rows {
		ids[i] = string(p.rows[i].ID)
	}
	p.hold(ids)
}

// workerMatches reports whether every word is part of what is known of a worker.
func workerMatches(w *muster.Worker, filter string) bool {
	text := strings.ToLower(strings.Join([]string{w.Name, string(w.ID), frame.Standing(w), strings.Join(w.Tags, " "), w.Version, frame.Devices(w.Resources.GPUs)}, " "))
	for word := range strings.FieldsSeq(strings.ToLower(filter)) {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

var workerColumns = []column{
	{title: "WORKER", width: 14, flex: 2, sort: true},
	{title: "STATE", width: 11, style: frame.StateStyle, sort: true},
	{title: "RUN", width: 4, right: true, sort: true},
	{title: "CPU", width: 4, right: true, sort: true, style: loadStyle},
	{title: "FREE", width: 9, right: true, drop: 2},
	{title: "MEMORY", width: 15, right: true, drop: 1, sort: true},
	{title: "GPU", width: 4, right: true, sort: true, style: loadStyle},
	{title: "GPUS", width: 10, flex: 1, drop: 5},
	{title: "PRICE", width: 6, right: true, drop: 6, sort: true},
	{title: "SEEN", width: 4, right: true, drop: 3},
	{title: "TAGS", width: 10, flex: 1, drop: 7},
}

// workerOrder compares workers as the columns do: what matters most first.
var workerOrder = []func(a, b *muster.Worker) int{
	func(a, b *muster.Worker) int { return cmp.Compare(a.Name, b.Name) },
	func(a, b *muster.Worker) int { return cmp.Compare(frame.Standing(b), frame.Standing(a)) },
	func(a, b *muster.Worker) int { return cmp.Compare(b.Running, a.Running) },
	func(a, b *muster.Worker) int { return cmp.Compare(cpuOf(b), cpuOf(a)) },
	nil,
	func(a, b *muster.Worker) int { return cmp.Compare(memoryOf(b), memoryOf(a)) },
	func(a, b *muster.Worker) int { return cmp.Compare(gpuOf(b), gpuOf(a)) },
	nil,
	func(a, b *muster.Worker) int { return cmp.Compare(b.Price, a.Price) },
}

func cpuOf(w *muster.Worker) float64 {
	if w.Load == nil {
		return -1
	}
	return w.Load.CPU
}

func memoryOf(w *muster.Worker) float64 {
	if w.Load == nil {
		return -1
	}
	return ratio(float64(w.Load.Memory), float64(w.Resources.Memory))
}

// gpuOf is the mean utilization of a worker's devices; -1 if that is not known.
func gpuOf(w *muster.Worker) float64 {
	if w.Load == nil {
		return -1
	}
	sum, n := 0.0, 0
	for i := range w.Load.GPUs {
		if u := w.Load.GPUs[i].Utilization; u != nil {
			sum, n = sum+*u, n+1
		}
	}
	if n == 0 {
		return -1
	}
	return sum / float64(n)
}

// percent writes a share; "" if it is not known.
func percent(share float64) string {
	if share < 0 {
		return ""
	}
	return term.Percent(share)
}

// loadStyle colours a share in percent.
func loadStyle(text string) term.Style {
	n, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
	switch {
	case err != nil:
		return term.Plain
	case n >= 90:
		return term.Red
	case n >= 70:
		return term.Yellow
	default:
		return term.Green
	}
}

func workerCells(w *muster.Worker, now time.Time) []string {
	free, memory, price := "", w.Resources.Memory.String(), ""
	if w.Free != nil {
		free = decimal(w.Free.CPUs) + "/" + decimal(w.Resources.CPUs)
	}
	if w.Load != nil {
		memory = w.Load.Memory.String() + "/" + memory
	}
	if w.Price > 0 {
		price = strconv.FormatFloat(w.Price, 'g', 4, 64)
	}
	return []string{
		w.Name, frame.Standing(w), strconv.Itoa(w.Running), percent(cpuOf(w)), free, memory, percent(gpuOf(w)),
		frame.Devices(w.Resources.GPUs), price, frame.Age(w.LastSeenAt, now), strings.Join(w.Tags, " "),
	}
}

func (p *workers) draw(m *model, width, height int) []string {
	if len(p.rows) == 0 {
		return m.empty(&p.reader, p.filter != "", "no workers: start one with muster worker")
	}
	p.fit(height, len(p.rows), "")
	rows := make([]row, 0, p.height)
	for i := p.top; i < min(len(p.rows), p.top+p.height); i++ {
		rows = append(rows, row{cells: workerCells(&p.rows[i], m.now)})
	}
	return m.table(workerColumns, p.order, rows, p.sel-p.top, width, "")
}

func (p *workers) key(m *model, k string) (tea.Cmd, bool) {
	switch {
	case p.move(k, len(p.rows)):
		if p.sel < len(p.rows) {
			p.id = string(p.rows[p.sel].ID)
		}
		return nil, true
	case p.order.key(k, workerColumns):
		p.by = max(p.by, 0) // there is no order of the server
		p.first()
		p.arrange()
		return nil, true
	}
	if p.sel >= len(p.rows) {
		return nil, false
	}
	w := &p.rows[p.sel]
	if k == "enter" {
		return m.open(newWorker(w.ID, w.Name)), true
	}
	return m.workerKey(w.ID, w.Name, w.Running, k)
}

// workerKey handles the keys that do something with a worker.
func (m *model) workerKey(id muster.WorkerID, name string, running int, k string) (tea.Cmd, bool) {
	steer := func(done string, do func(ctx context.Context) error) tea.Cmd {
		return m.act(fmt.Sprintf("worker %s: %s", name, done), do)
	}
	switch k {
	case "d":
		m.confirm(steer("draining, it leaves when its last task has ended", func(ctx context.Context) error {
			_, err := m.api.DrainWorker(ctx, string(id), nil)
			return err
		}), "Drain worker %s? It finishes %s and then leaves.", name, tasksOf(int64(running)))
		return nil, true
	case "p":
		return steer("paused", func(ctx context.Context) error {
			_, err := m.api.PauseWorker(ctx, string(id), nil)
			return err
		}), true
	case "u":
		return steer("takes tasks again", func(ctx context.Context) error {
			_, err := m.api.ResumeWorker(ctx, string(id))
			return err
		}), true
	case "H":
		return steer("checks its quarantined GPUs", func(ctx context.Context) error {
			_, err := m.api.HealWorker(ctx, string(id))
			return err
		}), true
	}
	return nil, false
}

func (p *workers) prompt() (label, text string) { return "filter", p.filter }

func (p *workers) search(_ *model, text string) {
	p.filter = text
	p.first()
	p.arrange()
}
