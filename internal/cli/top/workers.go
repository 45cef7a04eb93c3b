package top

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
)

// workersPage is the tab with the workers that have not left.
type workersPage struct{ localList[muster.Worker] }

func newWorkers() *workersPage {
	return &workersPage{localList[muster.Worker]{
		pacer: pacer{interval: 3 * time.Second},
		list: list[muster.Worker]{
			columns: workerColumns, cells: workerCells, rowID: func(w *muster.Worker) string { return string(w.ID) }, tie: workerColumns[0].compare,
		},
		searchText: func(w *muster.Worker) []string {
			return append([]string{w.Name, string(w.ID), app.WorkerStatus(w), w.Version, app.FormatDevices(w.Resources.GPUs)}, w.Tags...)
		},
		emptyMessage: "no workers: start one with muster worker",
	}}
}

func (p *workersPage) name() string { return "Workers" }

func (p *workersPage) hints() []hint {
	return []hint{{"Enter", "open"}, {"d", "drain"}, {"p", "pause"}, {"u", "resume"}, {"/", "filter"}, {"s", "sort"}}
}

func (p *workersPage) load(m *model) tea.Cmd {
	return read(m, &p.pacer, m.api.Workers, func(m *model, all []muster.Worker) {
		m.names.update(all)
		p.all = slices.DeleteFunc(all, func(w muster.Worker) bool { return w.State == muster.WorkerGone })
		p.arrange()
	})
}

var workerColumns = []column[muster.Worker]{
	{title: "WORKER", width: 14, flex: 2, compare: ascending(func(w *muster.Worker) string { return w.Name })},
	{title: "STATE", width: 11, style: app.StateStyle, compare: descending(app.WorkerStatus)},
	{title: "RUN", width: 4, alignRight: true, compare: descending(func(w *muster.Worker) int { return w.Running })},
	{title: "CPU", width: 4, alignRight: true, style: loadStyle, compare: descending(cpuFraction)},
	{title: "FREE", width: 9, alignRight: true, dropPriority: 2},
	{title: "MEMORY", width: 15, alignRight: true, dropPriority: 1, compare: descending(memoryFraction)},
	{title: "GPU", width: 4, alignRight: true, style: loadStyle, compare: descending(gpuFraction)},
	{title: "GPUS", width: 10, flex: 1, dropPriority: 5},
	{title: "PRICE", width: 6, alignRight: true, dropPriority: 6, compare: descending(func(w *muster.Worker) float64 { return w.Price })},
	{title: "SEEN", width: 4, alignRight: true, dropPriority: 3},
	{title: "TAGS", width: 10, flex: 1, dropPriority: 7},
}

func cpuFraction(w *muster.Worker) float64 {
	if w.Load == nil {
		return -1
	}
	return w.Load.CPU
}

func memoryFraction(w *muster.Worker) float64 {
	if w.Load == nil {
		return -1
	}
	return ratio(float64(w.Load.Memory), float64(w.Resources.Memory))
}

// gpuFraction returns the mean utilization of a worker's GPUs, -1 if unknown.
func gpuFraction(w *muster.Worker) float64 {
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

// percentOrEmpty formats a fraction, "" if it is negative.
func percentOrEmpty(fraction float64) string {
	if fraction < 0 {
		return ""
	}
	return term.FormatPercent(fraction)
}

// loadStyle returns the color of a percentage.
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

func workerCells(w *muster.Worker, m *model) []string {
	free, memory, price := "", w.Resources.Memory.String(), ""
	if w.Free != nil {
		free = formatDecimal(w.Free.CPUs) + "/" + formatDecimal(w.Resources.CPUs)
	}
	if w.Load != nil {
		memory = w.Load.Memory.String() + "/" + memory
	}
	if w.Price > 0 {
		price = strconv.FormatFloat(w.Price, 'g', 4, 64)
	}
	return []string{
		w.Name, app.WorkerStatus(w), strconv.Itoa(w.Running), percentOrEmpty(cpuFraction(w)), free, memory, percentOrEmpty(gpuFraction(w)),
		app.FormatDevices(w.Resources.GPUs), price, app.Age(w.LastSeenAt, m.now), strings.Join(w.Tags, " "),
	}
}

func (p *workersPage) handleKey(m *model, k string) (tea.Cmd, bool) {
	return p.handleRowKey(k, func(w *muster.Worker) (tea.Cmd, bool) {
		if k == "enter" {
			return m.push(newWorker(w.ID, w.Name)), true
		}
		return m.workerKey(w.ID, w.Name, w.Running, k)
	})
}

// workerKey handles the keys for a worker.
func (m *model) workerKey(id muster.WorkerID, name string, running int, k string) (tea.Cmd, bool) {
	change := func(done string, do func(ctx context.Context) (muster.Worker, error)) tea.Cmd {
		return runAction(m, fmt.Sprintf("worker %s: %s", name, done), do)
	}
	switch k {
	case "d":
		m.confirm(change("draining; it leaves when its last task has ended", func(ctx context.Context) (muster.Worker, error) {
			return m.api.DrainWorker(ctx, string(id), nil)
		}), "Drain worker %s? It finishes %s and leaves.", name, pluralTasks(int64(running)))
		return nil, true
	case "p":
		return change("paused", func(ctx context.Context) (muster.Worker, error) { return m.api.PauseWorker(ctx, string(id), nil) }), true
	case "u":
		return change("resumed", func(ctx context.Context) (muster.Worker, error) { return m.api.ResumeWorker(ctx, string(id)) }), true
	case "H":
		return change("checking its quarantined GPUs", func(ctx context.Context) (muster.Worker, error) { return m.api.HealWorker(ctx, string(id)) }), true
	}
	return nil, false
}
