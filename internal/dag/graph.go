package dag

import (
	"slices"

	"github.com/muster-dev/muster"
)

// Graph is a normalized spec with an index of its stages: what it does for one stage takes time that does not depend on how many others
// the job has. It is not
// safe for use by several goroutines.
type Graph struct {
	spec   *muster.Spec
	stages map[string]int // numbers by name
	own    bool           // spec is a copy

	// Of the stage that is being resolved:
	read int            // bytes of results
	best map[string]int // elements by the text of their choice
}

// New returns the graph of a normalized spec.
func New(s *muster.Spec) *Graph {
	g := &Graph{spec: s, stages: make(map[string]int, len(s.Tasks))}
	for i := range s.Tasks {
		g.stages[s.Tasks[i].Name] = i
	}
	return g
}

// SetElements sets the array of a stage whose array is a reference: resolved is its spec with elements. From then on references to the
// stage are resolved with them.
func (g *Graph) SetElements(stage int, resolved *muster.TaskSpec) {
	if !g.own {
		spec := *g.spec
		spec.Tasks = slices.Clone(spec.Tasks)
		g.spec, g.own = &spec, true
	}
	g.spec.Tasks[stage].Array = resolved.Array
}

// forget begins to resolve a stage: the results of others may have changed since the last one.
func (g *Graph) forget() { g.read, g.best = 0, nil }

// isRef reports whether a body refers to a stage of the job.
func (g *Graph) isRef(body string) bool {
	r, ok := parse(body)
	if !ok {
		return false
	}
	_, known := g.stages[r.stage]
	return known
}

// Needs returns the stages that each stage needs, without those that do not exist.
func (g *Graph) Needs() [][]int {
	needs := make([][]int, len(g.spec.Tasks))
	for i := range g.spec.Tasks {
		for _, need := range g.spec.Tasks[i].Needs {
			if j, ok := g.stages[need]; ok {
				needs[i] = append(needs[i], j)
			}
		}
	}
	return needs
}

// Order tells which stages have ended when another one starts.
type Order struct {
	needs  [][]int
	sorted []int // every stage after those that it needs
	cyclic bool
	before map[int][]uint64 // for blocks of 64 stages: which of them each stage comes after
}

// NewOrder returns the order of stages, where needs has those that each one needs.
func NewOrder(needs [][]int) *Order {
	sorted, acyclic := TopoSort(needs)
	return &Order{needs: needs, sorted: sorted, cyclic: !acyclic, before: map[int][]uint64{}}
}

// Before reports whether a stage has ended when another one starts. If stages need each other in a cycle, which is a problem of its own,
// it is true for all. Questions about stages that are not needed directly take one pass over all needs for each 64 of those stages.
func (o *Order) Before(stage, other int) bool {
	if o.cyclic || slices.Contains(o.needs[other], stage) {
		return true
	}
	block := stage / 64
	before, ok := o.before[block]
	if !ok {
		before = make([]uint64, len(o.needs))
		for _, i := range o.sorted {
			for _, n := range o.needs[i] {
				before[i] |= before[n]
				if n/64 == block {
					before[i] |= 1 << (n % 64)
				}
			}
		}
		o.before[block] = before
	}
	return before[other]>>(stage%64)&1 != 0
}

// TopoSort returns the stages in an order in which each comes after those that it needs,
// where needs has these for every stage. ok is false if there is a cycle.
func TopoSort(needs [][]int) (order []int, ok bool) {
	unmet := make([]int, len(needs))   // needs that are not in the order yet
	first := make([]int, len(needs)+1) // of the dependents of each stage
	order = make([]int, 0, len(needs))
	for i := range needs {
		for _, n := range needs[i] {
			first[n+1]++
		}
		if unmet[i] = len(needs[i]); unmet[i] == 0 {
			order = append(order, i)
		}
	}
	for i := range needs {
		first[i+1] += first[i]
	}
	dependents, next := make([]int, first[len(needs)]), slices.Clone(first)
	for i := range needs {
		for _, n := range needs[i] {
			dependents[next[n]] = i
			next[n]++
		}
	}
	for k := 0; k < len(order); k++ {
		for _, r := range dependents[first[order[k]]:first[order[k]+1]] {
			if unmet[r]--; unmet[r] == 0 {
				order = append(order, r)
			}
		}
	}
	return order, len(order) == len(needs)
}
