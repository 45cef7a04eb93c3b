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
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

// workerPage shows one worker with its tasks.
type workerPage struct {
	pacer
	list[muster.Task] // the worker's tasks

	id    muster.WorkerID
	title string
	w     muster.Worker
}

func newWorker(id muster.WorkerID, name string) *workerPage {
	return &workerPage{id: id, title: name, list: newTaskList(), pacer: pacer{interval: 2 * time.Second}}
}

func (p *workerPage) name() string { return "worker " + p.title }
func (p *workerPage) close()       {}

func (p *workerPage) hints() []hint {
	return []hint{{"Enter", "task"}, {"d", "drain"}, {"p", "pause"}, {"u", "resume"}, {"H", "heal"}, {"c", "cancel task"}, {"l", "log"}}
}

func (p *workerPage) invalidate(b live.Batch) {
	p.stale = p.stale || b.Resync || slices.ContainsFunc(b.Events, func(e muster.Event) bool { return e.Worker == p.id })
}

func (p *workerPage) load(m *model) tea.Cmd {
	type answer struct {
		w     muster.Worker
		tasks []muster.Task
	}
	id := p.id
	return read(m, &p.pacer, func(ctx context.Context) (a answer, err error) {
		if a.w, err = m.api.Worker(ctx, string(id)); err != nil {
			return a, err
		}
		a.tasks, err = tasksByID(ctx, m.api, a.w.Tasks)
		return a, err
	}, func(_ *model, a answer) {
		p.w, p.rows, p.title = a.w, a.tasks, a.w.Name
		p.arrange()
	})
}

// tasksByID reads tasks, given by sorted ids, with one request per job.
func tasksByID(ctx context.Context, api *client.Client, ids []muster.TaskID) ([]muster.Task, error) {
	var tasks []muster.Task
	for len(ids) > 0 {
		job := ids[0].Job
		var spans []client.Span
		for len(ids) > 0 && ids[0].Job == job {
			spans = append(spans, singleSpan(ids[0])...)
			ids = ids[1:]
		}
		for t, err := range api.Tasks(ctx, job, client.TaskQuery{Spans: spans, Page: len(spans)}) {
			if muster.CodeOf(err) == muster.NotFound {
				break // the job was removed
			}
			if err != nil {
				return nil, err
			}
			tasks = append(tasks, t)
		}
	}
	return tasks, nil
}

func (p *workerPage) draw(m *model, width, height int) []string {
	if !p.loaded {
		return m.emptyLines(&p.pacer, false, "")
	}
	lines := p.summaryLines(m, width)
	if maxLines := max(1, height-4); len(lines) > maxLines {
		lines = lines[:maxLines]
	}
	lines = append(lines, "")
	if len(p.rows) == 0 {
		return append(lines, m.paint(term.Dim, "  no tasks"))
	}
	note := ""
	if more := p.w.Running - len(p.rows); more > 0 {
		note = fmt.Sprintf("and %s more", pluralTasks(int64(more)))
	}
	return append(lines, p.list.draw(m, width, height-len(lines), note)...)
}

// summaryLines draws the lines above the tasks.
func (p *workerPage) summaryLines(m *model, width int) []string {
	w := &p.w
	state := app.WorkerStatus(w)
	head := m.paint(term.Bold, term.Truncate(term.Sanitize(w.Name), 30)) + "  " + m.paint(app.StateStyle(state), state) + "  " + string(w.ID)
	if w.Version != "" {
		head += "  " + term.Truncate(term.Sanitize(w.Version), max(8, width-term.Width(w.Name)-len(state)-30))
	}
	lines := []string{head}
	add := func(name, text string) {
		if text != "" {
			lines = append(lines, m.paint(term.Dim, fmt.Sprintf("%-9s", name))+term.Truncate(term.Sanitize(text), width-9))
		}
	}
	add("why", w.Constrained)
	if h := w.Health; h != nil {
		add("health", strings.TrimSpace(fmt.Sprintf("%s: %s of attempt %s. %s", term.FormatPercent(h.Score), h.Reason, h.Attempt, h.Avoided)))
	}
	if w.Load != nil {
		lines = append(lines, m.paint(term.Dim, "CPU      ")+m.gauge(12, w.Load.CPU)+fmt.Sprintf(" %4s  ", term.FormatPercent(w.Load.CPU))+
			m.paint(term.Dim, "MEM ")+m.gauge(12, memoryFraction(w))+fmt.Sprintf(" %s/%s", w.Load.Memory, w.Resources.Memory))
	}
	if l := w.Load; l != nil && l.Disk != nil {
		add("disk", fmt.Sprintf("%s of %s free", l.Disk.Free, l.Disk.Total))
	}
	if f := w.Free; f != nil {
		add("free", fmt.Sprintf("%s of %s cores, %s memory, %s disk, %d of %d slots", formatDecimal(f.CPUs), formatDecimal(w.Resources.CPUs), f.Memory, f.Disk, f.Slots, w.Resources.Slots))
	}
	for i := range w.Resources.GPUs {
		lines = append(lines, deviceLine(m, &w.Resources.GPUs[i], w.Load, width))
	}
	add("tags", strings.Join(w.Tags, " "))
	if w.Price > 0 {
		add("price", strconv.FormatFloat(w.Price, 'g', 4, 64)+" per hour")
	}
	return lines
}

// deviceLine draws one GPU of a worker.
func deviceLine(m *model, g *muster.GPU, load *muster.Load, width int) string {
	line := m.paint(term.Dim, fmt.Sprintf("GPU %-5d", g.Index))
	text := " " + g.Name + " " + g.Memory.String()
	i := -1
	if load != nil {
		i = slices.IndexFunc(load.GPUs, func(l muster.GPULoad) bool { return l.UUID == g.UUID })
	}
	used := 9
	if i >= 0 {
		l := &load.GPUs[i]
		if l.Utilization != nil {
			line += m.gauge(12, *l.Utilization) + fmt.Sprintf(" %4s", term.FormatPercent(*l.Utilization))
			used += 17
		}
		if l.Memory != nil {
			text = fmt.Sprintf("  %s/%s  %s", *l.Memory, g.Memory, g.Name)
		}
		if l.Temperature != nil {
			text += fmt.Sprintf("  %.0f °C", *l.Temperature)
		}
		if l.Power != nil {
			text += "  " + formatWatts(*l.Power)
		}
	}
	if g.Quarantined != "" {
		return line + m.paint(term.Red, term.Truncate(term.Sanitize("  quarantined: "+g.Quarantined), width-used))
	}
	return line + term.Truncate(term.Sanitize(text), width-used)
}

func (p *workerPage) handleKey(m *model, k string) (tea.Cmd, bool) {
	if p.move(k, len(p.rows)) {
		return nil, true
	}
	if cmd, ok := m.workerKey(p.id, p.title, p.w.Running, k); ok {
		return cmd, true
	}
	if t := p.selected(); t != nil && k != "w" {
		return m.taskKey(t, k)
	}
	return nil, false
}
