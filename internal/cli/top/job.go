package top

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/cli/watch"
	"github.com/muster-dev/muster/internal/client"
)

// job is the page of one job with its tasks. Without a filter and an order it
// reads only the tasks that are visible, by their numbers, so that a job of a million
// tasks takes no more than one of a hundred.
type job struct {
	list
	order

	job    muster.Job
	about  reader // of job
	tasks  reader // of rows
	follow *follower
	filter taskFilter
	rows   []muster.Task
	from   int  // the number of rows[0], while rows are a window of all tasks
	more   bool // otherwise: there are more than rows
}

func newJob(j muster.Job) *job {
	return &job{job: j, order: order{by: -1}, about: reader{every: 5 * time.Second}, tasks: reader{every: 5 * time.Second}}
}

func (p *job) name() string { return "job " + p.job.ID.String() }

func (p *job) hints() []hint {
	return []hint{{"Enter", "task"}, {"l", "log"}, {"c", "cancel task"}, {"C", "cancel job"}, {"r", "retry"}, {"/", "filter"}, {"s", "sort"}}
}

func (p *job) close() {
	if p.follow != nil {
		p.follow.stop()
	}
}

func (p *job) changed(b live.Batch) {
	if b.All || slices.ContainsFunc(b.Events, func(e muster.Event) bool { return e.Job == p.job.ID }) {
		p.about.stale, p.tasks.stale = true, p.tasks.stale || b.All
	}
}

// news takes the events of the job's tasks.
func (p *job) news() bool {
	if p.follow == nil {
		return false
	}
	b := p.follow.take()
	if b.All {
		p.tasks.stale, p.about.stale = true, true
		return false
	}
	changed := false
	for i := range b.Events {
		e := &b.Events[i]
		p.about.stale = true
		if !p.window() || p.apply(e) {
			changed, p.tasks.stale = true, true
		}
	}
	return changed
}

// apply shows an event of a task that is visible at once; the read that follows fills in the rest.
func (p *job) apply(e *muster.Event) bool {
	if e.Task == nil || e.Task.Num < p.from || e.Task.Num >= p.from+len(p.rows) {
		return false
	}
	t := &p.rows[e.Task.Num-p.from]
	if err := t.State.UnmarshalText([]byte(e.State)); err != nil {
		return true // of a newer server: the read that follows says it
	}
	if d := e.Detail; d != nil && d.Progress != nil {
		t.Progress, t.Step = d.Progress, d.Step
	}
	return true
}

// window says whether rows are a part of all tasks, by their numbers.
func (p *job) window() bool { return p.filter.text == "" && p.by < 0 }

// len is how many rows the list has.
func (p *job) len() int {
	if p.window() {
		return int(p.job.Counts.Total())
	}
	return len(p.rows)
}

func (p *job) load(m *model) tea.Cmd {
	if p.follow == nil {
		p.follow = m.followJob(p.job.ID)
	}
	id := p.job.ID
	about := read(m, &p.about, func(ctx context.Context) (muster.Job, error) { return m.api.Job(ctx, id) }, func(_ *model, j muster.Job) {
		p.job = j
		p.job.Spec = nil
	})
	if p.window() {
		return tea.Batch(about, p.loadWindow(m))
	}
	q := client.TaskQuery{States: p.filter.states, Spans: p.filter.spans, Page: listMax}
	return tea.Batch(about, read(m, &p.tasks, func(ctx context.Context) (rows []muster.Task, err error) {
		for t, err := range watch.First(m.api.Tasks(ctx, id, q), listMax+1) {
			if err != nil {
				return nil, err
			}
			rows = append(rows, t)
		}
		return rows, nil
	}, func(_ *model, rows []muster.Task) {
		p.more = len(rows) > listMax
		p.rows = rows[:min(listMax, len(rows))]
		sortTasks(p.rows, p.order)
		p.hold(taskIDs(p.rows))
	}))
}

// loadWindow reads the tasks that are visible, and a screen before and after them.
func (p *job) loadWindow(m *model) tea.Cmd {
	h := max(10, p.height)
	first, last := max(0, p.top-h), min(p.len(), p.top+2*h)-1
	if !p.tasks.busy && (p.top < p.from || min(p.len(), p.top+h) > p.from+len(p.rows)) {
		p.tasks.last = time.Time{} // what is visible is not here: read it at once
		p.tasks.loaded = false
	}
	id := p.job.ID
	return read(m, &p.tasks, func(ctx context.Context) (rows []muster.Task, err error) {
		q := client.TaskQuery{Spans: []client.Span{{First: first, Last: max(first, last)}}, Page: min(3*h, listMax)}
		for t, err := range m.api.Tasks(ctx, id, q) {
			if err != nil {
				return nil, err
			}
			rows = append(rows, t)
		}
		return rows, nil
	}, func(_ *model, rows []muster.Task) {
		p.from, p.rows = first, rows
	})
}

func (p *job) draw(m *model, width, height int) []string {
	lines := p.facts(m, width, height < 12)
	height -= len(lines)
	if !p.window() {
		if len(p.rows) == 0 {
			return append(lines, m.empty(&p.tasks, p.filter.text != "", "no tasks")...)
		}
		note := ""
		if p.more {
			note = fmt.Sprintf("the first %d that match: add numbers to the filter for others, such as %d-%d", listMax, p.rows[len(p.rows)-1].Index+1, p.job.Counts.Total()-1)
		}
		return append(lines, m.taskTable(p.rows, &p.list, p.order, width, height, note)...)
	}
	p.fit(height, p.len(), "")
	rows := make([]row, 0, p.height)
	for n := p.top; n < min(p.len(), p.top+p.height); n++ {
		if t := p.at(n); t != nil {
			rows = append(rows, row{cells: m.taskCells(t)})
			continue
		}
		rows = append(rows, row{cells: []string{muster.TaskID{Job: p.job.ID, Num: n}.String(), "…", "", "", "", "", "", "", ""}})
	}
	return append(lines, m.table(taskColumns, p.order, rows, p.sel-p.top, width, "")...)
}

// at returns the task in a row, nil if it is not here.
func (p *job) at(row int) *muster.Task {
	if p.window() {
		row -= p.from
	}
	if row < 0 || row >= len(p.rows) {
		return nil
	}
	return &p.rows[row]
}

// facts are the lines above the tasks.
func (p *job) facts(m *model, width int, compact bool) []string {
	j := &p.job
	state := string(j.State)
	name := term.Fit(term.Clean(j.Name), max(12, width-60))
	line := m.paint(term.Bold, name) + "  " + m.paint(frame.StateStyle(state), state) + "  " +
		term.Bar(10, frame.JobShare(j)) + " " + term.Percent(frame.JobShare(j)) + "  " + count(j.Counts.Finished()) + "/" + count(j.Counts.Total())
	if took := frame.Took(j.StartedAt, j.FinishedAt, m.now); took != "" {
		line += "  " + took
	}
	lines := []string{line}
	if compact {
		return lines
	}
	parts := []string{frame.Counts(j.Counts, false), "project " + j.Project, fmt.Sprintf("priority %d", j.Priority)}
	if age := frame.Age(j.CreatedAt, m.now); age != "" {
		parts = append(parts, "created "+age+" ago")
	}
	lines = append(lines, m.paint(term.Dim, term.Fit(term.Clean(strings.Join(parts, "   ")), width)))
	if len(j.Groups) > 1 {
		stages := make([]string, len(j.Groups))
		for i := range j.Groups {
			g := &j.Groups[i]
			stages[i] = fmt.Sprintf("%s %s/%s %s", g.Name, count(g.Counts.Finished()), count(g.Counts.Total()), g.Counts.State())
		}
		lines = append(lines, term.Fit(term.Clean("stages  "+strings.Join(stages, " · ")), width))
	}
	return lines
}

func (p *job) key(m *model, k string) (tea.Cmd, bool) {
	switch {
	case p.move(k, p.len()):
		if t := p.at(p.sel); t != nil && !p.window() {
			p.id = t.ID.String()
		}
		return p.load(m), true
	case p.sortKey(k, taskColumns):
		p.restart()
		if p.by >= 0 && p.job.Counts.Total() > listMax {
			m.tell("sorts the first %d tasks that match: filter with / for others", listMax)
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
	t := p.at(p.sel)
	if t == nil {
		return nil, false
	}
	return m.taskKey(t, k)
}

// restart reads the list again from its beginning.
func (p *job) restart() {
	p.rows, p.from, p.more = nil, 0, false
	p.first()
	p.tasks.loaded = false
	p.tasks.again()
}

func (p *job) prompt() (label, text string) { return "states, numbers", p.filter.text }

func (p *job) search(m *model, text string) {
	f, err := parseTaskFilter(text, true)
	if err != nil {
		m.fail(err)
		return
	}
	p.filter = f
	p.restart()
}
