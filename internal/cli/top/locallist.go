package top

import (
	"cmp"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/live"
)

// localList is a list that is read as a whole, and filtered and sorted locally.
type localList[T any] struct {
	pacer
	listView
	sortOrder

	spec   *listSpec[T]
	filter string
	all    []T
	rows   []T // matches of filter
}

// listSpec describes the rows of a local list.
type listSpec[T any] struct {
	columns      []column
	compare      []func(a, b *T) int // order of each column, the most important rows first; nil if not sortable
	id           func(v *T) string
	title        func(v *T) string   // order of equal rows
	searchText   func(v *T) []string // for the filter
	cells        func(v *T, now time.Time) []string
	emptyMessage string
}

func newLocalList[T any](spec *listSpec[T]) localList[T] {
	return localList[T]{spec: spec, sortOrder: sortOrder{by: 0}, pacer: pacer{interval: 3 * time.Second}}
}

func (p *localList[T]) close() {}

func (p *localList[T]) invalidate(b live.Batch) {
	p.stale = p.stale || b.Resync || slices.ContainsFunc(b.Events, func(e muster.Event) bool { return e.Type == muster.EventWorker })
}

func (p *localList[T]) arrange() {
	p.rows = p.rows[:0]
	words := strings.Fields(strings.ToLower(p.filter))
	for i := range p.all {
		text := strings.ToLower(strings.Join(p.spec.searchText(&p.all[i]), " "))
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) }) {
			p.rows = append(p.rows, p.all[i])
		}
	}
	sortRows(p.rows, p.sortOrder, p.spec.compare, func(a, b *T) int { return cmp.Compare(p.spec.title(a), p.spec.title(b)) })
	p.keepSelection(rowIDs(p.rows, p.spec.id))
}

// sortRows sorts rows by a column, and equal ones by tie. It keeps the order without a column.
func sortRows[T any](rows []T, o sortOrder, compare []func(a, b *T) int, tie func(a, b *T) int) {
	if o.by < 0 {
		return
	}
	slices.SortStableFunc(rows, func(a, b T) int {
		c := compare[o.by](&a, &b)
		if o.reverse {
			c = -c
		}
		return cmp.Or(c, tie(&a, &b))
	})
}

func rowIDs[T any](rows []T, id func(*T) string) []string {
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = id(&rows[i])
	}
	return ids
}

func (p *localList[T]) draw(m *model, width, height int) []string {
	if len(p.rows) == 0 {
		return m.emptyLines(&p.pacer, p.filter != "", p.spec.emptyMessage)
	}
	p.setHeight(height, len(p.rows), "")
	return m.table(p.spec.columns, p.sortOrder, visible(&p.listView, p.rows, func(v *T) []string { return p.spec.cells(v, m.now) }), p.cursor-p.top, width, "")
}

// visible returns the visible rows of a list.
func visible[T any](l *listView, all []T, cells func(*T) []string) []row {
	rows := make([]row, 0, l.height)
	for i := l.top; i < min(len(all), l.top+l.height); i++ {
		rows = append(rows, row{cells: cells(&all[i])})
	}
	return rows
}

// handleListKey handles the keys that move the cursor and sort.
func (p *localList[T]) handleListKey(k string) bool {
	switch {
	case p.move(k, len(p.rows)):
		if v := p.selected(); v != nil {
			p.id = p.spec.id(v)
		}
	case p.handleSortKey(k, p.spec.columns):
		p.by = max(p.by, 0) // there is no server order
		p.resetCursor()
		p.arrange()
	default:
		return false
	}
	return true
}

// selected returns the selected row, nil if there is none.
func (p *localList[T]) selected() *T {
	if p.cursor >= len(p.rows) {
		return nil
	}
	return &p.rows[p.cursor]
}

// handleRowKey handles a key. Keys that are not for the list go to act, with the selected row.
func (p *localList[T]) handleRowKey(k string, act func(v *T) (tea.Cmd, bool)) (tea.Cmd, bool) {
	if p.handleListKey(k) {
		return nil, true
	}
	if v := p.selected(); v != nil {
		return act(v)
	}
	return nil, false
}

func (p *localList[T]) prompt() (label, text string) { return "filter", p.filter }

func (p *localList[T]) search(_ *model, text string) {
	p.filter = text
	p.resetCursor()
	p.arrange()
}
