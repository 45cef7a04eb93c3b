package top

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

// jobPage shows one job with its tasks. Without a filter and a sort order it reads only
// the visible tasks, by number, so that the cost does not depend on the number of tasks.
type jobPage struct {
	list[muster.Task]

	job        muster.Job
	jobPacer   pacer // of job
	tasksPacer pacer // of rows
	follower   *jobFollower
	filter     taskFilter
	firstRow   int  // task number of rows[0], if windowed
	more       bool // there are more tasks than rows, if not windowed
}

func newJob(j muster.Job) *jobPage {
	return &jobPage{job: j, list: newTaskList(), jobPacer: pacer{interval: 5 * time.Second}, tasksPacer: pacer{interval: 5 * time.Second}}
}

func (p *jobPage) name() string { return "job " + p.job.ID.String() }

func (p *jobPage) hints() []hint {
	return []hint{{"Enter", "task"}, {"l", "log"}, {"c", "cancel task"}, {"C", "cancel job"}, {"r", "retry"}, {"/", "filter"}, {"s", "sort"}}
}

func (p *jobPage) close() {
	if p.follower != nil {
		p.follower.stop()
	}
}

func (p *jobPage) invalidate(b live.Batch) {
	if b.Resync || slices.ContainsFunc(b.Events, func(e muster.Event) bool { return e.Job == p.job.ID }) {
		p.jobPacer.stale, p.tasksPacer.stale = true, p.tasksPacer.stale || b.Resync
	}
}

// poll applies the events of the job's tasks.
func (p *jobPage) poll() bool {
	if p.follower == nil {
		return false
	}
	b := p.follower.feed.Pop()
	if b.Resync {
		p.tasksPacer.stale, p.jobPacer.stale = true, true
		return false
	}
	changed := false
	for i := range b.Events {
		e := &b.Events[i]
		p.jobPacer.stale = true
		if !p.windowed() || p.apply(e) {
			changed, p.tasksPacer.stale = true, true
		}
	}
	return changed
}

// apply applies an event to a visible task at once; the next read adds the rest.
func (p *jobPage) apply(e *muster.Event) bool {
	if e.Task == nil || e.Task.Num < p.firstRow || e.Task.Num >= p.firstRow+len(p.rows) {
		return false
	}
	t := &p.rows[e.Task.Num-p.firstRow]
	if err := t.State.UnmarshalText([]byte(e.State)); err != nil {
		return true // a state of a newer server: the next read reports it
	}
	if d := e.Detail; d != nil && d.Progress != nil {
		t.Progress, t.Step = d.Progress, d.Step
	}
	return true
}

// windowed reports whether rows are a range of all tasks by number.
func (p *jobPage) windowed() bool { return p.filter.text == "" && p.by < 0 }

// rowCount returns the number of rows of the list.
func (p *jobPage) rowCount() int {
	if p.windowed() {
		return int(p.job.Counts.Total())
	}
	return len(p.rows)
}

func (p *jobPage) load(m *model) tea.Cmd {
	if p.follower == nil {
		p.follower = m.followJob(p.job.ID)
	}
	id := p.job.ID
	about := read(m, &p.jobPacer, func(ctx context.Context) (muster.Job, error) { return m.api.Job(ctx, id) }, func(_ *model, j muster.Job) {
		p.job = j
		p.job.Spec = nil
	})
	if p.windowed() {
		return tea.Batch(about, p.loadWindow(m))
	}
	q := client.TaskQuery{States: p.filter.states, Spans: p.filter.spans, Page: maxRows}
	return tea.Batch(about, read(m, &p.tasksPacer, func(ctx context.Context) ([]muster.Task, error) {
		return remote.Collect(m.api.Tasks(ctx, id, q), maxRows+1)
	}, func(_ *model, rows []muster.Task) {
		p.more = len(rows) > maxRows
		p.rows = rows[:min(maxRows, len(rows))]
		p.arrange()
	}))
}

// loadWindow reads the visible tasks, and a screen before and after them.
func (p *jobPage) loadWindow(m *model) tea.Cmd {
	h := max(10, p.height)
	first, last := max(0, p.top-h), min(p.rowCount(), p.top+2*h)-1
	if !p.tasksPacer.inFlight && (p.top < p.firstRow || min(p.rowCount(), p.top+h) > p.firstRow+len(p.rows)) {
		p.tasksPacer.lastRead = time.Time{} // visible tasks are missing: read them at once
		p.tasksPacer.loaded = false
	}
	id := p.job.ID
	q := client.TaskQuery{Spans: []client.Span{{First: first, Last: max(first, last)}}, Page: min(3*h, maxRows)}
	return read(m, &p.tasksPacer, func(ctx context.Context) ([]muster.Task, error) {
		return remote.Collect(m.api.Tasks(ctx, id, q), 0)
	}, func(_ *model, rows []muster.Task) { p.firstRow, p.rows = first, rows })
}

func (p *jobPage) draw(m *model, width, height int) []string {
	lines := p.summaryLines(m, width, height < 12)
	height -= len(lines)
	if !p.windowed() {
		if len(p.rows) == 0 {
			return append(lines, m.emptyLines(&p.tasksPacer, p.filter.text != "", "no tasks")...)
		}
		note := ""
		if p.more {
			note = fmt.Sprintf("the first %d matches: add task numbers to the filter for others, such as %d-%d", maxRows, p.rows[len(p.rows)-1].Index+1, p.job.Counts.Total()-1)
		}
		return append(lines, p.list.draw(m, width, height, note)...)
	}
	return append(lines, p.drawRows(m, p.rowCount(), func(n int) []string {
		if t := p.taskAt(n); t != nil {
			return taskCells(t, m)
		}
		cells := make([]string, len(taskColumns))
		cells[0], cells[1] = muster.TaskID{Job: p.job.ID, Num: n}.String(), "…"
		return cells
	}, width, height, "")...)
}

// taskAt returns the task in a row, nil if it is not loaded.
func (p *jobPage) taskAt(row int) *muster.Task {
	if p.windowed() {
		row -= p.firstRow
	}
	if row < 0 || row >= len(p.rows) {
		return nil
	}
	return &p.rows[row]
}

// summaryLines draws the lines above the tasks.
func (p *jobPage) summaryLines(m *model, width int, compact bool) []string {
	j := &p.job
	state := string(j.State)
	name := term.Truncate(term.Sanitize(j.Name), max(12, width-60))
	line := m.paint(term.Bold, name) + "  " + m.paint(app.StateStyle(state), state) + "  " +
		term.ProgressBar(10, app.JobFraction(j)) + " " + term.FormatPercent(app.JobFraction(j)) + "  " + formatCount(j.Counts.Finished()) + "/" + formatCount(j.Counts.Total())
	if took := app.Elapsed(j.StartedAt, j.FinishedAt, m.now); took != "" {
		line += "  " + took
	}
	lines := []string{line}
	if compact {
		return lines
	}
	parts := []string{app.FormatCounts(j.Counts, false), "project " + j.Project, fmt.Sprintf("priority %d", j.Priority)}
	if age := app.Age(j.CreatedAt, m.now); age != "" {
		parts = append(parts, "created "+age+" ago")
	}
	lines = append(lines, m.paint(term.Dim, term.Truncate(term.Sanitize(strings.Join(parts, "   ")), width)))
	if len(j.Groups) > 1 {
		stages := make([]string, len(j.Groups))
		for i := range j.Groups {
			g := &j.Groups[i]
			stages[i] = fmt.Sprintf("%s %s/%s %s", g.Name, formatCount(g.Counts.Finished()), formatCount(g.Counts.Total()), g.Counts.StageState())
		}
		lines = append(lines, term.Truncate(term.Sanitize("stages  "+strings.Join(stages, " · ")), width))
	}
	return lines
}

func (p *jobPage) handleKey(m *model, k string) (tea.Cmd, bool) {
	switch {
	case p.move(k, p.rowCount()):
		if p.windowed() {
			p.selectedID = "" // rows do not move, and rows[0] is not the first one
		}
		return p.load(m), true
	case p.handleSortKey(k):
		p.restart()
		if p.by >= 0 && p.job.Counts.Total() > maxRows {
			m.notify("sorted: the first %d matches; use / to filter", maxRows)
		}
		return p.load(m), true
	case k == "C":
		m.cancelJob(&p.job)
		return nil, true
	case k == "R":
		return m.retryJob(p.job.ID), true
	case k == "a":
		p.search(m, p.filter.toggleActive())
		return p.load(m), true
	}
	t := p.taskAt(p.cursor)
	if t == nil {
		return nil, false
	}
	return m.taskKey(t, k)
}

// restart reads the list again from the start.
func (p *jobPage) restart() {
	p.rows, p.firstRow, p.more = nil, 0, false
	p.resetCursor()
	p.tasksPacer.loaded = false
	p.tasksPacer.forceReload()
}

func (p *jobPage) prompt() (label, text string) { return "states, numbers", p.filter.text }

func (p *jobPage) search(m *model, text string) {
	f, err := parseTaskFilter(text, true)
	if err != nil {
		m.notifyError(err)
		return
	}
	p.filter = f
	p.restart()
}

// jobFollower follows the events of one job and its tasks until stop.
type jobFollower struct {
	feed *live.Feed
	stop context.CancelFunc
}

// followJob starts to follow a job.
func (m *model) followJob(id muster.JobID) *jobFollower {
	ctx, stop := context.WithCancel(m.ctx)
	f := &jobFollower{feed: live.New(m.api, client.EventQuery{Job: id}), stop: stop}
	m.group.Go(func() error {
		_ = f.feed.Run(ctx) // the page's reads report a removed job
		return nil
	})
	return f
}

// names has the names of workers by id.
type names struct {
	pacer

	byID map[muster.WorkerID]string
}

// load reads the names if an unknown one was requested.
func (n *names) load(m *model) tea.Cmd {
	if !n.stale || m.now.Sub(n.lastRead) < 10*time.Second {
		return nil
	}
	return read(m, &n.pacer, m.api.Workers, func(m *model, all []muster.Worker) { m.names.update(all) })
}

func (n *names) update(all []muster.Worker) {
	n.byID = make(map[muster.WorkerID]string, len(all))
	for i := range all {
		n.byID[all[i].ID] = all[i].Name
	}
}

// workerName returns the name of a worker, or its id while the name is unknown.
func (m *model) workerName(id muster.WorkerID) string {
	if id == "" {
		return ""
	}
	name, known := m.names.byID[id]
	if !known {
		m.names.stale = true
		return string(id)
	}
	return name
}
