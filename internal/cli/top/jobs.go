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
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/cli/watch"
	"github.com/muster-dev/muster/internal/client"
)

// jobs is the tab with all jobs: active first, then finished, newest first.
type jobs struct {
	reader
	list
	order

	active bool // finished jobs are left out
	filter string
	query  client.JobQuery // what filter says
	states []muster.JobState
	want   int // rows to read; grows as the user scrolls down
	rows   []muster.Job
	more   bool // there are more than rows
	end    bool // the cursor goes to the last row once all are read
}

func newJobs() *jobs {
	return &jobs{order: order{by: -1}, reader: reader{every: 2 * time.Second}, want: 100}
}

func (p *jobs) name() string { return "Jobs" }
func (p *jobs) close()       {}

func (p *jobs) hints() []hint {
	return []hint{{"Enter", "tasks"}, {"c", "cancel"}, {"r", "retry"}, {"/", "filter"}, {"s", "sort"}, {"a", "active only"}}
}

func (p *jobs) changed(b live.Batch) {
	p.stale = p.stale || b.All || slices.ContainsFunc(b.Events, func(e muster.Event) bool { return e.Type == muster.EventJob })
}

func (p *jobs) load(m *model) tea.Cmd {
	q, want := p.query, p.want
	if p.by >= 0 {
		want = listMax // what is sorted must be here
	}
	q.Page = min(want+1, listMax)
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
	return read(m, &p.reader, func(ctx context.Context) (rows []muster.Job, err error) {
		for j, err := range watch.First(remote.Jobs(ctx, m.api, q, active, ended), want+1) {
			if err != nil {
				return nil, err
			}
			rows = append(rows, j)
		}
		return rows, nil
	}, func(_ *model, rows []muster.Job) {
		p.more = len(rows) > want
		p.rows = rows[:min(want, len(rows))]
		p.arrange()
		if p.end {
			p.end, p.sel = false, len(p.rows)-1
			p.clamp(len(p.rows))
			p.follow()
		}
	})
}

// arrange sorts the rows, and keeps the cursor where it is.
func (p *jobs) arrange() {
	if by := p.by; by >= 0 {
		slices.SortStableFunc(p.rows, func(a, b muster.Job) int {
			c := jobOrder[by](&a, &b)
			if p.reverse {
				c = -c
			}
			return cmp.Or(c, cmp.Compare(b.ID, a.ID))
		})
	}
	ids := make([]string, len(p.rows))
	for i := range p.rows {
		ids[i] = p.rows[i].ID.String()
	}
	p.hold(ids)
}

var jobColumns = []column{
	{title: "JOB", width: 6, right: true, sort: true},
	{title: "NAME", width: 20, flex: 1, sort: true},
	{title: "STATE", width: 9, style: frame.StateStyle, sort: true},
	{title: "PROGRESS", width: 8, drop: 3, sort: true},
	{title: "TASKS", width: 11, right: true, sort: true},
	{title: "FAILED", width: 6, right: true, style: func(string) term.Style { return term.Red }, sort: true},
	{title: "TOOK", width: 6, right: true, drop: 2, sort: true},
	{title: "AGE", width: 4, right: true, sort: true},
	{title: "PRIO", width: 4, right: true, drop: 4, sort: true},
	{title: "PROJECT", width: 10, drop: 5, sort: true},
	{title: "OWNER", width: 14, drop: 6, sort: true},
}

// jobOrder compares jobs as the columns do: what matters most first.
var jobOrder = []func(a, b *muster.Job) int{
	func(a, b *muster.Job) int { return cmp.Compare(b.ID, a.ID) },
	func(a, b *muster.Job) int { return cmp.Compare(a.Name, b.Name) },
	func(a, b *muster.Job) int {
		return cmp.Compare(slices.Index(muster.JobStates, a.State), slices.Index(muster.JobStates, b.State))
	},
	func(a, b *muster.Job) int { return cmp.Compare(frame.JobShare(b), frame.JobShare(a)) },
	func(a, b *muster.Job) int { return cmp.Compare(b.Counts.Total(), a.Counts.Total()) },
	func(a, b *muster.Job) int { return cmp.Compare(failures(&b.Counts), failures(&a.Counts)) },
	func(a, b *muster.Job) int {
		return cmp.Compare(length(b.StartedAt, b.FinishedAt), length(a.StartedAt, a.FinishedAt))
	},
	func(a, b *muster.Job) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) },
	func(a, b *muster.Job) int { return cmp.Compare(b.Priority, a.Priority) },
	func(a, b *muster.Job) int { return cmp.Compare(a.Project, b.Project) },
	func(a, b *muster.Job) int {
		return cmp.Compare(cmp.Or(a.OwnerName, a.Owner), cmp.Or(b.OwnerName, b.Owner))
	},
}

func failures(c *muster.Counts) int64 { return c[muster.Failed] + c[muster.TimedOut] }

// length is how long something took; what has not ended yet took longest.
func length(from, to muster.Time) time.Duration {
	switch {
	case from == 0:
		return -1
	case to == 0:
		return time.Duration(1<<62) - time.Duration(from)
	default:
		return to.Sub(from).Std()
	}
}

func (p *jobs) draw(m *model, width, height int) []string {
	if len(p.rows) == 0 {
		return m.empty(&p.reader, p.filter != "" || p.active, "no jobs: submit one with muster run or muster submit")
	}
	note := ""
	if p.more && len(p.rows) >= listMax {
		note = fmt.Sprintf("the newest %d jobs: press / to find others", listMax)
	}
	p.fit(height, len(p.rows), note)
	rows := visible(&p.list, p.rows, func(j *muster.Job) []string { return jobCells(j, m.now) })
	return m.table(jobColumns, p.order, rows, p.sel-p.top, width, note)
}

// empty says why a list has no rows.
func (m *model) empty(r *reader, filtered bool, text string) []string {
	switch {
	case !r.loaded:
		text = "reading …"
	case filtered:
		text = "nothing matches: Esc removes the filter, a shows all"
	}
	return []string{"", "  " + m.paint(term.Dim, text)}
}

func jobCells(j *muster.Job, now time.Time) []string {
	failed := ""
	if n := failures(&j.Counts); n > 0 {
		failed = count(n)
	}
	total := j.Counts.Total()
	return []string{
		j.ID.String(), j.Name, string(j.State), term.Bar(8, frame.JobShare(j)),
		count(j.Counts.Finished()) + "/" + count(total), failed,
		frame.Took(j.StartedAt, j.FinishedAt, now), frame.Age(j.CreatedAt, now), strconv.Itoa(j.Priority), j.Project, cmp.Or(j.OwnerName, j.Owner),
	}
}

func (p *jobs) key(m *model, k string) (tea.Cmd, bool) {
	switch {
	case p.move(k, len(p.rows)):
		p.follow()
		if p.more && p.sel >= len(p.rows)-p.height && p.want < listMax {
			p.want = min(listMax, p.want*2)
			if k == "G" || k == "end" {
				p.want, p.end = listMax, true
			}
			p.stale, p.last = true, time.Time{}
			return p.load(m), true
		}
		return nil, true
	case p.sortKey(k, jobColumns):
		p.first()
		p.again()
		p.arrange()
		return p.load(m), true
	case k == "a":
		p.active = !p.active
		p.again()
		if p.active {
			m.tell("active jobs only")
		} else {
			m.tell("all jobs")
		}
		return p.load(m), true
	}
	if p.sel >= len(p.rows) {
		return nil, false
	}
	job := p.rows[p.sel]
	switch k {
	case "enter":
		return m.open(newJob(job)), true
	case "l":
		if job.Counts.Total() > 1 {
			return m.open(newJob(job)), true
		}
		return m.open(newLog(muster.TaskID{Job: job.ID})), true
	case "c", "f9", "delete":
		m.cancelJob(&job)
		return nil, true
	case "r":
		return m.retryJob(job.ID), true
	}
	return nil, false
}

// follow remembers the row on which the cursor is.
func (p *jobs) follow() {
	if p.sel < len(p.rows) {
		p.id = p.rows[p.sel].ID.String()
	}
}

func (p *jobs) prompt() (label, text string) { return "filter", p.filter }

// search takes a filter: words of the name, states, project=NAME and label NAME=VALUE.
func (p *jobs) search(m *model, text string) {
	q := client.JobQuery{Labels: map[string]string{}}
	var states []muster.JobState
	var name []string
	for word := range strings.FieldsSeq(text) {
		key, value, pair := strings.Cut(word, "=")
		switch {
		case pair && key == "project":
			q.Project = value
		case pair && (value == "" || key == ""):
			m.fail(muster.Errorf(muster.Invalid, "%q is not a filter: write words of the name, states, project=NAME or LABEL=VALUE", word))
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
	p.first()
	p.want = 100
	p.again()
}

// cancelJob asks whether to cancel a job.
func (m *model) cancelJob(j *muster.Job) {
	if j.State.Final() {
		m.fail(muster.Errorf(muster.Conflict, "job %s is already %s", j.ID, j.State))
		return
	}
	left := j.Counts.Total() - j.Counts.Finished()
	id := j.ID
	m.confirm(m.act(fmt.Sprintf("job %s: cancelling", id), func(ctx context.Context) error {
		_, err := m.api.Cancel(ctx, id, nil)
		return err
	}), "Cancel job %s (%s), %s not finished?", id, j.Name, tasksOf(left))
}

func tasksOf(n int64) string {
	if n == 1 {
		return "1 task"
	}
	return count(n) + " tasks"
}

// retryJob runs what did not succeed of a job again.
func (m *model) retryJob(id muster.JobID) tea.Cmd {
	return m.act(fmt.Sprintf("job %s: tasks that did not succeed are queued again", id), func(ctx context.Context) error {
		_, err := m.api.Retry(ctx, id, nil)
		return err
	})
}
