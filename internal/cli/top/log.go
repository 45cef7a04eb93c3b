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

// logPage shows a task's output. It has a segment of the log and reads others when they become visible.
type logPage struct {
	pacer

	id              muster.TaskID
	segment         logSegment
	top             int64 // the first visible line
	left            int   // columns scrolled out on the left
	height          int
	paused          bool // does not follow the end
	wrap            bool
	timestamps      bool
	query           string
	upward          bool          // search direction
	match           int64         // the line with the match; -1 means none
	pendingOffset   int64         // offset of the segment to read next, offsetEnd or offsetNone
	serverSearch    *serverSearch // nil means none
	notifiedAttempt int           // the last attempt with a message
}

// Special values of pendingOffset.
const (
	offsetEnd  = -1
	offsetNone = -2
)

// serverSearch is a search on the server, which takes several requests for a long log.
type serverSearch struct {
	offset  int64
	upward  bool
	wrapped bool // it continued from the other end
}

// Intervals of reading the end of a log: while it may grow, and then for another attempt.
const (
	followInterval  = 500 * time.Millisecond
	attemptInterval = 2 * time.Second
)

func newLog(id muster.TaskID) *logPage {
	return &logPage{id: id, match: -1, pendingOffset: offsetEnd, pacer: pacer{interval: followInterval}}
}

func (p *logPage) name() string            { return "log " + p.id.String() }
func (p *logPage) close()                  {}
func (p *logPage) invalidate(_ live.Batch) {}

func (p *logPage) hints() []hint {
	follow := "follow"
	if !p.paused {
		follow = "stop following"
	}
	return []hint{{"f", follow}, {"/", "search"}, {"n N", "next"}, {"w", "wrap"}, {"t", "time"}, {"g G", "ends"}, {"Esc", "back"}}
}

// load reads, in this order of precedence: a match, another segment, the lines before the visible ones, or those after the last one.
func (p *logPage) load(m *model) tea.Cmd {
	id, e := p.id, &p.segment
	window := func(at client.LogPosition, bytes int, apply func(m *model, w wire.LogWindow)) tea.Cmd {
		return read(m, &p.pacer, func(ctx context.Context) (wire.LogWindow, error) { return m.api.LogWindow(ctx, id, at, bytes) }, apply)
	}
	switch {
	case p.serverSearch != nil:
		return p.loadMatch(m)
	case p.pendingOffset == offsetEnd:
		return window(client.LogPosition{Offset: -1, Backward: true}, windowBytes, func(_ *model, w wire.LogWindow) {
			p.segment, p.pendingOffset = logSegment{}, offsetNone
			p.addWindow(&w, true)
		})
	case p.pendingOffset != offsetNone:
		return p.loadAround(m)
	case p.paused && e.first > 0 && e.indexOf(p.top) < p.height:
		return window(client.LogPosition{Attempt: e.attempt, Offset: e.first, Backward: true}, windowBytes, func(_ *model, w wire.LogWindow) { p.addWindow(&w, true) })
	case e.done:
		return window(client.LogPosition{Offset: -1, Backward: true}, 1, p.onNextAttempt)
	case !p.paused || e.indexOf(p.top)+2*p.height >= len(e.lines):
		return window(client.LogPosition{Attempt: e.attempt, Offset: e.last}, windowBytes, func(_ *model, w wire.LogWindow) { p.addWindow(&w, false) })
	default:
		return nil
	}
}

// loadAround reads the log around an offset.
func (p *logPage) loadAround(m *model) tea.Cmd {
	id, to, attempt := p.id, p.pendingOffset, p.segment.attempt
	type windows struct{ before, after wire.LogWindow }
	return read(m, &p.pacer, func(ctx context.Context) (b windows, err error) {
		if b.after, err = m.api.LogWindow(ctx, id, client.LogPosition{Attempt: attempt, Offset: to}, windowBytes); err == nil && to > 0 {
			b.before, err = m.api.LogWindow(ctx, id, client.LogPosition{Attempt: attempt, Offset: b.after.First, Backward: true}, windowBytes/2)
		}
		return b, err
	}, func(_ *model, b windows) {
		p.segment, p.pendingOffset = logSegment{}, offsetNone
		p.addWindow(&b.after, false)
		if to > 0 {
			p.addWindow(&b.before, true)
		}
		p.paused, p.top = true, to
		if p.match >= 0 && len(p.segment.lines) > 0 {
			p.top = p.segment.lines[max(0, p.segment.indexOf(to)-p.height/2)].seq
			p.showMatch(to)
		}
	})
}

// addWindow adds a window to the segment, and marks it stale if there is more to show.
func (p *logPage) addWindow(w *wire.LogWindow, before bool) {
	p.segment.add(w, before)
	p.interval = followInterval
	if p.segment.done {
		p.interval = attemptInterval
	}
	p.stale = !p.segment.end && !p.paused || p.paused && p.segment.first > 0 && p.segment.indexOf(p.top) < p.height
}

// onNextAttempt handles a window of another attempt.
func (p *logPage) onNextAttempt(m *model, w wire.LogWindow) {
	switch {
	case w.Attempt <= p.segment.attempt && w.Size <= p.segment.size:
	case !p.paused:
		p.pendingOffset = offsetEnd
		p.forceReload()
	case w.Attempt > p.notifiedAttempt:
		p.notifiedAttempt = w.Attempt
		m.notify("attempt %d started: G shows its output", w.Attempt)
	}
}

// loadMatch continues the search.
func (p *logPage) loadMatch(m *model) tea.Cmd {
	id, s, query := p.id, *p.serverSearch, p.query
	at := client.LogPosition{Attempt: p.segment.attempt, Offset: s.offset, Backward: s.upward}
	return read(m, &p.pacer, func(ctx context.Context) (wire.LogMatches, error) {
		return m.api.SearchLog(ctx, id, at, query, caseSensitive(query), 1)
	}, func(m *model, found wire.LogMatches) {
		switch {
		case len(found.Matches) > 0:
			if s.wrapped {
				m.notify("search continues from the other end")
			}
			p.serverSearch, p.match, p.pendingOffset = nil, found.Matches[0].Offset, found.Matches[0].Offset
		case !found.Done:
			p.serverSearch.offset = found.ScannedTo
		case !s.wrapped:
			p.serverSearch = searchFromEnd(s.upward)
		default:
			p.serverSearch = nil
			m.notify("no line has %q", query)
		}
		p.forceReload()
	})
}

// searchFromEnd returns a search that starts at an end of the log.
func searchFromEnd(up bool) *serverSearch {
	if up {
		return &serverSearch{offset: -1, upward: true, wrapped: true}
	}
	return &serverSearch{wrapped: true}
}

func (p *logPage) draw(m *model, width, height int) []string {
	lines := p.segment.lines
	p.height = max(1, height-1)
	if len(lines) == 0 {
		return []string{"", "  " + m.paint(term.Dim, p.emptyText())}
	}
	if !p.paused {
		p.top = p.lastTop(lines, width)
	}
	first := min(p.segment.indexOf(p.top), len(lines)-1)
	p.top = lines[first].seq
	var out []string
	i := first
	for ; i < len(lines) && len(out) < p.height; i++ {
		out = append(out, p.renderLine(m, &lines[i], width)...)
	}
	out = out[:min(len(out), p.height)]
	for len(out) < p.height {
		out = append(out, "")
	}
	return append(out, m.paint(term.Dim, term.Truncate(p.positionText(first, i), width)))
}

// emptyText returns why no line is shown.
func (p *logPage) emptyText() string {
	switch {
	case !p.loaded:
		return "reading…"
	case p.segment.done:
		return "no output"
	default:
		return "no output yet"
	}
}

// positionText describes the visible lines, from first to before end.
func (p *logPage) positionText(first, end int) string {
	e := &p.segment
	text := fmt.Sprintf("lines %d–%d of %d", first+1, end, len(e.lines))
	if !e.complete() {
		text = fmt.Sprintf("%s of %s", term.FormatPercent(ratio(float64(e.lines[end-1].seq), float64(max(1, e.size)))), muster.Size(e.size))
		if e.end && end == len(e.lines) {
			text = fmt.Sprintf("the end of %s", muster.Size(e.size))
		}
	}
	if e.attempt > 1 {
		text += fmt.Sprintf(", attempt %d", e.attempt)
	}
	switch {
	case p.serverSearch != nil:
		return text + "  searching: Esc stops"
	case e.done && end == len(e.lines):
		return text + "  end of the log"
	case p.paused:
		return text + "  paused: f follows"
	default:
		return text + "  following"
	}
}

// renderLine draws a line, on several rows if wrapped.
func (p *logPage) renderLine(m *model, l *logLine, width int) []string {
	text := p.lineText(l)
	var parts []string
	if p.wrap {
		parts = wrapText(text, width)
	} else {
		parts = []string{term.Truncate(skipColumns(text, p.left), width)}
	}
	for i := range parts {
		parts[i] = p.highlight(m, l, parts[i])
	}
	return parts
}

// lineText returns a line, with its time if enabled.
func (p *logPage) lineText(l *logLine) string {
	if p.timestamps {
		return l.at.Std().Local().Format("15:04:05.000 ") + l.text
	}
	return l.text
}

func (p *logPage) highlight(m *model, l *logLine, text string) string {
	style := term.Plain
	switch l.stream {
	case client.Stderr:
		style = term.Yellow
	case client.System:
		style = term.Dim
	}
	i := indexText(text, p.query)
	if p.query == "" || i < 0 {
		return m.paint(style, text)
	}
	end := i + len(p.query)
	return m.paint(style, text[:i]) + m.reverse(text[i:end]) + m.paint(style, text[end:])
}

// caseSensitive reports whether a search is case-sensitive: if its text has capitals.
func caseSensitive(text string) bool { return strings.ContainsFunc(text, unicode.IsUpper) }

// indexText returns the index of a text in a line, -1 if there is none.
func indexText(line, text string) int {
	if caseSensitive(text) {
		return strings.Index(line, text)
	}
	lower := strings.ToLower(line)
	if len(lower) != len(line) {
		return strings.Index(line, text)
	}
	return strings.Index(lower, text)
}

// wrapText splits a text into lines of at most width columns.
func wrapText(text string, width int) []string {
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

// skipColumns removes the first columns of a text.
func skipColumns(text string, columns int) string {
	for i, r := range text {
		if columns <= 0 {
			return text[i:]
		}
		columns -= term.Width(string(r))
	}
	return ""
}

// lastTop returns the first visible line if the last line is at the bottom.
func (p *logPage) lastTop(lines []logLine, width int) int64 {
	rows := 0
	for i := len(lines) - 1; i >= 0; i-- {
		if p.wrap {
			rows += len(wrapText(p.lineText(&lines[i]), width))
		} else {
			rows++
		}
		if rows > p.height {
			return lines[min(i+1, len(lines)-1)].seq
		}
	}
	return lines[0].seq
}

func (p *logPage) handleKey(m *model, k string) (tea.Cmd, bool) {
	if len(p.segment.lines) == 0 {
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
		if p.segment.first == 0 {
			return p.scroll(m, -len(p.segment.lines)), true
		}
		return p.loadAt(m, 0), true
	case "end", "G":
		p.left = 0
		return p.follow(m), true
	case "f":
		if p.paused {
			return p.follow(m), true
		}
		p.paused = true
	case "left":
		p.left = max(0, p.left-m.width/2)
	case "right":
		p.left += m.width / 2
	case "w":
		p.wrap, p.left = !p.wrap, 0
	case "t":
		p.timestamps = !p.timestamps
	case "n", "N":
		if p.query == "" {
			m.notify("press / to search")
			return nil, true
		}
		p.nextMatch(m, p.upward != (k == "N"))
		return p.load(m), true
	default:
		return nil, false
	}
	return nil, true
}

// loadAt reads another segment of the log.
func (p *logPage) loadAt(m *model, offset int64) tea.Cmd {
	p.pendingOffset, p.match = offset, -1
	p.forceReload()
	return p.load(m)
}

// follow shows the end of the log and follows it.
func (p *logPage) follow(m *model) tea.Cmd {
	p.paused = false
	if p.segment.end && !p.segment.done {
		return nil
	}
	return p.loadAt(m, offsetEnd)
}

// scroll scrolls by lines, and follows the end when it becomes visible.
func (p *logPage) scroll(m *model, by int) tea.Cmd {
	e := &p.segment
	last := e.indexOf(p.lastTop(e.lines, m.width))
	to := max(0, min(e.indexOf(p.top)+by, last))
	p.top = e.lines[to].seq
	p.paused = to < last || !e.end
	if p.paused && e.first > 0 && to < p.height || !e.end && to+2*p.height >= len(e.lines) {
		if !p.inFlight {
			p.forceReload()
		}
		return p.load(m)
	}
	return nil
}

func (p *logPage) prompt() (label, text string) { return "search", p.query }

// search goes to the last match while following, else to the next one.
func (p *logPage) search(m *model, text string) {
	p.query, p.match, p.upward, p.serverSearch = text, -1, !p.paused, nil
	if text != "" && len(p.segment.lines) > 0 {
		p.nextMatch(m, p.upward)
	}
}

// nextMatch goes to the next match in a direction, and continues from the other end. The server searches if the segment has no match.
func (p *logPage) nextMatch(m *model, up bool) {
	e := &p.segment
	p.serverSearch = nil
	from := e.indexOf(p.top) - 1
	if up {
		from = min(e.indexOf(p.top)+p.height, len(e.lines))
	}
	if p.match >= 0 {
		from = e.indexOf(p.match)
	}
	if p.matchLoaded(from, up) {
		return
	}
	switch {
	case up && e.first > 0:
		p.serverSearch = &serverSearch{offset: e.first, upward: true}
	case !up && !e.end:
		p.serverSearch = &serverSearch{offset: e.last}
	case !e.complete():
		p.serverSearch = searchFromEnd(up)
	default:
		if from = -1; up {
			from = len(e.lines)
		}
		if !p.matchLoaded(from, up) {
			m.notify("no line has %q", p.query)
			return
		}
		m.notify("search continues from the other end")
		return
	}
	p.forceReload()
}

// matchLoaded goes to the next match in the segment, and reports whether there is one.
func (p *logPage) matchLoaded(from int, up bool) bool {
	step := 1
	if up {
		step = -1
	}
	for i := from + step; i >= 0 && i < len(p.segment.lines); i += step {
		if indexText(p.segment.lines[i].text, p.query) >= 0 {
			p.paused = true
			p.showMatch(p.segment.lines[i].seq)
			return true
		}
	}
	return false
}

// showMatch sets the match to the line at an offset, and makes it visible.
func (p *logPage) showMatch(offset int64) {
	e := &p.segment
	i := min(e.indexOf(offset), len(e.lines)-1)
	p.match = e.lines[i].seq
	if top := e.indexOf(p.top); i < top || i >= top+p.height {
		p.top = e.lines[max(0, i-p.height/2)].seq
	}
}
