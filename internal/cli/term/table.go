package term

import (
	"iter"
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
	used    []int // width of the widest cell of each column
	empty   bool  // there are no rows
}

const (
	columnGap      = 2 // spaces between columns
	minColumnWidth = 8 // minimum width of a truncated column
)

// NewTable returns a table without rows.
func NewTable(columns ...Column) *Table {
	return &Table{columns: columns, used: make([]int, len(columns)), empty: true}
}

// AddRow adds a row with one cell per column. Missing cells are empty.
func (t *Table) AddRow(cells ...string) { t.rows = append(t.rows, t.Measure(cells...)) }

// Measure returns the cells of a row that Stream is to draw, whose widths it notes.
func (t *Table) Measure(cells ...string) []string {
	row := t.row(cells)
	for i, cell := range row {
		t.used[i] = max(t.used[i], Width(cell))
	}
	t.empty = false
	return row
}

// row returns one cell per column.
func (t *Table) row(cells []string) []string {
	row := make([]string, len(t.columns))
	for i := range row {
		if i < len(cells) {
			row[i] = Sanitize(cells[i])
		}
	}
	return row
}

// Draw writes the table without columns that are empty in all rows. To fit the screen, the widest cells are
// truncated first, then the last columns are omitted.
func (t *Table) Draw(s Screen) error {
	return t.Stream(s, func(yield func([]string, error) bool) {
		for _, row := range t.rows {
			if !yield(row, nil) {
				return
			}
		}
	})
}

// blockLen is how many bytes of a table are written at once.
const blockLen = 64 << 10

// Stream is Draw for rows that are not in memory. Each must have been measured. An error ends it.
func (t *Table) Stream(s Screen, rows iter.Seq2[[]string, error]) error {
	visible := t.visibleColumns()
	widths := t.widths(s.Width, visible)
	var b strings.Builder
	flush := func() error {
		_, err := s.Write([]byte(b.String()))
		b.Reset()
		return err
	}
	t.writeLine(&b, s, visible, widths, func(i int) (string, Style) { return t.columns[i].Title, Bold })
	for cells, err := range rows {
		if err != nil {
			return err
		}
		row := t.row(cells)
		t.writeLine(&b, s, visible, widths, func(i int) (string, Style) {
			if style := t.columns[i].Style; style != nil {
				return row[i], style(row[i])
			}
			return row[i], Plain
		})
		if b.Len() >= blockLen {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

func (t *Table) visibleColumns() []int {
	var visible []int
	for i := range t.columns {
		if t.used[i] > 0 || t.empty {
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
		widths[i] = max(Width(t.columns[i].Title), t.used[i])
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
