package top

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

// log is the page with a task's output. It has a part of the log, and reads others from the server as they come into view.
type log struct {
	reader

	id     muster.TaskID
	part   excerpt
	top    int64 // the first visible line
	left   int   // columns that are scrolled out at the left
	height int
	off    bool // does not follow the end
	wrap   bool
	stamps bool
	find   string
	up     bool  // searches upwards
	hit    int64 // the line with the match; -1 means none
	open   int64 // what is read next in place of part: the log around this offset, or its end; noPlace means nothing
	seek   *seek // the search on the server
	said   int   // the attempt that the user was told of
}

// What open may be besides an offset.
const (
	logEnd  = -1
	noPlace = -2
)

// seek is a search on the server, which takes several requests where the log is long.
type seek struct {
	offset  int64
	up      bool
	wrapped bool // it has passed an end of the log
}

// How often the end of a log is read: while it may grow, and after that, when only another attempt may begin.
const (
	followEach  = 500 * time.Millisecond
	attemptEach = 2 * time.Second
)

func newLog(id muster.TaskID) *log {
	return &log{id: id, hit: -1, open: logEnd, reader: reader{every: followEach}}
}

func (p *log) name() string         { return "log " + p.id.String() }
func (p *log) close()               {}
func (p *log) changed(_ live.Batch) {}

func (p *log) hints() []hint {
	follow := "follow"
	if !p.off {
		follow = "stop following"
	}
	return []hint{{"f", follow}, {"/", "search"}, {"n N", "next"}, {"w", "wrap"}, {"t", "time"}, {"g G", "ends"}, {"Esc", "back"}}
}

// load reads what is wanted most: a match, another place of the log, what comes before the visible lines, or what follows the last ones.
func (p *log) load(m *model) tea.Cmd {
	id, e := p.id, &p.part
	window := func(at client.LogPosition, bytes int, take func(m *model, w wire.LogWindow)) tea.Cmd {
		return read(m, &p.reader, func(ctx context.Context) (wire.LogWindow, error) { return m.api.LogWindow(ctx, id, at, bytes) }, take)
	}
	switch {
	case p.seek != nil:
		return p.loadMatch(m)
	case p.open == logEnd:
		return window(client.LogPosition{Offset: -1, Backward: true}, windowBytes, func(_ *model, w wire.LogWindow) {
			p.part, p.open = excerpt{}, noPlace
			p.take(&w, true)
		})
	case p.open != noPlace:
		return p.loadAround(m)
	case p.off && e.first > 0 && e.at(p.top) < p.height:
		return window(client.LogPosition{Attempt: e.attempt, Offset: e.first, Backward: true}, windowBytes, func(_ *model, w wire.LogWindow) { p.take(&w, true) })
	case e.done:
		return window(client.LogPosition{Offset: -1, Backward: true}, 1, p.nextAttempt)
	case !p.off || e.at(p.top)+2*p.height >= len(e.lines):
		return window(client.LogPosition{Attempt: e.attempt, Offset: e.last}, windowBytes, func(_ *model, w wire.LogWindow) { p.take(&w, false) })
	default:
		return nil
	}
}

// loadAround reads the log around an offset.
func (p *log) loadAround(m *model) tea.Cmd {
	id, to, attempt := p.id, p.open, p.part.attempt
	type both struct{ before, after wire.LogWindow }
	return read(m, &p.reader, func(ctx context.Context) (b both, err error) {
		if b.after, err = m.api.LogWindow(ctx, id, client.LogPosition{Attempt: attempt, Offset: to}, windowBytes); err == nil && to > 0 {
			b.before, err = m.api.LogWindow(ctx, id, client.LogPosition{Attempt: attempt, Offset: b.after.First, Backward: true}, windowBytes/2)
		}
		return b, err
	}, func(_ *model, b both) {
		p.part, p.open = excerpt{}, noPlace
		p.take(&b.after, false)
		if to > 0 {
			p.take(&b.before, true)
		}
		p.off, p.top = true, to
		if p.hit >= 0 && len(p.part.lines) > 0 {
			p.top = p.part.lines[max(0, p.part.at(to)-p.height/2)].n
			p.reveal(to)
		}
	})
}

// take puts a window to the lines, and has more read soon where that is known to be there.
func (p *log) take(w *wire.LogWindow, before bool) {
	p.part.put(w, before)
	p.every = followEach
	if p.part.done {
		p.every = attemptEach
	}
	p.stale = !p.part.end && !p.off || p.off && p.part.first > 0 && p.part.at(p.top) < p.height
}

// nextAttempt takes what tells whether another attempt has begun.
func (p *log) nextAttempt(m *model, w wire.LogWindow) {
	switch {
	case w.Attempt <= p.part.attempt && w.Size <= p.part.size:
	case !p.off:
		p.open = logEnd
		p.again()
	case w.Attempt > p.said:
		p.said = w.Attempt
		m.tell("attempt %d has begun: G shows its output", w.Attempt)
	}
}

// loadMatch searches on.
func (p *log) loadMatch(m *model) tea.Cmd {
	id, s, find := p.id, *p.seek, p.find
	at := client.LogPosition{Attempt: p.part.attempt, Offset: s.offset, Backward: s.up}
	return read(m, &p.reader, func(ctx context.Context) (wire.LogMatches, error) {
		return m.api.SearchLog(ctx, id, at, find, sameCase(find), 1)
	}, func(m *model, found wire.LogMatches) {
		switch {
		case len(found.Matches) > 0:
			if s.wrapped {
				m.tell("search continues from the other end")
			}
			p.seek, p.hit, p.open = nil, found.Matches[0].Offset, found.Matches[0].Offset
		case !found.Done:
			p.seek.offset = found.ScannedTo
		case !s.wrapped:
			p.seek = fromEnd(s.up)
		default:
			p.seek = nil
			m.tell("no line has %q", find)
		}
		p.again()
	})
}

// fromEnd is a search from an end of the log on.
func fromEnd(up bool) *seek {
	if up {
		return &seek{offset: -1, up: true, wrapped: true}
	}
	return &seek{wrapped: true}
}

func (p *log) draw(m *model, width, height int) []string {
	lines := p.part.lines
	p.height = max(1, height-1)
	if len(lines) == 0 {
		text := "no output yet"
		switch {
		case !p.loaded:
			text = "reading…"
		case p.part.done:
			text = "the task printed nothing"
		}
		return []string{"", "  " + m.paint(term.Dim, text)}
	}
	if !p.off {
		p.top = p.lastTop(lines, width)
	}
	first := min(p.part.at(p.top), len(lines)-1)
	p.top = lines[first].n
	var out []string
	i := first
	for ; i < len(lines) && len(out) < p.height; i++ {
		out = append(out, p.one(m, &lines[i], width)...)
	}
	out = out[:min(len(out), p.height)]
	for len(out) < p.height {
		out = append(out, "")
	}
	return append(out, m.paint(term.Dim, term.Fit(p.where(first, i), width)))
}

// where says which part is visible: the lines from first to before end.
func (p *log) where(first, end int) string {
	e := &p.part
	text := fmt.Sprintf("lines %d–%d of %d", first+1, end, len(e.lines))
	if !e.whole() {
		text = fmt.Sprintf("%s of %s", term.Percent(ratio(float64(e.lines[end-1].n), float64(max(1, e.size)))), muster.Size(e.size))
		if e.end && end == len(e.lines) {
			text = fmt.Sprintf("the end of %s", muster.Size(e.size))
		}
	}
	if e.attempt > 1 {
		text += fmt.Sprintf(", attempt %d", e.attempt)
	}
	switch {
	case p.seek != nil:
		return text + "  searching: Esc stops"
	case e.done && end == len(e.lines):
		return text + "  end of the log"
	case p.off:
		return text + "  paused: f follows"
	default:
		return text + "  following"
	}
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

// sameCase says whether the case of a text that is searched for matters: if it has capitals.
func sameCase(text string) bool { return strings.ContainsFunc(text, unicode.IsUpper) }

// index finds a text in a line.
func index(line, text string) int {
	if sameCase(text) {
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

// lastTop is the first line with which the last one is at the bottom.
func (p *log) lastTop(lines []logLine, width int) int64 {
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
	if len(p.part.lines) == 0 {
		return nil, false
	}
	switch k {
	case "up", "k":
		return p.scroll(m, -1), true
	case "down", "j", "enter":
		return p.scroll(m, 1), true
	case "pgup", "ctrl+b", "b":
		return p.scroll(m, 1-p.height), true
	case "pgdown", "ctrl+f", "space":
		return p.scroll(m, p.height-1), true
	case "home", "g":
		if p.part.first == 0 {
			return p.scroll(m, -len(p.part.lines)), true
		}
		return p.show(m, 0), true
	case "end", "G":
		p.left = 0
		return p.follow(m), true
	case "f":
		if p.off {
			return p.follow(m), true
		}
		p.off = true
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
		p.jump(m, p.up != (k == "N"))
		return p.load(m), true
	default:
		return nil, false
	}
	return nil, true
}

// show reads another part of the log.
func (p *log) show(m *model, offset int64) tea.Cmd {
	p.open, p.hit = offset, -1
	p.again()
	return p.load(m)
}

// follow shows the end of the log, and of what comes.
func (p *log) follow(m *model) tea.Cmd {
	p.off = false
	if p.part.end && !p.part.done {
		return nil
	}
	return p.show(m, logEnd)
}

// scroll shows lines further down, or up, and follows the end again once that is visible.
func (p *log) scroll(m *model, by int) tea.Cmd {
	e := &p.part
	last := e.at(p.lastTop(e.lines, m.width))
	to := max(0, min(e.at(p.top)+by, last))
	p.top = e.lines[to].n
	p.off = to < last || !e.end
	if p.off && e.first > 0 && to < p.height || !e.end && to+2*p.height >= len(e.lines) {
		if !p.busy {
			p.again()
		}
		return p.load(m)
	}
	return nil
}

func (p *log) prompt() (label, text string) { return "search", p.find }

// search goes to the last match if the end is visible, else to the first one from here.
func (p *log) search(m *model, text string) {
	p.find, p.hit, p.up, p.seek = text, -1, !p.off, nil
	if text != "" && len(p.part.lines) > 0 {
		p.jump(m, p.up)
	}
}

// jump goes to the next match in a direction, from the other end on after the last one. Where the lines that are here have none, the server searches.
func (p *log) jump(m *model, up bool) {
	e := &p.part
	p.seek = nil
	from := e.at(p.top) - 1
	if up {
		from = min(e.at(p.top)+p.height, len(e.lines))
	}
	if p.hit >= 0 {
		from = e.at(p.hit)
	}
	if p.near(from, up) {
		return
	}
	switch {
	case up && e.first > 0:
		p.seek = &seek{offset: e.first, up: true}
	case !up && !e.end:
		p.seek = &seek{offset: e.last}
	case !e.whole():
		p.seek = fromEnd(up)
	default:
		if from = -1; up {
			from = len(e.lines)
		}
		if !p.near(from, up) {
			m.tell("no line has %q", p.find)
			return
		}
		m.tell("search continues from the other end")
		return
	}
	p.again()
}

// near goes to the next match in the lines that are here, and reports whether there is one.
func (p *log) near(from int, up bool) bool {
	step := 1
	if up {
		step = -1
	}
	for i := from + step; i >= 0 && i < len(p.part.lines); i += step {
		if index(p.part.lines[i].text, p.find) >= 0 {
			p.off = true
			p.reveal(p.part.lines[i].n)
			return true
		}
	}
	return false
}

// reveal marks the line at an offset as the match, and shows it.
func (p *log) reveal(offset int64) {
	e := &p.part
	i := min(e.at(offset), len(e.lines)-1)
	p.hit = e.lines[i].n
	if top := e.at(p.top); i < top || i >= top+p.height {
		p.top = e.lines[max(0, i-p.height/2)].n
	}
}
