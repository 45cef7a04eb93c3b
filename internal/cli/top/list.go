package top

import (
	"cmp"
	"slices"
	"strings"

	"github.com/muster-dev/muster/internal/cli/term"
)

// column is one column of a list. Widths do not depend on the rows, so that columns do not move.
type column[T any] struct {
	title        string
	width        int
	flex         int // share of the spare width; 0 means none
	dropPriority int // on narrow screens, columns with the highest number are omitted first; 0 means never
	alignRight   bool
	style        func(cell string) term.Style
	compare      func(a, b *T) int // the most important rows first; nil if the list cannot be sorted by it
}

// ascending compares rows by a key, the least first.
func ascending[T any, K cmp.Ordered](key func(*T) K) func(a, b *T) int {
	return func(a, b *T) int { return cmp.Compare(key(a), key(b)) }
}

// descending compares rows by a key, the greatest first.
func descending[T any, K cmp.Ordered](key func(*T) K) func(a, b *T) int {
	return func(a, b *T) int { return cmp.Compare(key(b), key(a)) }
}

// list is a list of rows with a sort order and a cursor.
type list[T any] struct {
	columns []column[T]
	cells   func(v *T, m *model) []string
	rowID   func(*T) string
	tie     func(a, b *T) int // order of rows that are equal in a column
	rows    []T

	by      int // index of the column to sort by; -1 means the order of the server
	reverse bool

	cursor     int    // index of the selected row
	selectedID string // of the selected row, to follow it when rows move
	top        int    // index of the first visible row
	height     int    // visible rows
}

// resetCursor puts the cursor on the first row.
func (l *list[T]) resetCursor() { l.cursor, l.top, l.selectedID = 0, 0, "" }

// move handles the keys that move the cursor over n rows.
func (l *list[T]) move(key string, n int) bool {
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
	l.clamp(n)
	l.rememberRow()
	return true
}

// clamp keeps the cursor within n rows and visible.
func (l *list[T]) clamp(n int) {
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

// selected returns the selected row, nil if there is none.
func (l *list[T]) selected() *T {
	if l.cursor >= len(l.rows) {
		return nil
	}
	return &l.rows[l.cursor]
}

// rememberRow stores the id of the selected row.
func (l *list[T]) rememberRow() {
	l.selectedID = ""
	if v := l.selected(); v != nil {
		l.selectedID = l.rowID(v)
	}
}

// arrange sorts the rows and moves the cursor to the row that was selected.
func (l *list[T]) arrange() {
	if l.by >= 0 {
		slices.SortStableFunc(l.rows, func(a, b T) int {
			c := l.columns[l.by].compare(&a, &b)
			if l.reverse {
				c = -c
			}
			return cmp.Or(c, l.tie(&a, &b))
		})
	}
	for i := range l.rows {
		if l.selectedID != "" && l.rowID(&l.rows[i]) == l.selectedID {
			l.top += i - l.cursor
			l.cursor = i
			break
		}
	}
	l.clamp(len(l.rows))
	l.rememberRow()
}

// handleSortKey handles s, which sorts by the next column, and S, which reverses the order.
func (l *list[T]) handleSortKey(key string) bool {
	switch key {
	case "s", "f6", ">", ".":
		for l.by++; l.by < len(l.columns) && l.columns[l.by].compare == nil; l.by++ {
		}
		if l.by >= len(l.columns) {
			l.by = -1
		}
		l.reverse = false
	case "S", "shift+s":
		l.reverse = !l.reverse
	default:
		return false
	}
	return true
}

const (
	markerWidth  = 2 // of the mark of the selected row
	minFlexWidth = 8 // of a column with flex
)

// columnWidths returns the widths of the columns that fit into width; -1 means omitted.
func (l *list[T]) columnWidths(width int) []int {
	widths := make([]int, len(l.columns))
	total := markerWidth
	for i, c := range l.columns {
		widths[i] = c.width
		total += c.width + 1
	}
	total--
	for total > width {
		worst := -1
		for i, c := range l.columns {
			if widths[i] >= 0 && c.dropPriority > 0 && (worst < 0 || c.dropPriority > l.columns[worst].dropPriority) {
				worst = i
			}
		}
		if worst < 0 {
			break
		}
		total -= widths[worst] + 1
		widths[worst] = -1
	}
	for i, c := range l.columns { // shrink columns with flex
		if over := total - width; over > 0 && widths[i] > minFlexWidth && c.flex > 0 {
			cut := min(over, widths[i]-minFlexWidth)
			widths[i] -= cut
			total -= cut
		}
	}
	flex := 0
	for i, c := range l.columns {
		if widths[i] >= 0 {
			flex += c.flex
		}
	}
	spare := width - total
	for i, c := range l.columns {
		if widths[i] >= 0 && c.flex > 0 && spare > 0 {
			add := spare * c.flex / flex
			spare, flex = spare-add, flex-c.flex
			widths[i] += add
		}
	}
	return widths
}

// draw draws titles, the visible rows and a note.
func (l *list[T]) draw(m *model, width, height int, note string) []string {
	return l.drawRows(m, len(l.rows), func(i int) []string { return l.cells(&l.rows[i], m) }, width, height, note)
}

// drawRows draws titles, the visible ones of n rows, given by their cells, and a note.
func (l *list[T]) drawRows(m *model, n int, cells func(i int) []string, width, height int, note string) []string {
	l.height = height - 1
	if note != "" {
		l.height--
	}
	l.height = max(1, l.height)
	l.clamp(n)
	widths := l.columnWidths(width)
	titles := make([]string, len(l.columns))
	for i, c := range l.columns {
		titles[i] = c.title
		if i == l.by {
			mark := "▲"
			if l.reverse {
				mark = "▼"
			}
			titles[i] = term.Truncate(c.title, widths[i]-1) + mark
		}
	}
	lines := make([]string, 0, l.height+2)
	lines = append(lines, m.paint(term.Bold, pad(l.renderRow(widths, "  ", titles, nil), width)))
	for i := l.top; i < min(n, l.top+l.height); i++ {
		if i == l.cursor {
			lines = append(lines, m.reverse(pad(l.renderRow(widths, "> ", cells(i), nil), width)))
			continue
		}
		lines = append(lines, l.renderRow(widths, "  ", cells(i), m.paint))
	}
	if note != "" {
		lines = append(lines, m.paint(term.Dim, term.Truncate("  "+note, width)))
	}
	return lines
}

// renderRow draws one row, without colors if paint is nil.
func (l *list[T]) renderRow(widths []int, mark string, cells []string, paint func(term.Style, string) string) string {
	var b strings.Builder
	b.WriteString(mark)
	sep := ""
	for i, c := range l.columns {
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
