package placement

import (
	"reflect"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
)

// TestEveryCountedFilterIsExplained requests twice as much of each amount as a worker has free.
func TestEveryCountedFilterIsExplained(t *testing.T) {
	for f := range filterNames {
		if name := Filter(f).String(); name == "" && Filter(f) != Fits {
			t.Errorf("filter %d has no name", f)
		}
	}
	b := NewWorkerUsage(&muster.Worker{Name: "w"})
	for _, f := range counted {
		if !f.requested() {
			continue
		}
		b.offers, b.free = amounts{}, amounts{}
		b.offers[f], b.free[f] = 2000, 1000
		n := &Need{}
		n.amounts[f] = 2000
		_, advice, ok := b.Relax(n, f, false)
		if !ok {
			t.Errorf("%s: there is no advice", f)
		}
		for what, text := range map[string]string{"explanation": b.Explain(n, f), "shortage": b.Shortage(n, f), "advice": advice} {
			if !strings.Contains(text, f.String()) {
				t.Errorf("%s: the %s is %q", f, what, text)
			}
		}
		if short := b.shortfall(n, f, false); short != 1000 {
			t.Errorf("%s: it is short by %g", f, short)
		}
		if free := b.Free(); reflect.ValueOf(free).IsZero() {
			t.Errorf("%s: Free returns nothing of it", f)
		}
	}
}
