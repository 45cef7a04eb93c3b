package top

import (
	"slices"
	"strings"

	"github.com/muster-dev/muster/internal/cli/term"
)

// column is one column of a list. Widths are fixed, so that rows do not jump when
// they change; the column with the most flex takes what is left over.
type column struct {
	title string
	width int
	flex  int // share of the width that is left over; 0 means none
	drop  int // columns with the highest number are left out first where there is no room; 0 means never
	right bool
	style func(cell string) term.Style
	sort  bool // the list can be sorted by it
}

// row is one line of a list.
type row struct{ cells []string }

// list is the cursor of a list and what part of it is visible.
type list struct {
	sel    int    // index of the selected row
	id     string // of the selected row, which it follows when rows move
	top    int    // index of the first visible row
	height int    // visible rows
}

// first puts the cursor on the first row.
func (l *list) first() { l.sel, l.top, l.id = 0, 0, "" }

// move handles the keys that move the cursor over n rows.
func (l *list) move(key string, n int) bool {
	page := max(1, l.height-1)
	switch key {
	case "up", "k", "ctrl+p":
		l.sel--
	case "down", "j", "ctrl+n":
		l.sel++
	case "pgup", "ctrl+b":
		l.sel -= page
	case "pgdown", "ctrl+f", "space":
		l.sel += page
	case "ctrl+u":
		l.sel -= page / 2
	case "home", "g":
		l.sel = 0
	case "end", "G", "shift+g":
		l.sel = n - 1
	default:
		return false
	}
	l.id = ""
	l.clamp(n)
	return true
}

// clamp keeps the cursor within n rows and visible.
func (l *list) clamp(n int) {
	l.sel = max(0, min(l.sel, n-1))
	h := max(1, l.height)
	if l.sel < l.top {
		l.top = l.sel
	}
	if l.sel >= l.top+h {
		l.top = l.sel - h + 1
	}
	l.top = max(0, min(l.top, n-h))
}

// fit gives the list a part of the screen, with titles above its n rows and perhaps a note below.
func (l *list) fit(height, n int, note string) {
	l.height = height - 1
	if note != "" {
		l.height--
	}
	l.height = max(1, l.height)
	l.clamp(n)
}

// hold keeps the cursor on the row that it was on, wherever that is now.
func (l *list) hold(ids []string) {
	if l.id != "" {
		if i := slices.Index(ids, l.id); i >= 0 {
			l.top += i - l.sel
			l.sel = i
		}
	}
	l.clamp(len(ids))
	l.id = ""
	if l.sel < len(ids) {
		l.id = ids[l.sel]
	}
}

// order is by which column a list is sorted.
type order struct {
	by      int // index of the column; -1 means as the server sorts
	reverse bool
}

// sortKey handles s, the next column to sort by, and S, the other direction.
func (o *order) sortKey(key string, columns []column) bool {
	switch key {
	case "s", "f6", ">", ".":
		for o.by++; o.by < len(columns) && !columns[o.by].sort; o.by++ {
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

// marker is the column before the first one: it shows which row is selected.
const marker = 2

// narrow is how wide a column that may grow is at least.
const narrow = 8

// layout returns the widths of columns that fit into width; -1 is one that is left out.
func layout(columns []column, width int) []int {
	widths := make([]int, len(columns))
	total := marker
	for i, c := range columns {
		widths[i] = c.width
		total += c.width + 1
	}
	total--
	for total > width {
		worst := -1
		for i, c := range columns {
			if widths[i] >= 0 && c.drop > 0 && (worst < 0 || c.drop > columns[worst].drop) {
				worst = i
			}
		}
		if worst < 0 {
			break
		}
		total -= widths[worst] + 1
		widths[worst] = -1
	}
	for i, c := range columns { // what is still too much is taken from texts
		if over := total - width; over > 0 && widths[i] > narrow && c.flex > 0 {
			cut := min(over, widths[i]-narrow)
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
	left := width - total
	for i, c := range columns {
		if widths[i] >= 0 && c.flex > 0 && left > 0 {
			add := left * c.flex / flex
			left, flex = left-add, flex-c.flex
			widths[i] += add
		}
	}
	return widths
}

// table draws titles, rows and a note below them. sel is the index of the selected row.
func (m *model) table(columns []column, o order, rows []row, sel, width int, note string) []string {
	widths := layout(columns, width)
	lines := make([]string, 0, len(rows)+2)
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.title
		if i == o.by {
			mark := "▲"
			if o.reverse {
				mark = "▼"
			}
			titles[i] = term.Fit(c.title, widths[i]-1) + mark
		}
	}
	lines = append(lines, m.paint(term.Bold, pad(line(columns, widths, "  ", titles, nil), width)))
	for i, r := range rows {
		if i == sel {
			lines = append(lines, m.reverse(pad(line(columns, widths, "> ", r.cells, nil), width)))
			continue
		}
		lines = append(lines, line(columns, widths, "  ", r.cells, m.paint))
	}
	if note != "" {
		lines = append(lines, m.paint(term.Dim, term.Fit("  "+note, width)))
	}
	return lines
}

// line draws one row, with paint nil without colours.
func line(columns []column, widths []int, mark string, cells []string, paint func(term.Style, string) string) string {
	var b strings.Builder
	b.WriteString(mark)
	gap := ""
	for i, c := range columns {
		if widths[i] < 0 {
			continue
		}
		text := term.Fit(term.Clean(cells[i]), widths[i])
		if widths[i] == 0 {
			text = ""
		}
		fill := strings.Repeat(" ", max(0, widths[i]-term.Width(text)))
		if paint != nil && c.style != nil {
			text = paint(c.style(cells[i]), text)
		}
		if c.right {
			text, fill = fill+text, ""
		}
		b.WriteString(gap + text)
		gap = fill + " "
	}
	return strings.TrimRight(b.String(), " ")
}

// pad makes a line as wide as the screen.
func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-term.Width(s)))
}

// paint returns text in a style; bold and dim are shown without colours, too.
func (m *model) paint(style term.Style, text string) string {
	if style == term.Plain || text == "" || !m.color && style != term.Bold && style != term.Dim {
		return text
	}
	return "\x1b[" + string(style) + "m" + text + "\x1b[m"
}

func (m *model) reverse(text string) string { return "\x1b[7m" + text + "\x1b[m" }
