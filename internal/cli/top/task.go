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
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/cli/usage"
	"github.com/muster-dev/muster/internal/client"
)

// taskPage shows one task: its state, charts, and the end of its log.
type taskPage struct {
	t            muster.Task
	taskPacer    pacer // of t
	explainPacer pacer // of explanation
	usagePacer   pacer // of series
	metricsPacer pacer // of points
	explanation  muster.Explanation
	series       client.Series
	follower     *jobFollower
	log          *logPage
	points       []muster.Point // reported metrics of the last attempt, the oldest first
}

const maxPoints = 200 // of a series

func newTask(m *model, t *muster.Task) *taskPage {
	return &taskPage{
		t: *t, log: newLog(t.ID), follower: m.followJob(t.Job),
		taskPacer: pacer{interval: 3 * time.Second}, explainPacer: pacer{interval: 5 * time.Second}, usagePacer: pacer{interval: 5 * time.Second}, metricsPacer: pacer{interval: 5 * time.Second},
	}
}

func (p *taskPage) name() string { return "task " + p.t.ID.String() }

func (p *taskPage) close() { p.follower.stop() }

func (p *taskPage) hints() []hint {
	return []hint{{"l", "log"}, {"c", "cancel"}, {"r", "retry"}, {"w", "worker"}, {"Esc", "back"}}
}

func (p *taskPage) invalidate(b live.Batch) { p.taskPacer.stale = p.taskPacer.stale || b.Resync }

// poll applies the events of the task.
func (p *taskPage) poll() bool {
	changed := false
	b := p.follower.feed.Pop()
	p.taskPacer.stale = p.taskPacer.stale || b.Resync
	for i := range b.Events {
		e := &b.Events[i]
		if e.Task == nil || *e.Task != p.t.ID {
			continue
		}
		changed, p.taskPacer.stale = true, true
		if err := p.t.State.UnmarshalText([]byte(e.State)); err != nil {
			continue // a state of a newer server: the next read reports it
		}
		if d := e.Detail; d != nil {
			if d.Progress != nil {
				p.t.Progress, p.t.Step = d.Progress, d.Step
			}
			if len(d.Metrics) > 0 {
				p.t.Metrics, p.metricsPacer.stale = d.Metrics, true
			}
		}
	}
	return changed
}

func (p *taskPage) load(m *model) tea.Cmd {
	id := p.t.ID
	cmds := []tea.Cmd{read(m, &p.taskPacer, func(ctx context.Context) (muster.Task, error) { return m.api.Task(ctx, id) }, func(_ *model, t muster.Task) {
		if t.State != p.t.State || t.Attempt != p.t.Attempt {
			p.explainPacer.stale, p.usagePacer.stale, p.metricsPacer.stale = true, true, true
		}
		p.t = t
	})}
	if p.hasLog() {
		cmds = append(cmds, p.log.load(m))
	}
	if p.isWaiting() {
		cmds = append(cmds, read(m, &p.explainPacer, func(ctx context.Context) (muster.Explanation, error) { return m.api.Explain(ctx, id) },
			func(_ *model, x muster.Explanation) { p.explanation = x }))
	}
	if p.t.Attempt > 0 {
		p.usagePacer.interval, p.metricsPacer.interval = 5*time.Second, 5*time.Second
		if p.t.State.Final() {
			p.usagePacer.interval, p.metricsPacer.interval = 0, 0
		}
		cmds = append(cmds, read(m, &p.usagePacer, func(ctx context.Context) (client.Series, error) { return m.api.Usage(ctx, id, 0, maxPoints) },
			func(_ *model, s client.Series) { p.series = s }))
		cmds = append(cmds, read(m, &p.metricsPacer, func(ctx context.Context) (wire.Metrics, error) { return m.api.Metrics(ctx, id, maxPoints) },
			func(_ *model, r wire.Metrics) {
				p.points = nil
				if n := len(r.Attempts); n > 0 {
					p.points = r.Attempts[n-1].Points
				}
			}))
	}
	return tea.Batch(cmds...)
}

// hasLog reports whether an attempt has begun, or none will.
func (p *taskPage) hasLog() bool { return p.t.Attempt > 0 || p.t.State.Final() }

// isWaiting reports whether the task is not assigned to a worker.
func (p *taskPage) isWaiting() bool { return p.t.State == muster.Waiting || p.t.State == muster.Queued }

func (p *taskPage) draw(m *model, width, height int) []string {
	lines := p.summaryLines(m, width)
	charts := p.charts(width)
	available := height - len(lines) - 3 // without the rule and two lines of the log
	if n := max(0, min(len(charts), available, max(3, height/3))); n > 0 {
		lines = append(lines, charts[:n]...)
	}
	lines = append(lines, m.paint(term.Dim, titleRule("log", width)))
	return append(lines, p.tail(m, width, height-len(lines))...)
}

// titleRule draws a horizontal rule with a title.
func titleRule(title string, width int) string {
	return "── " + title + " " + strings.Repeat("─", max(0, width-len(title)-4))
}

// summaryLines draws the state of the task.
func (p *taskPage) summaryLines(m *model, width int) []string {
	t := &p.t
	state := t.State.String()
	title := t.Name
	if t.Element != "" {
		title += " [" + t.Element + "]"
	}
	suffix := ""
	if t.Worker != "" {
		suffix = " on " + term.Truncate(m.workerName(t.Worker), 24)
	}
	if took := app.Elapsed(t.StartedAt, t.FinishedAt, m.now); took != "" {
		suffix += " for " + took
		if t.State.Final() {
			suffix = strings.Replace(suffix, " for ", " after ", 1)
		}
	}
	if t.Attempt > 1 {
		suffix += fmt.Sprintf(", attempt %d", t.Attempt)
	}
	suffix = term.Truncate(term.Sanitize(suffix), max(10, width/2))
	title = term.Truncate(term.Sanitize(title), max(10, width-len(state)-term.Width(suffix)-2))
	lines := []string{m.paint(term.Bold, title) + "  " + m.paint(app.StateStyle(state), state) + suffix}
	add := func(name, text string, style term.Style) {
		if text != "" {
			lines = append(lines, m.paint(term.Dim, fmt.Sprintf("%-9s ", name))+m.paint(style, term.Truncate(term.Sanitize(text), width-10)))
		}
	}
	if t.Progress != nil && !t.State.Final() {
		add("progress", strings.TrimSpace(term.ProgressBar(20, *t.Progress)+" "+term.FormatPercent(*t.Progress)+"  "+app.TaskStep(t)), term.Plain)
	} else {
		add("step", app.TaskStep(t), term.Plain)
	}
	if t.Reason != muster.NoReason || t.Message != "" {
		style := term.Plain
		if t.State == muster.Failed || t.State == muster.TimedOut {
			style = term.Red
		}
		text := string(t.Reason)
		if note := app.TaskNote(t); note != text {
			text = strings.TrimPrefix(text+": "+note, ": ")
		}
		add("reason", text, style)
	}
	if p.isWaiting() {
		add("why", app.LocalTimes(p.explanation.Summary), term.Yellow)
		add("to help", app.LocalTimes(p.explanation.Nearest), term.Plain)
		if p.explanation.Position > 0 {
			add("in line", fmt.Sprintf("number %d, %d ahead", p.explanation.Position, p.explanation.Ahead), term.Plain)
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

// charts draws the metrics and the usage of the last attempt.
func (p *taskPage) charts(width int) []string {
	wide := max(10, min(60, width-34))
	draw := func(name, now, line, peak string) string {
		text := fmt.Sprintf("%-11s%9s  ", term.Truncate(term.Sanitize(name), 10), term.Truncate(now, 9)) + pad(line, wide)
		if peak != "" {
			text += "  " + peak
		}
		return strings.TrimRight(term.Truncate(text, width), " ")
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(p.t.Metrics)) {
		line, top := p.spark(name, wide)
		lines = append(lines, draw(name, formatFloat(p.t.Metrics[name]), line, top))
	}
	for _, s := range usage.Sparklines(p.series, p.t, wide) {
		if strings.Trim(s.Line, "▁ ") == "" && strings.Trim(s.Peak, "0.B%") == "" {
			continue // always 0
		}
		peak := ""
		if s.Peak != "" {
			peak = "≤ " + s.Peak
		}
		lines = append(lines, draw(s.Name, s.Now, s.Line, peak))
	}
	return lines
}

// spark draws a metric from its minimum to its maximum, and returns them in span.
func (p *taskPage) spark(name string, width int) (line, span string) {
	var values []float64
	for i := range p.points {
		if v, ok := p.points[i].Metrics[name]; ok && !math.IsInf(v, 0) && !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	if len(values) < 2 {
		return "", ""
	}
	values = downsample(values, width)
	lo, hi := slices.Min(values), slices.Max(values)
	offsets := make([]float64, len(values))
	for i, v := range values {
		offsets[i] = v - lo
	}
	return term.Sparkline(offsets, hi-lo), formatFloat(lo) + "–" + formatFloat(hi)
}

// downsample reduces values to at most width means.
func downsample(values []float64, width int) []float64 {
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

func formatFloat(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// tail draws the end of the log.
func (p *taskPage) tail(m *model, width, height int) []string {
	if height < 1 {
		return nil
	}
	lines := p.log.segment.lines
	if len(lines) == 0 {
		text := "no output yet"
		if p.hasLog() {
			text = p.log.emptyText()
		}
		return []string{m.paint(term.Dim, text)}
	}
	out := make([]string, 0, height)
	for i := max(0, len(lines)-height); i < len(lines); i++ {
		out = append(out, p.log.renderLine(m, &lines[i], width)...)
	}
	return out
}

func (p *taskPage) handleKey(m *model, k string) (tea.Cmd, bool) {
	if k == "enter" {
		return m.push(newLog(p.t.ID)), true
	}
	return m.taskKey(&p.t, k)
}
