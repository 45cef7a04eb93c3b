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
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

// jobsPage is the tab with all jobs: active first, then finished, newest first.
type jobsPage struct {
	pacer
	list[muster.Job]

	active    bool // without finished jobs
	filter    string
	query     client.JobQuery // of filter
	states    []muster.JobState
	limit     int  // rows to read; grows as the user scrolls down
	more      bool // there are more jobs than rows
	jumpToEnd bool // move the cursor to the last row once all are read
}

func newJobs() *jobsPage {
	return &jobsPage{
		pacer: pacer{interval: 2 * time.Second}, limit: 100,
		list: list[muster.Job]{columns: jobColumns, cells: jobCells, rowID: func(j *muster.Job) string { return j.ID.String() }, tie: jobColumns[0].compare, by: -1},
	}
}

func (p *jobsPage) name() string { return "Jobs" }
func (p *jobsPage) close()       {}

func (p *jobsPage) hints() []hint {
	return []hint{{"Enter", "tasks"}, {"c", "cancel"}, {"r", "retry"}, {"/", "filter"}, {"s", "sort"}, {"a", "active only"}}
}

func (p *jobsPage) invalidate(b live.Batch) {
	p.stale = p.stale || b.Resync || slices.ContainsFunc(b.Events, func(e muster.Event) bool { return e.Type == muster.EventJob })
}

func (p *jobsPage) load(m *model) tea.Cmd {
	q, limit := p.query, p.limit
	if p.by >= 0 {
		limit = maxRows // sorting needs all rows
	}
	q.Page = min(limit+1, maxRows)
	var active, ended []muster.JobState
	for _, s := range muster.JobStates {
		switch {
		case len(p.states) > 0 && !slices.Contains(p.states, s):
		case !s.Final():
			active = append(active, s)
		case !p.active:
			ended = append(ended, s)
		}
	}
	return read(m, &p.pacer, func(ctx context.Context) ([]muster.Job, error) {
		return remote.Collect(remote.Jobs(ctx, m.api, q, active, ended), limit+1)
	}, func(_ *model, rows []muster.Job) {
		p.more = len(rows) > limit
		p.rows = rows[:min(limit, len(rows))]
		p.arrange()
		if p.jumpToEnd {
			p.jumpToEnd, p.cursor = false, len(p.rows)-1
			p.clamp(len(p.rows))
			p.rememberRow()
		}
	})
}

var jobColumns = []column[muster.Job]{
	{title: "JOB", width: 6, alignRight: true, compare: descending(func(j *muster.Job) muster.JobID { return j.ID })},
	{title: "NAME", width: 20, flex: 1, compare: ascending(func(j *muster.Job) string { return j.Name })},
	{title: "STATE", width: 9, style: app.StateStyle, compare: ascending(func(j *muster.Job) int { return slices.Index(muster.JobStates, j.State) })},
	{title: "PROGRESS", width: 8, dropPriority: 3, compare: descending(app.JobFraction)},
	{title: "TASKS", width: 11, alignRight: true, compare: descending(func(j *muster.Job) int64 { return j.Counts.Total() })},
	{
		title: "FAILED", width: 6, alignRight: true, style: func(string) term.Style { return term.Red },
		compare: descending(func(j *muster.Job) int64 { return failures(&j.Counts) }),
	},
	{
		title: "TOOK", width: 6, alignRight: true, dropPriority: 2,
		compare: descending(func(j *muster.Job) time.Duration { return runTime(j.StartedAt, j.FinishedAt) }),
	},
	{title: "AGE", width: 4, alignRight: true, compare: descending(func(j *muster.Job) muster.Time { return j.CreatedAt })},
	{title: "PRIO", width: 4, alignRight: true, dropPriority: 4, compare: descending(func(j *muster.Job) int { return j.Priority })},
	{title: "PROJECT", width: 10, dropPriority: 5, compare: ascending(func(j *muster.Job) string { return j.Project })},
	{title: "OWNER", width: 14, dropPriority: 6, compare: ascending(func(j *muster.Job) string { return cmp.Or(j.OwnerName, j.Owner) })},
}

func failures(c *muster.Counts) int64 { return c[muster.Failed] + c[muster.TimedOut] }

// runTime returns a duration to sort by; unfinished ones are longest.
func runTime(from, to muster.Time) time.Duration {
	switch {
	case from == 0:
		return -1
	case to == 0:
		return time.Duration(1<<62) - time.Duration(from)
	default:
		return to.Sub(from).Std()
	}
}

func (p *jobsPage) draw(m *model, width, height int) []string {
	if len(p.rows) == 0 {
		return m.emptyLines(&p.pacer, p.filter != "" || p.active, "no jobs: submit one with muster run or muster submit")
	}
	note := ""
	if p.more && len(p.rows) >= maxRows {
		note = fmt.Sprintf("the newest %d jobs: use / to find others", maxRows)
	}
	return p.list.draw(m, width, height, note)
}

// emptyLines draws the reason why a list has no rows.
func (m *model) emptyLines(r *pacer, filtered bool, text string) []string {
	switch {
	case !r.loaded:
		text = "reading …"
	case filtered:
		text = "no matches: Esc removes the filter, a shows all"
	}
	return []string{"", "  " + m.paint(term.Dim, text)}
}

func jobCells(j *muster.Job, m *model) []string {
	failed := ""
	if n := failures(&j.Counts); n > 0 {
		failed = formatCount(n)
	}
	total := j.Counts.Total()
	return []string{
		j.ID.String(), j.Name, app.JobStateText(j), term.ProgressBar(8, app.JobFraction(j)),
		formatCount(j.Counts.Finished()) + "/" + formatCount(total), failed,
		app.Elapsed(j.StartedAt, j.FinishedAt, m.now), app.Age(j.CreatedAt, m.now), strconv.Itoa(j.Priority), j.Project, cmp.Or(j.OwnerName, j.Owner),
	}
}

func (p *jobsPage) handleKey(m *model, k string) (tea.Cmd, bool) {
	switch {
	case p.move(k, len(p.rows)):
		if p.more && p.cursor >= len(p.rows)-p.height && p.limit < maxRows {
			p.limit = min(maxRows, p.limit*2)
			if k == "G" || k == "end" {
				p.limit, p.jumpToEnd = maxRows, true
			}
			p.stale, p.lastRead = true, time.Time{}
			return p.load(m), true
		}
		return nil, true
	case p.handleSortKey(k):
		p.resetCursor()
		p.forceReload()
		p.arrange()
		return p.load(m), true
	case k == "a":
		p.active = !p.active
		p.forceReload()
		if p.active {
			m.notify("active jobs only")
		} else {
			m.notify("all jobs")
		}
		return p.load(m), true
	}
	job := p.selected()
	if job == nil {
		return nil, false
	}
	switch k {
	case "enter":
		return m.push(newJob(*job)), true
	case "l":
		if job.Counts.Total() > 1 {
			return m.push(newJob(*job)), true
		}
		return m.push(newLog(muster.TaskID{Job: job.ID})), true
	case "c", "f9", "delete":
		m.cancelJob(job)
		return nil, true
	case "r":
		return m.retryJob(job.ID), true
	}
	return nil, false
}

func (p *jobsPage) prompt() (label, text string) { return "filter", p.filter }

// search sets the filter: words of the name, states, project=NAME and LABEL=VALUE.
func (p *jobsPage) search(m *model, text string) {
	q := client.JobQuery{Labels: map[string]string{}}
	var states []muster.JobState
	var name []string
	for word := range strings.FieldsSeq(text) {
		key, value, pair := strings.Cut(word, "=")
		switch {
		case pair && key == "project":
			q.Project = value
		case pair && (value == "" || key == ""):
			m.notifyError(muster.Errorf(muster.Invalid, "invalid filter %q: use words of the name, states, project=NAME or LABEL=VALUE", word))
			return
		case pair:
			q.Labels[key] = value
		case slices.Contains(muster.JobStates, muster.JobState(word)):
			states = append(states, muster.JobState(word))
		default:
			name = append(name, word)
		}
	}
	q.Name = strings.Join(name, " ")
	p.filter, p.query, p.states = text, q, states
	p.resetCursor()
	p.limit = 100
	p.forceReload()
}

// cancelJob cancels a job after confirmation.
func (m *model) cancelJob(j *muster.Job) {
	if j.State.Final() {
		m.notifyError(muster.Errorf(muster.Conflict, "job %s is already %s", j.ID, j.State))
		return
	}
	unfinished := j.Counts.Total() - j.Counts.Finished()
	id := j.ID
	m.confirm(runAction(m, fmt.Sprintf("job %s: cancelling", id), func(ctx context.Context) (muster.Job, error) {
		return m.api.Cancel(ctx, id, nil)
	}), "Cancel job %s (%s), %s unfinished?", id, j.Name, pluralTasks(unfinished))
}

func pluralTasks(n int64) string {
	if n == 1 {
		return "1 task"
	}
	return formatCount(n) + " tasks"
}

// retryJob retries the unsuccessful tasks of a job.
func (m *model) retryJob(id muster.JobID) tea.Cmd {
	return runAction(m, fmt.Sprintf("job %s: unsuccessful tasks are queued again", id), func(ctx context.Context) (muster.Job, error) {
		return m.api.Retry(ctx, id, nil)
	})
}
