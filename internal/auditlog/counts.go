package auditlog

import (
	"maps"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/audit"
)

// Window is the time in which identical denials, failures and uploads are one record.
const Window = muster.Duration(time.Minute)

// Records of denials and failures that are not grouped: at once budgetBurst, and then one per budgetInterval. Callers without a valid key and
// callers with one have separate budgets, so that a flood of guessed tokens does not hide what known callers do. Beyond the budget, all denials
// of one key, or of all callers without one, are one record per Window.
const (
	budgetBurst    = 200
	budgetInterval = muster.Duration(5 * time.Second)
)

// Counted groups are bounded in number: each but the first of a key took one of the budget, or is of an operation that needs a valid key.
type group struct {
	key, address, via, operation, object, project string
	outcome                                       audit.Outcome
	status                                        int
}

func groupOf(r *audit.Record) group {
	return group{r.Key, r.Address, r.Via, r.Operation, r.Object, r.Project, r.Outcome, r.Status}
}

// counts groups identical records of one Window. It is not safe for concurrent use.
type counts struct {
	groups  map[group]*audit.Record // occurrences that no record stands for yet; Count may be 0
	others  map[string]*audit.Record
	budgets [2]budget
	ends    muster.Time // of the Window; 0 if nothing is counted
}

func newCounts() counts {
	return counts{groups: map[group]*audit.Record{}, others: map[string]*audit.Record{}}
}

// add counts a record. It returns true if the record is to be written now.
func (c *counts) add(r *audit.Record) (now bool) {
	if c.ends == 0 {
		c.ends = r.At.Add(Window)
	}
	key := groupOf(r)
	if g, ok := c.groups[key]; ok {
		count(g, r)
		return false
	}
	b := &c.budgets[0]
	if r.Key != "" {
		b = &c.budgets[1]
	}
	if b.take(r.At) {
		g := *r
		g.Count = 0
		c.groups[key] = &g
		return true
	}
	other, ok := c.others[r.Key]
	if !ok {
		other = &audit.Record{
			At: r.At, Key: r.Key, KeyName: r.KeyName, Role: r.Role, Worker: r.Worker, Operation: audit.OpOther, Outcome: r.Outcome,
			Detail: "different operations, objects or addresses, too many for a record of each",
		}
		c.others[r.Key] = other
	}
	count(other, r)
	return false
}

func count(g, r *audit.Record) {
	if g.Count == 0 {
		g.At = r.At
	}
	g.Count++
	g.Until = max(g.Until, r.At)
}

// end ends the Window and returns its records, the oldest first.
func (c *counts) end() []audit.Record {
	var list []audit.Record
	for _, g := range slices.Concat(slices.Collect(maps.Values(c.groups)), slices.Collect(maps.Values(c.others))) {
		if g.Count > 0 {
			if g.Count == 1 {
				g.Until = 0
			}
			list = append(list, *g)
		}
	}
	slices.SortFunc(list, func(a, b audit.Record) int { return int(a.At - b.At) })
	clear(c.groups)
	clear(c.others)
	c.ends = 0
	return list
}

// budget is a token bucket.
type budget struct {
	used int
	at   muster.Time // when the last one was regained
}

func (b *budget) take(now muster.Time) bool {
	if regained := int(now.Sub(b.at) / budgetInterval); regained > 0 {
		b.used = max(0, b.used-regained)
		b.at = now
	}
	if b.used >= budgetBurst {
		return false
	}
	b.used++
	return true
}
