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
	"github.com/muster-dev/muster/internal/cli/term"
)

// workers is the tab with all workers that have not left.
type workers struct{ local[muster.Worker] }

func newWorkers() *workers { return &workers{newLocal(&workerRows)} }

func (p *workers) name() string { return "Workers" }

func (p *workers) hints() []hint {
	return []hint{{"Enter", "open"}, {"d", "drain"}, {"p", "pause"}, {"u", "resume"}, {"/", "filter"}, {"s", "sort"}}
}

func (p *workers) load(m *model) tea.Cmd {
	return read(m, &p.reader, m.api.Workers, func(m *model, all []muster.Worker) {
		m.names.learn(all)
		p.all = slices.DeleteFunc(all, func(w muster.Worker) bool { return w.State == muster.WorkerGone })
		p.arrange()
	})
}

var workerRows = localRows[muster.Worker]{
	columns: workerColumns, compare: workerOrder, cells: workerCells,
	id:    func(w *muster.Worker) string { return string(w.ID) },
	title: func(w *muster.Worker) string { return w.Name },
	words: func(w *muster.Worker) []string {
		return append([]string{w.Name, string(w.ID), frame.Standing(w), w.Version, frame.Devices(w.Resources.GPUs)}, w.Tags...)
	},
	none: "no workers: start one with muster worker",
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

func (p *workers) key(m *model, k string) (tea.Cmd, bool) {
	return p.onSelected(k, func(w *muster.Worker) (tea.Cmd, bool) {
		if k == "enter" {
			return m.open(newWorker(w.ID, w.Name)), true
		}
		return m.workerKey(w.ID, w.Name, w.Running, k)
	})
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
