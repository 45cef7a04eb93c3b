package top

import (
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/live"
)

// localList is a list that is read as a whole, and filtered and sorted locally.
type localList[T any] struct {
	pacer
	list[T]

	searchText   func(v *T) []string // for the filter
	emptyMessage string
	filter       string
	all          []T // rows has the matches of filter
}

func (p *localList[T]) close() {}

func (p *localList[T]) invalidate(b live.Batch) {
	p.stale = p.stale || b.Resync || slices.ContainsFunc(b.Events, func(e muster.Event) bool { return e.Type == muster.EventWorker })
}

func (p *localList[T]) arrange() {
	p.rows = p.rows[:0]
	words := strings.Fields(strings.ToLower(p.filter))
	for i := range p.all {
		text := strings.ToLower(strings.Join(p.searchText(&p.all[i]), " "))
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) }) {
			p.rows = append(p.rows, p.all[i])
		}
	}
	p.list.arrange()
}

func (p *localList[T]) draw(m *model, width, height int) []string {
	if len(p.rows) == 0 {
		return m.emptyLines(&p.pacer, p.filter != "", p.emptyMessage)
	}
	return p.list.draw(m, width, height, "")
}

// handleRowKey handles a key. Keys that are not for the list go to act, with the selected row.
func (p *localList[T]) handleRowKey(k string, act func(v *T) (tea.Cmd, bool)) (tea.Cmd, bool) {
	switch {
	case p.move(k, len(p.rows)):
		return nil, true
	case p.handleSortKey(k):
		p.by = max(p.by, 0) // there is no server order
		p.resetCursor()
		p.arrange()
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
