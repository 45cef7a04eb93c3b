package top

import (
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/muster-dev/muster/internal/cli/term"
)

// View implements tea.Model. It draws only after Update has cleared the frame: results of reads are
// drawn at most four times a second.
func (m *model) View() tea.View {
	if m.frame == "" {
		m.dirty, m.drawnAt = false, m.now.Unix()
		lines := m.lines()
		for i := range lines {
			lines[i] = m.screen.Render(strings.ReplaceAll(lines[i], "\n", " "))
		}
		m.frame = strings.Join(lines, "\n")
	}
	v := tea.NewView(m.frame)
	v.AltScreen = true
	v.WindowTitle = "muster top"
	return v
}

// lines draws the screen.
func (m *model) lines() []string {
	if m.width < minWidth || m.height < minHeight {
		return []string{
			term.Truncate(fmt.Sprintf("This terminal has %d×%d characters.", m.width, m.height), m.width),
			term.Truncate(fmt.Sprintf("muster top requires %d×%d.", minWidth, minHeight), m.width),
		}
	}
	lines := m.head.draw(m, m.width, m.height < 20)
	lines = append(lines, m.tabBar())
	bodyHeight := m.height - len(lines) - 1
	var body []string
	if m.help {
		body = m.helpLines(bodyHeight)
	} else {
		body = m.current().draw(m, m.width, bodyHeight)
	}
	body = body[:min(len(body), bodyHeight)]
	lines = slices.Concat(lines, body, make([]string, bodyHeight-len(body)))
	return append(lines, m.footer())
}

// tabBar draws the tabs, or the path to the open page, and the filter.
func (m *model) tabBar() string {
	var b strings.Builder
	used := 0
	add := func(style func(string) string, text string) {
		if used += term.Width(text); used <= m.width {
			b.WriteString(style(text))
		}
	}
	plain := func(s string) string { return s }
	for i, p := range m.tabs {
		switch text := fmt.Sprintf(" %d %s ", i+1, p.name()); {
		case i == m.tab:
			add(m.reverse, text)
		case len(m.stack) == 0: // else there is no room for both
			add(plain, text)
		}
	}
	for _, p := range m.stack {
		add(plain, " › "+term.Truncate(term.Sanitize(p.name()), 24))
	}
	if s, ok := m.current().(searcher); ok {
		if label, text := s.prompt(); text != "" {
			add(plain, " │ ")
			add(func(s string) string { return m.paint(term.Yellow, s) }, term.Truncate(label+": "+term.Sanitize(text), max(8, m.width-used)))
		}
	}
	return b.String()
}

// footer draws the last line: a question, a prompt, a message, or the keys of the page.
func (m *model) footer() string {
	switch {
	case m.input != nil:
		return m.input.draw(m.reverse, m.width)
	case m.question != nil:
		const choice = " [y/n] "
		return m.paint(term.Bold, term.Truncate(term.Sanitize(m.question.text), m.width-len(choice))+choice)
	case m.notice.text != "":
		style := term.Green
		text := term.Sanitize(m.notice.text)
		if m.notice.isError {
			style, text = term.Red, "error: "+text
		}
		return m.paint(style, term.Truncate(text, m.width))
	}
	last := []hint{{"?", "help"}, {"q", "quit"}}
	remaining := m.width
	for _, h := range last {
		remaining -= h.width()
	}
	var b strings.Builder
	for _, h := range append(m.current().hints(), last...) {
		if h != last[0] && h != last[1] {
			if h.width() > remaining {
				continue
			}
			remaining -= h.width()
		}
		b.WriteString(m.paint(term.Bold, h.key) + " " + m.paint(term.Dim, h.action) + "  ")
	}
	return strings.TrimRight(b.String(), " ")
}

// width returns the width of a hint in the last line.
func (h hint) width() int { return term.Width(h.key) + term.Width(h.action) + 3 }

var keyHelp = []hint{
	{"1 2 3 4", "jobs, tasks, workers, GPUs; also Tab and ← →"},
	{"↑ ↓ j k", "move; PgUp PgDn by a page; g G to the first and last row"},
	{"Enter", "open: a job's tasks, a task, its log; a worker"},
	{"Esc", "remove the filter, then go back"},
	{"/", "filter a list; search in a log, n repeats, N in the other direction"},
	{"s S", "sort by the next column; reverse the order"},
	{"a", "jobs, tasks: all or active ones only"},
	{"l", "log of a task; f follows its end, w wraps lines"},
	{"c", "cancel a job or task (asks)"},
	{"r", "retry what failed of a job, or a task"},
	{"d p u", "worker: drain (asks), pause, resume"},
	{"H", "worker, GPU: check quarantined GPUs again"},
	{"q", "quit; Ctrl-C as well"},
}

func (m *model) helpLines(height int) []string {
	lines := []string{m.paint(term.Bold, "Keys") + m.paint(term.Dim, "  (any key closes this)")}
	for _, h := range keyHelp {
		lines = append(lines, term.Truncate(fmt.Sprintf("  %-8s %s", h.key, h.action), m.width))
	}
	return lines[:min(len(lines), height)]
}

// gauge draws a fraction of 0 to 1 as a bar of width columns.
func (m *model) gauge(width int, fraction float64) string {
	style := term.Green
	switch {
	case fraction >= 0.9:
		style = term.Red
	case fraction >= 0.7:
		style = term.Yellow
	}
	return m.paint(style, term.ProgressBar(width, fraction))
}

// pad fills a line with spaces to width.
func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-term.Width(s)))
}

// paint returns text in a style. Bold and dim are used without colors, too.
func (m *model) paint(style term.Style, text string) string {
	if style == term.Plain || text == "" || !m.screen.Color && style != term.Bold && style != term.Dim {
		return text
	}
	return m.screen.Sequence(style) + text + m.screen.Sequence(term.Plain)
}

func (m *model) reverse(text string) string {
	return m.screen.Sequence(term.Reverse) + text + m.screen.Sequence(term.Plain)
}
