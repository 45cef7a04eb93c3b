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
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/cli/watch"
	"github.com/muster-dev/muster/internal/client"
)

// jobPage is the page of one job with its tasks. Without a filter and an order it
// reads only the tasks that are visible, by their numbers, so that a job of a million
// tasks takes no more than one of a hundred.
type jobPage struct {
	listView
	sortOrder

	job        muster.Job
	jobPacer   pacer // of job
	tasksPacer pacer // of rows
	follower   *jobFollower
	filter     taskFilter
	rows       []muster.Task
	firstRow   int  // the number of rows[0], while rows are a window of all tasks
	more       bool // otherwise: there are more than rows
}

func newJob(j muster.Job) *jobPage {
	return &jobPage{job: j, sortOrder: sortOrder{by: -1}, jobPacer: pacer{interval: 5 * time.Second}, tasksPacer: pacer{interval: 5 * time.Second}}
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

// poll takes the events of the job's tasks.
func (p *jobPage) poll() bool {
	if p.follower == nil {
		return false
	}
	b := p.follower.pop()
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

// apply shows an event of a task that is visible at once; the read that follows fills in the rest.
func (p *jobPage) apply(e *muster.Event) bool {
	if e.Task == nil || e.Task.Num < p.firstRow || e.Task.Num >= p.firstRow+len(p.rows) {
		return false
	}
	t := &p.rows[e.Task.Num-p.firstRow]
	if err := t.State.UnmarshalText([]byte(e.State)); err != nil {
		return true // of a newer server: the read that follows says it
	}
	if d := e.Detail; d != nil && d.Progress != nil {
		t.Progress, t.Step = d.Progress, d.Step
	}
	return true
}

// windowed says whether rows are a part of all tasks, by their numbers.
func (p *jobPage) windowed() bool { return p.filter.text == "" && p.by < 0 }

// rowCount is how many rows the list has.
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
	return tea.Batch(about, read(m, &p.tasksPacer, func(ctx context.Context) (rows []muster.Task, err error) {
		for t, err := range watch.Limit(m.api.Tasks(ctx, id, q), maxRows+1) {
			if err != nil {
				return nil, err
			}
			rows = append(rows, t)
		}
		return rows, nil
	}, func(_ *model, rows []muster.Task) {
		p.more = len(rows) > maxRows
		p.rows = rows[:min(maxRows, len(rows))]
		sortTasks(p.rows, p.sortOrder)
		p.keepSelection(taskIDs(p.rows))
	}))
}

// loadWindow reads the tasks that are visible, and a screen before and after them.
func (p *jobPage) loadWindow(m *model) tea.Cmd {
	h := max(10, p.height)
	first, last := max(0, p.top-h), min(p.rowCount(), p.top+2*h)-1
	if !p.tasksPacer.inFlight && (p.top < p.firstRow || min(p.rowCount(), p.top+h) > p.firstRow+len(p.rows)) {
		p.tasksPacer.lastRead = time.Time{} // what is visible is not here: read it at once
		p.tasksPacer.loaded = false
	}
	id := p.job.ID
	return read(m, &p.tasksPacer, func(ctx context.Context) (rows []muster.Task, err error) {
		q := client.TaskQuery{Spans: []client.Span{{First: first, Last: max(first, last)}}, Page: min(3*h, maxRows)}
		for t, err := range m.api.Tasks(ctx, id, q) {
			if err != nil {
				return nil, err
			}
			rows = append(rows, t)
		}
		return rows, nil
	}, func(_ *model, rows []muster.Task) {
		p.firstRow, p.rows = first, rows
	})
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
			note = fmt.Sprintf("the first %d that match: add numbers to the filter for others, such as %d-%d", maxRows, p.rows[len(p.rows)-1].Index+1, p.job.Counts.Total()-1)
		}
		return append(lines, m.taskTable(p.rows, &p.listView, p.sortOrder, width, height, note)...)
	}
	p.setHeight(height, p.rowCount(), "")
	rows := make([]row, 0, p.height)
	for n := p.top; n < min(p.rowCount(), p.top+p.height); n++ {
		if t := p.taskAt(n); t != nil {
			rows = append(rows, row{cells: m.taskCells(t)})
			continue
		}
		rows = append(rows, row{cells: []string{muster.TaskID{Job: p.job.ID, Num: n}.String(), "…", "", "", "", "", "", "", ""}})
	}
	return append(lines, m.table(taskColumns, p.sortOrder, rows, p.cursor-p.top, width, "")...)
}

// taskAt returns the task in a row, nil if it is not here.
func (p *jobPage) taskAt(row int) *muster.Task {
	if p.windowed() {
		row -= p.firstRow
	}
	if row < 0 || row >= len(p.rows) {
		return nil
	}
	return &p.rows[row]
}

// summaryLines are the lines above the tasks.
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
			stages[i] = fmt.Sprintf("%s %s/%s %s", g.Name, formatCount(g.Counts.Finished()), formatCount(g.Counts.Total()), g.Counts.State())
		}
		lines = append(lines, term.Truncate(term.Sanitize("stages  "+strings.Join(stages, " · ")), width))
	}
	return lines
}

func (p *jobPage) handleKey(m *model, k string) (tea.Cmd, bool) {
	switch {
	case p.move(k, p.rowCount()):
		if t := p.taskAt(p.cursor); t != nil && !p.windowed() {
			p.id = t.ID.String()
		}
		return p.load(m), true
	case p.handleSortKey(k, taskColumns):
		p.restart()
		if p.by >= 0 && p.job.Counts.Total() > maxRows {
			m.notify("sorts the first %d tasks that match: filter with / for others", maxRows)
		}
		return p.load(m), true
	case k == "C":
		m.cancelJob(&p.job)
		return nil, true
	case k == "R":
		return m.retryJob(p.job.ID), true
	case k == "a":
		text := "active"
		if p.filter.text == text {
			text = ""
		}
		p.search(m, text)
		return p.load(m), true
	}
	t := p.taskAt(p.cursor)
	if t == nil {
		return nil, false
	}
	return m.taskKey(t, k)
}

// restart reads the list again from its beginning.
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
