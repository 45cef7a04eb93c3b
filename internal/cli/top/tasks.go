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

// newTaskList returns a list of tasks in the order of the server.
func newTaskList() list[muster.Task] {
	return list[muster.Task]{columns: taskColumns, cells: taskCells, rowID: func(t *muster.Task) string { return t.ID.String() }, tie: compareTasks, by: -1}
}

var taskColumns = []column[muster.Task]{
	{title: "TASK", width: 9, compare: compareTasks},
	{title: "NAME", width: 10, flex: 1, compare: ascending(func(t *muster.Task) string { return t.Name })},
	{title: "ELEMENT", width: 12, flex: 1, dropPriority: 4},
	{title: "STATE", width: 10, style: app.StateStyle, compare: ascending(func(t *muster.Task) muster.TaskState { return t.State })},
	{title: "DONE", width: 4, alignRight: true, compare: descending(func(t *muster.Task) float64 { return orMinusOne(t.Progress) })},
	{title: "TRY", width: 3, alignRight: true, dropPriority: 3, compare: descending(func(t *muster.Task) int { return t.Attempt })},
	{title: "WORKER", width: 12, dropPriority: 2, compare: ascending(func(t *muster.Task) muster.WorkerID { return t.Worker })},
	{title: "TOOK", width: 6, alignRight: true, compare: descending(func(t *muster.Task) time.Duration { return runTime(t.StartedAt, t.FinishedAt) })},
	{title: "NOTE", width: 12, flex: 2, dropPriority: 1},
}

func compareTasks(a, b *muster.Task) int {
	return cmp.Or(cmp.Compare(b.Job, a.Job), cmp.Compare(a.Index, b.Index))
}

func taskCells(t *muster.Task, m *model) []string {
	try := ""
	if t.Attempt > 1 {
		try = strconv.Itoa(t.Attempt)
	}
	return []string{
		t.ID.String(), t.Name, t.Element, t.State.String(), app.TaskProgress(t), try, m.workerName(t.Worker),
		app.Elapsed(t.StartedAt, t.FinishedAt, m.now), app.TaskNote(t),
	}
}

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
	list[muster.Task]

	filter taskFilter
	more   bool
}

func newTasks() *tasksPage {
	return &tasksPage{list: newTaskList(), pacer: pacer{interval: time.Second}}
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

func (p *tasksPage) draw(m *model, width, height int) []string {
	if len(p.rows) == 0 {
		return m.emptyLines(&p.pacer, p.filter.text != "", "no running tasks: a shows waiting ones, too")
	}
	note := ""
	if p.more && len(p.rows) >= maxRows {
		note = fmt.Sprintf("the first %d tasks: open their job to see all", maxRows)
	}
	return p.list.draw(m, width, height, note)
}

func (p *tasksPage) handleKey(m *model, k string) (tea.Cmd, bool) {
	switch {
	case p.move(k, len(p.rows)):
		if p.more && len(p.rows) < maxRows && p.cursor >= len(p.rows)/2 {
			p.stale = true
		}
		return nil, true
	case p.handleSortKey(k):
		p.resetCursor()
		p.forceReload()
		p.arrange()
		return p.load(m), true
	case k == "a":
		p.search(m, p.filter.toggleActive())
		return p.load(m), true
	}
	if t := p.selected(); t != nil {
		return m.taskKey(t, k)
	}
	return nil, false
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
	m.confirm(runAction(m, fmt.Sprintf("task %s: cancelling", id), func(ctx context.Context) (muster.Job, error) {
		return m.api.Cancel(ctx, id.Job, singleSpan(id))
	}), "Cancel task %s (%s), which is %s?", id, t.Name, t.State)
}

// retryTask retries an unsuccessful task.
func (m *model) retryTask(t *muster.Task) tea.Cmd {
	id := t.ID
	return runAction(m, fmt.Sprintf("task %s is queued again", id), func(ctx context.Context) (muster.Job, error) {
		return m.api.Retry(ctx, id.Job, singleSpan(id))
	})
}

func singleSpan(id muster.TaskID) []client.Span { return []client.Span{{First: id.Num, Last: id.Num}} }
