package top

import (
	"slices"
	"strings"

	"github.com/muster-dev/muster/internal/cli/term"
)

// column is one column of a list. Widths do not depend on the rows, so that columns do not move.
type column struct {
	title        string
	width        int
	flex         int // share of the spare width; 0 means none
	dropPriority int // on narrow screens, columns with the highest number are omitted first; 0 means never
	alignRight   bool
	style        func(cell string) term.Style
	sortable     bool
}

// row is one line of a list.
type row struct{ cells []string }

// listView is the cursor and the visible part of a list.
type listView struct {
	cursor int    // index of the selected row
	id     string // of the selected row, to follow it when rows move
	top    int    // index of the first visible row
	height int    // visible rows
}

// resetCursor puts the cursor on the first row.
func (l *listView) resetCursor() { l.cursor, l.top, l.id = 0, 0, "" }

// move handles the keys that move the cursor over n rows.
func (l *listView) move(key string, n int) bool {
	page := max(1, l.height-1)
	switch key {
	case "up", "k", "ctrl+p":
		l.cursor--
	case "down", "j", "ctrl+n":
		l.cursor++
	case "pgup", "ctrl+b":
		l.cursor -= page
	case "pgdown", "ctrl+f", "space":
		l.cursor += page
	case "ctrl+u":
		l.cursor -= page / 2
	case "home", "g":
		l.cursor = 0
	case "end", "G", "shift+g":
		l.cursor = n - 1
	default:
		return false
	}
	l.id = ""
	l.clamp(n)
	return true
}

// clamp keeps the cursor within n rows and visible.
func (l *listView) clamp(n int) {
	l.cursor = max(0, min(l.cursor, n-1))
	h := max(1, l.height)
	if l.cursor < l.top {
		l.top = l.cursor
	}
	if l.cursor >= l.top+h {
		l.top = l.cursor - h + 1
	}
	l.top = max(0, min(l.top, n-h))
}

// setHeight sets the height of the list, including the titles and an optional note.
func (l *listView) setHeight(height, n int, note string) {
	l.height = height - 1
	if note != "" {
		l.height--
	}
	l.height = max(1, l.height)
	l.clamp(n)
}

// keepSelection moves the cursor to the selected row of new rows.
func (l *listView) keepSelection(ids []string) {
	if l.id != "" {
		if i := slices.Index(ids, l.id); i >= 0 {
			l.top += i - l.cursor
			l.cursor = i
		}
	}
	l.clamp(len(ids))
	l.id = ""
	if l.cursor < len(ids) {
		l.id = ids[l.cursor]
	}
}

// sortOrder is the sort order of a list.
type sortOrder struct {
	by      int // index of the column; -1 means the order of the server
	reverse bool
}

// handleSortKey handles s, which sorts by the next column, and S, which reverses the order.
func (o *sortOrder) handleSortKey(key string, columns []column) bool {
	switch key {
	case "s", "f6", ">", ".":
		for o.by++; o.by < len(columns) && !columns[o.by].sortable; o.by++ {
		}
		if o.by >= len(columns) {
			o.by = -1
		}
		o.reverse = false
	case "S", "shift+s":
		o.reverse = !o.reverse
	default:
		return false
	}
	return true
}

const (
	markerWidth  = 2 // of the mark of the selected row
	minFlexWidth = 8 // of a column with flex
)

// columnWidths returns the widths of columns that fit into width; -1 means omitted.
func columnWidths(columns []column, width int) []int {
	widths := make([]int, len(columns))
	total := markerWidth
	for i, c := range columns {
		widths[i] = c.width
		total += c.width + 1
	}
	total--
	for total > width {
		worst := -1
		for i, c := range columns {
			if widths[i] >= 0 && c.dropPriority > 0 && (worst < 0 || c.dropPriority > columns[worst].dropPriority) {
				worst = i
			}
		}
		if worst < 0 {
			break
		}
		total -= widths[worst] + 1
		widths[worst] = -1
	}
	for i, c := range columns { // shrink columns with flex
		if over := total - width; over > 0 && widths[i] > minFlexWidth && c.flex > 0 {
			cut := min(over, widths[i]-minFlexWidth)
			widths[i] -= cut
			total -= cut
		}
	}
	flex := 0
	for i, c := range columns {
		if widths[i] >= 0 {
			flex += c.flex
		}
	}
	spare := width - total
	for i, c := range columns {
		if widths[i] >= 0 && c.flex > 0 && spare > 0 {
			add := spare * c.flex / flex
			spare, flex = spare-add, flex-c.flex
			widths[i] += add
		}
	}
	return widths
}

// table draws titles, rows and a note. sel is the index of the selected row.
func (m *model) table(columns []column, o sortOrder, rows []row, sel, width int, note string) []string {
	widths := columnWidths(columns, width)
	lines := make([]string, 0, len(rows)+2)
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.title
		if i == o.by {
			mark := "▲"
			if o.reverse {
				mark = "▼"
			}
			titles[i] = term.Truncate(c.title, widths[i]-1) + mark
		}
	}
	lines = append(lines, m.paint(term.Bold, pad(renderRow(columns, widths, "  ", titles, nil), width)))
	for i, r := range rows {
		if i == sel {
			lines = append(lines, m.reverse(pad(renderRow(columns, widths, "> ", r.cells, nil), width)))
			continue
		}
		lines = append(lines, renderRow(columns, widths, "  ", r.cells, m.paint))
	}
	if note != "" {
		lines = append(lines, m.paint(term.Dim, term.Truncate("  "+note, width)))
	}
	return lines
}

// renderRow draws one row, without colors if paint is nil.
func renderRow(columns []column, widths []int, mark string, cells []string, paint func(term.Style, string) string) string {
	var b strings.Builder
	b.WriteString(mark)
	sep := ""
	for i, c := range columns {
		if widths[i] < 0 {
			continue
		}
		text := term.Truncate(term.Sanitize(cells[i]), widths[i])
		if widths[i] == 0 {
			text = ""
		}
		fill := strings.Repeat(" ", max(0, widths[i]-term.Width(text)))
		if paint != nil && c.style != nil {
			text = paint(c.style(cells[i]), text)
		}
		if c.alignRight {
			text, fill = fill+text, ""
		}
		b.WriteString(sep + text)
		sep = fill + " "
	}
	return strings.TrimRight(b.String(), " ")
}

// pad fills a line with spaces to width.
func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-term.Width(s)))
}

// paint returns text in a style. Bold and dim are used without colors, too.
func (m *model) paint(style term.Style, text string) string {
	if style == term.Plain || text == "" || !m.color && style != term.Bold && style != term.Dim {
		return text
	}
	return "\x1b[" + string(style) + "m" + text + "\x1b[m"
}

func (m *model) reverse(text string) string { return "\x1b[7m" + text + "\x1b[m" }
