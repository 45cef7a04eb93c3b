package top

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/cli/usage"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/sched/explain"
)

// task is the page of one task: where it stands, charts, and the end of its log.
type task struct {
	t      muster.Task
	about  reader // of t
	why    reader // of reason
	used   reader // of series
	told   reader // of points
	reason explain.Explanation
	series client.Series
	follow *follower
	ring   *ring
	points []muster.Point // what the last attempt reported, the oldest first
}

const mostPoints = 200 // of a series

func newTask(m *model, t *muster.Task) *task {
	return &task{
		t: *t, ring: m.followLog(t.ID), follow: m.followJob(t.Job),
		about: reader{every: 3 * time.Second}, why: reader{every: 5 * time.Second}, used: reader{every: 5 * time.Second}, told: reader{every: 5 * time.Second},
	}
}

func (p *task) name() string { return "task " + p.t.ID.String() }

func (p *task) close() {
	p.ring.stop()
	p.follow.stop()
}

func (p *task) hints() []hint {
	return []hint{{"l", "log"}, {"c", "cancel"}, {"r", "retry"}, {"w", "worker"}, {"Esc", "back"}}
}

func (p *task) changed(b live.Batch) { p.about.stale = p.about.stale || b.All }

// news takes the events of the task and lines of its log.
func (p *task) news() bool {
	changed := p.ring.news()
	b := p.follow.take()
	p.about.stale = p.about.stale || b.All
	for i := range b.Events {
		e := &b.Events[i]
		if e.Task == nil || *e.Task != p.t.ID {
			continue
		}
		changed, p.about.stale = true, true
		if err := p.t.State.UnmarshalText([]byte(e.State)); err != nil {
			continue // of a newer server: the read that follows says it
		}
		if d := e.Detail; d != nil {
			if d.Progress != nil {
				p.t.Progress, p.t.Step = d.Progress, d.Step
			}
			if len(d.Metrics) > 0 {
				p.t.Metrics, p.told.stale = d.Metrics, true
			}
		}
	}
	return changed
}

func (p *task) load(m *model) tea.Cmd {
	id := p.t.ID
	cmds := []tea.Cmd{read(m, &p.about, func(ctx context.Context) (muster.Task, error) { return m.api.Task(ctx, id) }, func(_ *model, t muster.Task) {
		if t.State != p.t.State || t.Attempt != p.t.Attempt {
			p.why.stale, p.used.stale, p.told.stale = true, true, true
		}
		p.t = t
	})}
	if p.waits() {
		cmds = append(cmds, read(m, &p.why, func(ctx context.Context) (explain.Explanation, error) { return m.api.Explain(ctx, id) },
			func(_ *model, x explain.Explanation) { p.reason = x }))
	}
	if p.t.Attempt > 0 {
		p.used.every, p.told.every = 5*time.Second, 5*time.Second
		if p.t.State.Final() {
			p.used.every, p.told.every = 0, 0
		}
		cmds = append(cmds, read(m, &p.used, func(ctx context.Context) (client.Series, error) { return m.api.Usage(ctx, id, 0, mostPoints) },
			func(_ *model, s client.Series) { p.series = s }))
		cmds = append(cmds, read(m, &p.told, func(ctx context.Context) (wire.Metrics, error) { return m.api.Metrics(ctx, id, mostPoints) },
			func(_ *model, r wire.Metrics) {
				p.points = nil
				if n := len(r.Attempts); n > 0 {
					p.points = r.Attempts[n-1].Points
				}
			}))
	}
	return tea.Batch(cmds...)
}

// waits says whether the task has not been given to a worker.
func (p *task) waits() bool { return p.t.State == muster.Waiting || p.t.State == muster.Queued }

func (p *task) draw(m *model, width, height int) []string {
	lines := p.facts(m, width)
	charts := p.charts(width)
	room := height - len(lines) - 3 // a line between the parts, and two of the log
	if n := max(0, min(len(charts), room, max(3, height/3))); n > 0 {
		lines = append(lines, charts[:n]...)
	}
	lines = append(lines, m.paint(term.Dim, rule("log", width)))
	return append(lines, p.tail(m, width, height-len(lines))...)
}

// rule is a line with a title.
func rule(title string, width int) string {
	return "── " + title + " " + strings.Repeat("─", max(0, width-len(title)-4))
}

// facts say where the task stands.
func (p *task) facts(m *model, width int) []string {
	t := &p.t
	state := t.State.String()
	what := t.Name
	if t.Element != "" {
		what += " [" + t.Element + "]"
	}
	rest := ""
	if t.Worker != "" {
		rest = " on " + term.Fit(m.workerName(t.Worker), 24)
	}
	if took := frame.Took(t.StartedAt, t.FinishedAt, m.now); took != "" {
		rest += " for " + took
		if t.State.Final() {
			rest = strings.Replace(rest, " for ", " after ", 1)
		}
	}
	if t.Attempt > 1 {
		rest += fmt.Sprintf(", attempt %d", t.Attempt)
	}
	rest = term.Fit(term.Clean(rest), max(10, width/2))
	what = term.Fit(term.Clean(what), max(10, width-len(state)-term.Width(rest)-2))
	lines := []string{m.paint(term.Bold, what) + "  " + m.paint(frame.StateStyle(state), state) + rest}
	add := func(name, text string, style term.Style) {
		if text != "" {
			lines = append(lines, m.paint(term.Dim, fmt.Sprintf("%-9s ", name))+m.paint(style, term.Fit(term.Clean(text), width-10)))
		}
	}
	if t.Progress != nil && !t.State.Final() {
		add("progress", strings.TrimSpace(term.Bar(20, *t.Progress)+" "+term.Percent(*t.Progress)+"  "+frame.Step(t)), term.Plain)
	} else {
		add("step", frame.Step(t), term.Plain)
	}
	if t.Reason != muster.NoReason || t.Message != "" {
		style := term.Plain
		if t.State == muster.Failed || t.State == muster.TimedOut {
			style = term.Red
		}
		text := string(t.Reason)
		if note := frame.TaskNote(t); note != text {
			text = strings.TrimPrefix(text+": "+note, ": ")
		}
		add("reason", text, style)
	}
	if p.waits() {
		add("why", p.reason.Summary, term.Yellow)
		add("to help", p.reason.Nearest, term.Plain)
		if p.reason.Position > 0 {
			add("in line", fmt.Sprintf("number %d, %d ahead", p.reason.Position, p.reason.Ahead), term.Plain)
		}
	}
	add("result", string(t.Result), term.Plain)
	if n := len(t.Artifacts); n > 0 {
		names := make([]string, n)
		for i := range t.Artifacts {
			names[i] = t.Artifacts[i].Name
		}
		add("artifacts", fmt.Sprintf("%d: %s", n, strings.Join(names, ", ")), term.Plain)
	}
	return lines
}

// charts are the metrics that the last attempt reported, and what it used.
func (p *task) charts(width int) []string {
	wide := max(10, min(60, width-34))
	draw := func(name, now, line, peak string) string {
		text := fmt.Sprintf("%-11s%9s  ", term.Fit(term.Clean(name), 10), term.Fit(now, 9)) + pad(line, wide)
		if peak != "" {
			text += "  " + peak
		}
		return strings.TrimRight(term.Fit(text, width), " ")
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(p.t.Metrics)) {
		line, top := p.spark(name, wide)
		lines = append(lines, draw(name, figure(p.t.Metrics[name]), line, top))
	}
	for _, s := range usage.Sparks(p.series, p.t, wide) {
		if strings.Trim(s.Line, "▁ ") == "" && strings.Trim(s.Peak, "0.B%") == "" {
			continue // it did nothing of that sort
		}
		peak := ""
		if s.Peak != "" {
			peak = "≤ " + s.Peak
		}
		lines = append(lines, draw(s.Name, s.Now, s.Line, peak))
	}
	return lines
}

// spark draws a metric from its least to its greatest value, and says which they are.
func (p *task) spark(name string, width int) (line, span string) {
	var values []float64
	for i := range p.points {
		if v, ok := p.points[i].Metrics[name]; ok && !math.IsInf(v, 0) && !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	if len(values) < 2 {
		return "", ""
	}
	values = squeeze(values, width)
	least, most := slices.Min(values), slices.Max(values)
	shares := make([]float64, len(values))
	for i, v := range values {
		shares[i] = v - least
	}
	return term.Spark(shares, most-least), figure(least) + "–" + figure(most)
}

// squeeze makes at most width means of values, in order.
func squeeze(values []float64, width int) []float64 {
	if len(values) <= width {
		return values
	}
	means := make([]float64, width)
	for i := range means {
		part := values[i*len(values)/width : (i+1)*len(values)/width]
		for _, v := range part {
			means[i] += v / float64(len(part))
		}
	}
	return means
}

func figure(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// tail is the end of the log.
func (p *task) tail(m *model, width, height int) []string {
	lines, state := p.ring.view()
	if height < 1 {
		return nil
	}
	if len(lines) == 0 {
		text := "no output yet"
		if state == "end" {
			text = "the task printed nothing"
		}
		return []string{m.paint(term.Dim, text)}
	}
	var view log
	out := make([]string, 0, height)
	for i := max(0, len(lines)-height); i < len(lines); i++ {
		out = append(out, view.one(m, &lines[i], width)...)
	}
	return out
}

func (p *task) key(m *model, k string) (tea.Cmd, bool) {
	if k == "enter" {
		return m.open(newLog(p.t.ID)), true
	}
	return m.taskKey(&p.t, k)
}
