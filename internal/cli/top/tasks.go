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
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/client"
)

var taskColumns = []column{
	{title: "TASK", width: 9, sortable: true},
	{title: "NAME", width: 10, flex: 1, sortable: true},
	{title: "ELEMENT", width: 12, flex: 1, dropPriority: 4},
	{title: "STATE", width: 10, style: app.StateStyle, sortable: true},
	{title: "DONE", width: 4, alignRight: true, sortable: true},
	{title: "TRY", width: 3, alignRight: true, dropPriority: 3, sortable: true},
	{title: "WORKER", width: 12, dropPriority: 2, sortable: true},
	{title: "TOOK", width: 6, alignRight: true, sortable: true},
	{title: "NOTE", width: 12, flex: 2, dropPriority: 1},
}

// taskOrder has the order of each column, the most important rows first.
var taskOrder = []func(a, b *muster.Task) int{
	compareTasks,
	func(a, b *muster.Task) int { return cmp.Compare(a.Name, b.Name) },
	nil,
	func(a, b *muster.Task) int { return cmp.Compare(a.State, b.State) },
	func(a, b *muster.Task) int { return cmp.Compare(progress(b), progress(a)) },
	func(a, b *muster.Task) int { return cmp.Compare(b.Attempt, a.Attempt) },
	func(a, b *muster.Task) int { return cmp.Compare(a.Worker, b.Worker) },
	func(a, b *muster.Task) int {
		return cmp.Compare(runTime(b.StartedAt, b.FinishedAt), runTime(a.StartedAt, a.FinishedAt))
	},
}

func compareTasks(a, b *muster.Task) int {
	return cmp.Or(cmp.Compare(b.Job, a.Job), cmp.Compare(a.Index, b.Index))
}

func progress(t *muster.Task) float64 {
	if t.Progress == nil {
		return -1
	}
	return *t.Progress
}

func (m *model) taskCells(t *muster.Task) []string {
	try := ""
	if t.Attempt > 1 {
		try = strconv.Itoa(t.Attempt)
	}
	return []string{
		t.ID.String(), t.Name, t.Element, t.State.String(), app.TaskProgress(t), try, m.workerName(t.Worker),
		app.Elapsed(t.StartedAt, t.FinishedAt, m.now), app.TaskNote(t),
	}
}

func sortTasks(rows []muster.Task, o sortOrder) { sortRows(rows, o, taskOrder, compareTasks) }

// taskFilter selects tasks by states and numbers.
type taskFilter struct {
	text   string
	states []muster.TaskState
	spans  []client.Span
}

// toggleActive returns the text of the filter after the key a.
func (f *taskFilter) toggleActive() string {
	if f.text == "active" {
		return ""
	}
	return "active"
}

// activeStates are the states of unfinished tasks.
var activeStates = []muster.TaskState{muster.Waiting, muster.Queued, muster.Assigned, muster.Running, muster.Cancelling}

// parseTaskFilter parses states, "active", and with numbers, ranges such as 0-99.
func parseTaskFilter(text string, numbers bool) (taskFilter, error) {
	f := taskFilter{text: text}
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' }) {
		if word == "active" {
			f.states = append(f.states, activeStates...)
			continue
		}
		i := slices.IndexFunc(muster.TaskStates, func(s muster.TaskState) bool { return strings.HasPrefix(s.String(), word) })
		if i >= 0 {
			f.states = append(f.states, muster.TaskStates[i])
			continue
		}
		spans, err := wire.ParseSpans(word)
		switch {
		case !numbers:
			return f, muster.Errorf(muster.Invalid, "unknown state %q: use %s", word, app.JoinComma(muster.TaskStates))
		case err != nil || len(spans) == 0:
			return f, muster.Errorf(muster.Invalid, "invalid filter %q: use states such as failed, and numbers such as 0-99", word)
		}
		f.spans = append(f.spans, spans...)
	}
	return f, nil
}

// tasksPage is the tab with tasks of all jobs: those on workers, or those of the filter.
type tasksPage struct {
	pacer
	listView
	sortOrder

	filter taskFilter
	rows   []muster.Task
	more   bool
}

func newTasks() *tasksPage {
	return &tasksPage{sortOrder: sortOrder{by: -1}, pacer: pacer{interval: time.Second}}
}

func (p *tasksPage) name() string { return "Tasks" }
func (p *tasksPage) close()       {}

func (p *tasksPage) hints() []hint {
	return []hint{{"Enter", "task"}, {"l", "log"}, {"c", "cancel"}, {"r", "retry"}, {"/", "filter"}, {"s", "sort"}, {"a", "active"}}
}

func (p *tasksPage) invalidate(b live.Batch) {
	p.stale = p.stale || b.Resync || slices.ContainsFunc(b.Events, func(e muster.Event) bool { return e.Type == muster.EventJob })
}

func (p *tasksPage) load(m *model) tea.Cmd {
	limit, states := max(100, 2*p.height), p.filter.states
	if p.by >= 0 || p.cursor >= limit/2 {
		limit = maxRows
	}
	return read(m, &p.pacer, func(ctx context.Context) ([]muster.Task, error) {
		return remote.Collect(m.api.AllTasks(ctx, states, min(limit+1, maxRows)), limit+1)
	}, func(_ *model, rows []muster.Task) {
		p.more = len(rows) > limit
		p.rows = rows[:min(limit, len(rows))]
		p.arrange()
	})
}

func (p *tasksPage) arrange() {
	sortTasks(p.rows, p.sortOrder)
	p.keepSelection(taskIDs(p.rows))
}

func taskIDs(rows []muster.Task) []string {
	return rowIDs(rows, func(t *muster.Task) string { return t.ID.String() })
}

func (p *tasksPage) draw(m *model, width, height int) []string {
	if len(p.rows) == 0 {
		return m.emptyLines(&p.pacer, p.filter.text != "", "no running tasks: a shows waiting ones, too")
	}
	note := ""
	if p.more && len(p.rows) >= maxRows {
		note = fmt.Sprintf("the first %d tasks: open their job to see all", maxRows)
	}
	return m.taskTable(p.rows, &p.listView, p.sortOrder, width, height, note)
}

// taskTable draws the visible tasks and a note.
func (m *model) taskTable(tasks []muster.Task, l *listView, o sortOrder, width, height int, note string) []string {
	l.setHeight(height, len(tasks), note)
	return m.table(taskColumns, o, visible(l, tasks, m.taskCells), l.cursor-l.top, width, note)
}

func (p *tasksPage) handleKey(m *model, k string) (tea.Cmd, bool) {
	switch {
	case p.move(k, len(p.rows)):
		if p.cursor < len(p.rows) {
			p.id = p.rows[p.cursor].ID.String()
		}
		if p.more && len(p.rows) < maxRows && p.cursor >= len(p.rows)/2 {
			p.stale = true
		}
		return nil, true
	case p.handleSortKey(k, taskColumns):
		p.resetCursor()
		p.forceReload()
		p.arrange()
		return p.load(m), true
	case k == "a":
		p.search(m, p.filter.toggleActive())
		return p.load(m), true
	}
	if p.cursor >= len(p.rows) {
		return nil, false
	}
	return m.taskKey(&p.rows[p.cursor], k)
}

// taskKey handles the keys for a task.
func (m *model) taskKey(t *muster.Task, k string) (tea.Cmd, bool) {
	switch k {
	case "enter":
		return m.push(newTask(m, t)), true
	case "l":
		return m.push(newLog(t.ID)), true
	case "c", "f9", "delete":
		m.cancelTask(t)
		return nil, true
	case "r":
		return m.retryTask(t), true
	case "w":
		if t.Worker != "" {
			return m.push(newWorker(t.Worker, m.workerName(t.Worker))), true
		}
		m.notify("task %s has no worker yet", t.ID)
		return nil, true
	}
	return nil, false
}

func (p *tasksPage) prompt() (label, text string) { return "states", p.filter.text }

func (p *tasksPage) search(m *model, text string) {
	f, err := parseTaskFilter(text, false)
	if err != nil {
		m.notifyError(err)
		return
	}
	p.filter = f
	p.resetCursor()
	p.forceReload()
}

// cancelTask cancels a task after confirmation.
func (m *model) cancelTask(t *muster.Task) {
	if t.State.Final() {
		m.notifyError(muster.Errorf(muster.Conflict, "task %s is already %s", t.ID, t.State))
		return
	}
	id := t.ID
	m.confirm(m.runAction(fmt.Sprintf("task %s: cancelling", id), func(ctx context.Context) error {
		_, err := m.api.Cancel(ctx, id.Job, singleSpan(id))
		return err
	}), "Cancel task %s (%s), which is %s?", id, t.Name, t.State)
}

// retryTask retries an unsuccessful task.
func (m *model) retryTask(t *muster.Task) tea.Cmd {
	id := t.ID
	return m.runAction(fmt.Sprintf("task %s is queued again", id), func(ctx context.Context) error {
		_, err := m.api.Retry(ctx, id.Job, singleSpan(id))
		return err
	})
}

func singleSpan(id muster.TaskID) []client.Span { return []client.Span{{First: id.Num, Last: id.Num}} }
