package term

import (
	"slices"
	"strings"
)

// Column is one column of a Table.
type Column struct {
	Title string
	Right bool                    // numbers
	Whole bool                    // never shortened: ids
	Style func(cell string) Style // nil means plain
}

// Table is rows of text under titles.
type Table struct {
	columns []Column
	rows    [][]string
}

const (
	gap    = 2 // columns between columns
	narrow = 8 // a column is not shortened below this
)

// NewTable starts a table without rows.
func NewTable(columns ...Column) *Table { return &Table{columns: columns} }

// Row adds a row with one cell for each column.
func (t *Table) Row(cells ...string) {
	row := make([]string, len(t.columns))
	for i := range row {
		if i < len(cells) {
			row[i] = Clean(cells[i])
		}
	}
	t.rows = append(t.rows, row)
}

// Draw writes the table. No line is wider than the screen: the widest cells are
// shortened first, and then the last columns are left out. So are columns that
// are empty in every row.
func (t *Table) Draw(s Screen) error {
	shown := t.shown()
	widths := t.widths(s.Width, shown)
	var b strings.Builder
	t.line(&b, s, shown, widths, func(i int) (string, Style) { return t.columns[i].Title, Bold })
	for _, row := range t.rows {
		t.line(&b, s, shown, widths, func(i int) (string, Style) {
			if style := t.columns[i].Style; style != nil {
				return row[i], style(row[i])
			}
			return row[i], Plain
		})
	}
	_, err := s.Write([]byte(b.String()))
	return err
}

func (t *Table) shown() []int {
	var shown []int
	for i := range t.columns {
		used := slices.ContainsFunc(t.rows, func(r []string) bool { return r[i] != "" })
		if used || len(t.rows) == 0 {
			shown = append(shown, i)
		}
	}
	return shown
}

// widths returns the width of each column so that all that are shown fit into
// limit, if that is possible with texts that still say something.
func (t *Table) widths(limit int, shown []int) []int {
	widths := make([]int, len(t.columns))
	total := gap * (len(shown) - 1)
	for _, i := range shown {
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
		for _, i := range shown {
			if !t.columns[i].Whole && widths[i] > narrow && (widest < 0 || widths[i] > widths[widest]) {
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

// line writes one line, as far as there is room.
func (t *Table) line(b *strings.Builder, s Screen, shown, widths []int, cell func(int) (string, Style)) {
	left := s.Width
	pad := "" // of the cell before, written only if another one follows
	for n, i := range shown {
		text, style := cell(i)
		text = Fit(text, widths[i])
		fill := strings.Repeat(" ", widths[i]-Width(text))
		if n > 0 {
			pad += strings.Repeat(" ", gap)
		}
		if t.columns[i].Right {
			pad, fill = pad+fill, ""
		}
		left -= Width(pad) + Width(text)
		if s.Width > 0 && left < 0 {
			break
		}
		b.WriteString(pad + s.Paint(style, text))
		pad = fill
	}
	b.WriteByte('\n')
}
