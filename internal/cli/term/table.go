package term

import (
	"slices"
	"strings"
)

// Column is one column of a Table.
type Column struct {
	Title      string
	AlignRight bool                    // numbers
	NoTruncate bool                    // ids
	Style      func(cell string) Style // nil means plain
}

// Table is a table with titles.
type Table struct {
	columns []Column
	rows    [][]string
}

const (
	columnGap      = 2 // spaces between columns
	minColumnWidth = 8 // minimum width of a truncated column
)

// NewTable returns a table without rows.
func NewTable(columns ...Column) *Table { return &Table{columns: columns} }

// AddRow adds a row with one cell per column. Missing cells are empty.
func (t *Table) AddRow(cells ...string) {
	row := make([]string, len(t.columns))
	for i := range row {
		if i < len(cells) {
			row[i] = Sanitize(cells[i])
		}
	}
	t.rows = append(t.rows, row)
}

// Draw writes the table without columns that are empty in all rows. To fit the screen, the widest cells are
// truncated first, then the last columns are omitted.
func (t *Table) Draw(s Screen) error {
	visible := t.visibleColumns()
	widths := t.widths(s.Width, visible)
	var b strings.Builder
	t.writeLine(&b, s, visible, widths, func(i int) (string, Style) { return t.columns[i].Title, Bold })
	for _, row := range t.rows {
		t.writeLine(&b, s, visible, widths, func(i int) (string, Style) {
			if style := t.columns[i].Style; style != nil {
				return row[i], style(row[i])
			}
			return row[i], Plain
		})
	}
	_, err := s.Write([]byte(b.String()))
	return err
}

func (t *Table) visibleColumns() []int {
	var visible []int
	for i := range t.columns {
		used := slices.ContainsFunc(t.rows, func(r []string) bool { return r[i] != "" })
		if used || len(t.rows) == 0 {
			visible = append(visible, i)
		}
	}
	return visible
}

// widths returns the width of each column. The visible ones fit into limit if no truncated column gets
// narrower than minColumnWidth.
func (t *Table) widths(limit int, visible []int) []int {
	widths := make([]int, len(t.columns))
	total := columnGap * (len(visible) - 1)
	for _, i := range visible {
		widths[i] = Width(t.columns[i].Title)
		for _, row := range t.rows {
			widths[i] = max(widths[i], Width(row[i]))
		}
		total += widths[i]
	}
	if limit < 1 {
		return widths
	}
	for total > limit {
		widest := -1
		for _, i := range visible {
			if !t.columns[i].NoTruncate && widths[i] > minColumnWidth && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
		total--
	}
	return widths
}

// writeLine writes the cells that fit into the screen.
func (t *Table) writeLine(b *strings.Builder, s Screen, visible, widths []int, cell func(int) (string, Style)) {
	remaining := s.Width
	pad := "" // of the previous cell
	for n, i := range visible {
		text, style := cell(i)
		text = Truncate(text, widths[i])
		fill := strings.Repeat(" ", widths[i]-Width(text))
		if n > 0 {
			pad += strings.Repeat(" ", columnGap)
		}
		if t.columns[i].AlignRight {
			pad, fill = pad+fill, ""
		}
		remaining -= Width(pad) + Width(text)
		if s.Width > 0 && remaining < 0 {
			break
		}
		b.WriteString(pad + s.Paint(style, text))
		pad = fill
	}
	b.WriteByte('\n')
}
