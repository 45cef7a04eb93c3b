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

// local is a list that is read as a whole, and filtered and sorted here.
type local[T any] struct {
	reader
	list
	order

	of     *localRows[T]
	filter string
	all    []T
	rows   []T // of all, those that match
}

// localRows says what the rows of a local list are.
type localRows[T any] struct {
	columns []column
	compare []func(a, b *T) int // as the columns do: what matters most first; nil for those that do not sort
	id      func(v *T) string
	title   func(v *T) string   // sorts what is equal otherwise
	words   func(v *T) []string // what a filter looks into
	cells   func(v *T, now time.Time) []string
	none    string // what an empty list says
}

func newLocal[T any](of *localRows[T]) local[T] {
	return local[T]{of: of, order: order{by: 0}, reader: reader{every: 3 * time.Second}}
}

func (p *local[T]) close() {}

func (p *local[T]) changed(b live.Batch) {
	p.stale = p.stale || b.All || slices.ContainsFunc(b.Events, func(e muster.Event) bool { return e.Type == muster.EventWorker })
}

func (p *local[T]) arrange() {
	p.rows = p.rows[:0]
	words := strings.Fields(strings.ToLower(p.filter))
	for i := range p.all {
		text := strings.ToLower(strings.Join(p.of.words(&p.all[i]), " "))
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) }) {
			p.rows = append(p.rows, p.all[i])
		}
	}
	slices.SortStableFunc(p.rows, func(a, b T) int {
		c := p.of.compare[p.by](&a, &b)
		if p.reverse {
			c = -c
		}
		return cmp.Or(c, cmp.Compare(p.of.title(&a), p.of.title(&b)))
	})
	ids := make([]string, len(p.rows))
	for i := range p.rows {
		ids[i] = p.of.id(&p.rows[i])
	}
	p.hold(ids)
}

func (p *local[T]) draw(m *model, width, height int) []string {
	if len(p.rows) == 0 {
		return m.empty(&p.reader, p.filter != "", p.of.none)
	}
	p.fit(height, len(p.rows), "")
	return m.table(p.of.columns, p.order, visible(&p.list, p.rows, func(v *T) []string { return p.of.cells(v, m.now) }), p.sel-p.top, width, "")
}

// visible are the rows of a list that fit.
func visible[T any](l *list, all []T, cells func(*T) []string) []row {
	rows := make([]row, 0, l.height)
	for i := l.top; i < min(len(all), l.top+l.height); i++ {
		rows = append(rows, row{cells: cells(&all[i])})
	}
	return rows
}

// steer handles the keys that move the cursor and sort.
func (p *local[T]) steer(k string) bool {
	switch {
	case p.move(k, len(p.rows)):
		if v := p.selected(); v != nil {
			p.id = p.of.id(v)
		}
	case p.sortKey(k, p.of.columns):
		p.by = max(p.by, 0) // there is no order of the server
		p.first()
		p.arrange()
	default:
		return false
	}
	return true
}

// selected is the row with the cursor; nil if there is none.
func (p *local[T]) selected() *T {
	if p.sel >= len(p.rows) {
		return nil
	}
	return &p.rows[p.sel]
}

// onSelected handles a key: act does what is not for the list itself.
func (p *local[T]) onSelected(k string, act func(v *T) (tea.Cmd, bool)) (tea.Cmd, bool) {
	if p.steer(k) {
		return nil, true
	}
	if v := p.selected(); v != nil {
		return act(v)
	}
	return nil, false
}

func (p *local[T]) prompt() (label, text string) { return "filter", p.filter }

func (p *local[T]) search(_ *model, text string) {
	p.filter = text
	p.first()
	p.arrange()
}
