package top

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
)

// header is the summary of the fleet above every page.
type header struct {
	pacer

	fleet *wire.Overview // nil until read
}

func (h *header) load(m *model) tea.Cmd {
	h.interval = 3 * time.Second
	return read(m, &h.pacer, func(ctx context.Context) (wire.Overview, error) {
		return m.api.Overview(ctx, false)
	}, func(m *model, o wire.Overview) { m.head.fleet = &o })
}

func (h *header) draw(m *model, width int, compact bool) []string {
	lines := []string{h.statusLine(m, width)}
	if h.fleet == nil {
		return append(lines, m.paint(term.Dim, "reading …"))
	}
	o := h.fleet
	if compact {
		return append(lines, term.Truncate(strings.Join(h.compactCounts(o), "   "), width))
	}
	half := width / 2
	cells := h.gauges(m, o, half)
	for i := 0; i+1 < len(cells); i += 2 {
		lines = append(lines, cells[i].text+strings.Repeat(" ", max(1, half-cells[i].width))+cells[i+1].text)
	}
	lines = append(lines, term.Truncate(h.countsLine(o), width))
	if note, style := h.attention(m.now); note != "" {
		lines = append(lines, m.paint(style, term.Truncate(term.Sanitize(note), width)))
	}
	return lines
}

// statusLine draws the server and the state of the connection.
func (h *header) statusLine(m *model, width int) string {
	title := "muster " + m.api.URL()
	if m.role != "" {
		title += " as " + term.Sanitize(m.role)
	}
	right, style := "live", term.Green
	if m.loss.Err != nil {
		right, style = m.loss.Status(m.now), term.Red
	}
	title = term.Truncate(title, width-term.Width(right)-1)
	fill := strings.Repeat(" ", max(1, width-term.Width(title)-term.Width(right)))
	return m.paint(term.Bold, title) + fill + m.paint(style, right)
}

// cell is a text with its width on the screen.
type cell struct {
	text  string
	width int
}

// gauges draws the bars, two per line.
func (h *header) gauges(m *model, o *wire.Overview, half int) []cell {
	bar := min(20, max(6, half-30))
	gauge := func(name string, fraction float64, text string) cell {
		text = term.Truncate(fmt.Sprintf(" %4s  %s", term.FormatPercent(fraction), text), max(1, half-bar-6))
		return cell{m.paint(term.Bold, fmt.Sprintf("%-5s", name)) + m.gauge(bar, fraction) + text, 5 + bar + term.Width(text)}
	}
	c := &o.Capacity
	cells := []cell{
		gauge("CPU", ratio(o.Used.CPUs, c.CPUs), fmt.Sprintf("%s/%s reserved", formatDecimal(o.Reserved.CPUs), formatDecimal(c.CPUs))),
		gauge("MEM", ratio(float64(o.Used.Memory), float64(c.Memory)), fmt.Sprintf("%s/%s", o.Used.Memory, c.Memory)),
	}
	if c.GPUs > 0 {
		cells = append(cells,
			gauge("GPU", ratio(o.Used.GPUs, float64(c.GPUs)), fmt.Sprintf("%d/%d reserved", o.Reserved.GPUs, c.GPUs)),
			gauge("VRAM", ratio(float64(o.Used.GPUMemory), float64(c.GPUMemory)), fmt.Sprintf("%s/%s", o.Used.GPUMemory, c.GPUMemory)))
	}
	return cells
}

// compactCounts summarizes the fleet in a few words.
func (h *header) compactCounts(o *wire.Overview) []string {
	parts := []string{
		term.Plural(o.Workers.Total-o.Workers.Gone, "worker"),
		fmt.Sprintf("%s running", formatCount(activeCount(&o.Tasks))), formatCount(o.Tasks[muster.Queued]) + " queued",
		"CPU " + term.FormatPercent(ratio(o.Used.CPUs, o.Capacity.CPUs)),
	}
	if o.Capacity.GPUs > 0 {
		parts = append(parts, "GPU "+term.FormatPercent(ratio(o.Used.GPUs, float64(o.Capacity.GPUs))))
	}
	return parts
}

// countsLine draws the counts of tasks and workers, the power and the cost.
func (h *header) countsLine(o *wire.Overview) string {
	w := &o.Workers
	workers := []string{fmt.Sprintf("Workers %d", w.Total-w.Gone)}
	for _, s := range []struct {
		n    int
		name string
	}{{w.Pending, "pending"}, {w.Paused, "paused"}, {w.Draining, "draining"}, {w.Unreachable, "unreachable"}, {w.Constrained, "constrained"}} {
		if s.n > 0 {
			workers = append(workers, fmt.Sprintf("%d %s", s.n, s.name))
		}
	}
	t := &o.Tasks
	tasks := fmt.Sprintf("Tasks %s running, %s queued", formatCount(activeCount(t)), formatCount(t[muster.Queued]))
	if n := t[muster.Waiting]; n > 0 {
		tasks += ", " + formatCount(n) + " waiting"
	}
	if n := t[muster.Failed] + t[muster.TimedOut]; n > 0 {
		tasks += ", " + formatCount(n) + " failed"
	}
	parts := []string{tasks}
	if o.Rate.Finished >= 0.05 {
		parts = append(parts, formatDecimal(o.Rate.Finished)+"/s")
	}
	if o.Used.Power >= 1 {
		parts = append(parts, formatWatts(o.Used.Power))
	}
	if o.CostPerHour > 0 {
		parts = append(parts, "cost "+strconv.FormatFloat(o.CostPerHour, 'f', 2, 64)+"/h")
	}
	parts = append(parts, strings.Join(workers, ", "))
	return strings.Join(parts, "   ")
}

// attention returns the most important problem.
func (h *header) attention(now time.Time) (string, term.Style) {
	o := h.fleet
	text, style := "", term.Dim
	if len(o.Attention) > 0 {
		text = "! " + o.Attention[0].Message
		if more := o.AttentionTotal - 1; more > 0 {
			text = fmt.Sprintf("! (%d more) %s", more, o.Attention[0].Message)
		}
		switch o.Attention[0].Severity {
		case wire.Critical:
			return text, term.Red
		case wire.Warning:
			return text, term.Yellow
		case wire.Notice: // a waiting task is more important
		}
	}
	if w := o.OldestWaiting; w != nil && now.Sub(w.QueuedAt.Std()) > 10*time.Second {
		text = fmt.Sprintf("%s (%s) has been queued for %s: %s", w.Task, w.Name, term.FormatAge(now.Sub(w.QueuedAt.Std())), app.LocalTimes(w.Summary))
	}
	return text, style
}

// activeCount counts the tasks on workers.
func activeCount(c *muster.Counts) int64 {
	return c[muster.Assigned] + c[muster.Running] + c[muster.Cancelling]
}

func ratio(a, b float64) float64 {
	if b <= 0 {
		return 0
	}
	return a / b
}

// formatDecimal formats a number with at most one decimal.
func formatDecimal(f float64) string {
	if f >= 100 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0")
}

func formatWatts(w float64) string {
	if w >= 1000 {
		return formatDecimal(w/1000) + "kW"
	}
	return strconv.FormatFloat(w, 'f', 0, 64) + "W"
}

// formatCount formats a number in at most five characters: 9999, 12.3k, 1.2M.
func formatCount(n int64) string {
	switch {
	case n < 10_000:
		return strconv.FormatInt(n, 10)
	case n < 999_950:
		return formatDecimal(float64(n)/1e3) + "k"
	default:
		return formatDecimal(float64(n)/1e6) + "M"
	}
}
