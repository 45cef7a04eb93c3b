package top

import (
	"fmt"
	"strings"
	"unicode"

	tea "charm.land/bubbletea/v2"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

// log is the page with a task's output.
type log struct {
	id     muster.TaskID
	ring   *ring
	top    int // number of the first visible line
	left   int // columns that are scrolled out at the left
	height int
	off    bool // does not follow the end
	wrap   bool
	stamps bool
	find   string
	up     bool // searches upwards
	hit    int  // number of the line with the match; -1 means none
}

func newLog(m *model, id muster.TaskID) *log {
	return &log{id: id, ring: m.followLog(id), hit: -1}
}

func (p *log) name() string         { return "log " + p.id.String() }
func (p *log) close()               { p.ring.stop() }
func (p *log) load(*model) tea.Cmd  { return nil }
func (p *log) changed(_ live.Batch) {}
func (p *log) news() bool           { return p.ring.news() }

func (p *log) hints() []hint {
	follow := "follow"
	if !p.off {
		follow = "stop following"
	}
	return []hint{{"f", follow}, {"/", "search"}, {"n N", "next"}, {"w", "wrap"}, {"t", "time"}, {"g G", "ends"}, {"Esc", "back"}}
}

func (p *log) draw(m *model, width, height int) []string {
	lines, state := p.ring.view()
	p.height = max(1, height-1)
	if len(lines) == 0 {
		text := "no output yet"
		if state == "end" {
			text = "the task printed nothing"
		} else if state != "" {
			text = state
		}
		return []string{"", "  " + m.paint(term.Dim, term.Fit(term.Clean(text), width-2))}
	}
	base := lines[0].n
	if !p.off {
		p.top = p.lastTop(lines, width)
	}
	p.top = max(base, min(p.top, lines[len(lines)-1].n))
	var out []string
	i := p.top - base
	for ; i < len(lines) && len(out) < p.height; i++ {
		out = append(out, p.one(m, &lines[i], width)...)
	}
	out = out[:min(len(out), p.height)]
	for len(out) < p.height {
		out = append(out, "")
	}
	where := fmt.Sprintf("lines %d–%d of %d", p.top-base+1, min(i, len(lines)), len(lines))
	if base > 0 || len(lines) >= firstTail {
		where += " (the last ones; muster logs " + p.id.String() + " has all)"
	}
	switch {
	case state == "end":
		where += "  end of the log"
	case state != "":
		where += "  " + state
	case p.off:
		where += "  paused: f follows"
	default:
		where += "  following"
	}
	return append(out, m.paint(term.Dim, term.Fit(term.Clean(where), width)))
}

// one draws a line, on several lines of the screen if it is wrapped.
func (p *log) one(m *model, l *logLine, width int) []string {
	text := p.text(l)
	var parts []string
	if p.wrap {
		parts = wrapped(text, width)
	} else {
		parts = []string{term.Fit(skip(text, p.left), width)}
	}
	for i := range parts {
		parts[i] = p.painted(m, l, parts[i])
	}
	return parts
}

// text is a line with its time, if that is shown.
func (p *log) text(l *logLine) string {
	if p.stamps {
		return l.at.Std().Local().Format("15:04:05.000 ") + l.text
	}
	return l.text
}

func (p *log) painted(m *model, l *logLine, text string) string {
	style := term.Plain
	switch l.stream {
	case client.Stderr:
		style = term.Yellow
	case client.System:
		style = term.Dim
	}
	if p.find == "" {
		return m.paint(style, text)
	}
	i := index(text, p.find)
	if i < 0 {
		return m.paint(style, text)
	}
	end := i + len(p.find)
	return m.paint(style, text[:i]) + m.reverse(text[i:end]) + m.paint(style, text[end:])
}

// index finds a text in a line: without regard to case, unless the text has capitals.
func index(line, text string) int {
	if strings.ContainsFunc(text, unicode.IsUpper) {
		return strings.Index(line, text)
	}
	lower := strings.ToLower(line)
	if len(lower) != len(line) {
		return strings.Index(line, text)
	}
	return strings.Index(lower, text)
}

// wrapped cuts a text into lines of at most width columns.
func wrapped(text string, width int) []string {
	parts := []string{""}
	used := 0
	for _, r := range text {
		w := term.Width(string(r))
		if used+w > width {
			parts, used = append(parts, ""), 0
		}
		parts[len(parts)-1] += string(r)
		used += w
	}
	return parts
}

// skip leaves out the first columns of a text.
func skip(text string, columns int) string {
	for i, r := range text {
		if columns <= 0 {
			return text[i:]
		}
		columns -= term.Width(string(r))
	}
	return ""
}

// lastTop is the number of the first line with which the last one is at the bottom.
func (p *log) lastTop(lines []logLine, width int) int {
	rows := 0
	for i := len(lines) - 1; i >= 0; i-- {
		if p.wrap {
			rows += len(wrapped(p.text(&lines[i]), width))
		} else {
			rows++
		}
		if rows > p.height {
			return lines[min(i+1, len(lines)-1)].n
		}
	}
	return lines[0].n
}

func (p *log) key(m *model, k string) (tea.Cmd, bool) {
	lines, _ := p.ring.view()
	if len(lines) == 0 {
		return nil, false
	}
	first := lines[0].n
	end := p.lastTop(lines, m.width)
	switch k {
	case "up", "k":
		p.scroll(p.top-1, first, end)
	case "down", "j", "enter":
		p.scroll(p.top+1, first, end)
	case "pgup", "ctrl+b", "b":
		p.scroll(p.top-p.height+1, first, end)
	case "pgdown", "ctrl+f", "space":
		p.scroll(p.top+p.height-1, first, end)
	case "home", "g":
		p.scroll(first, first, end)
	case "end", "G":
		p.off, p.left = false, 0
	case "f":
		p.off = !p.off
	case "left":
		p.left = max(0, p.left-m.width/2)
	case "right":
		p.left += m.width / 2
	case "w":
		p.wrap, p.left = !p.wrap, 0
	case "t":
		p.stamps = !p.stamps
	case "n", "N":
		if p.find == "" {
			m.tell("press / to search")
			return nil, true
		}
		p.jump(m, lines, p.up != (k == "N"))
	default:
		return nil, false
	}
	return nil, true
}

// scroll shows another part, and follows the end again once that is visible.
func (p *log) scroll(to, first, end int) {
	p.top = max(first, min(to, end))
	p.off = p.top < end
}

func (p *log) prompt() (label, text string) { return "search", p.find }

// search goes to the last match if the end is visible, else to the first one from here.
func (p *log) search(m *model, text string) {
	p.find, p.hit, p.up = text, -1, !p.off
	if lines, _ := p.ring.view(); text != "" && len(lines) > 0 {
		p.jump(m, lines, p.up)
	}
}

// jump goes to the next match in a direction, from the other end on after the last one.
func (p *log) jump(m *model, lines []logLine, up bool) {
	base, n := lines[0].n, len(lines)
	step, from := 1, p.top-base-1
	if up {
		step, from = -1, p.top-base+p.height
	}
	if p.hit >= base {
		from = p.hit - base
	}
	from = max(-1, min(from, n))
	for i := range n {
		at := ((from+step*(i+1))%n + n) % n
		if index(lines[at].text, p.find) < 0 {
			continue
		}
		if (at-from)*step < 0 {
			m.tell("search continues from the other end")
		}
		p.hit, p.off = lines[at].n, true
		if p.hit < p.top || p.hit >= p.top+p.height {
			p.top = max(base, p.hit-p.height/2)
		}
		return
	}
	m.tell("no line has %q", p.find)
}
