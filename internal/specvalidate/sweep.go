package specvalidate

import (
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
)

// sweep checks a sweep. One that is valid with search: grid is a matrix by now.
func (v *validator) sweep(t *muster.TaskSpec) {
	s := t.Sweep
	if t.Array != nil || t.Matrix != nil {
		v.add("sweep", "make the other values parameters of the sweep", "a sweep cannot have an array or a matrix")
	}
	if n := len(s.Parameters); n == 0 || n > maxAxes {
		v.add("sweep.parameters", "", "a sweep must have 1 to %d parameters, this one has %d", maxAxes, n)
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(s.Parameters)) {
		p, at := s.Parameters[name], "sweep.parameters."+muster.Truncate(name)
		v.axisName(at, name)
		lower := strings.ToLower(name)
		switch {
		case lower == muster.TrialAxis:
			v.add(at, "use another name", "the name %s is reserved for the number of the trial", name)
		case seen[lower]:
			v.add(at, "", "duplicate parameter")
		}
		seen[lower] = true
		if problem := p.Check(); problem != "" {
			v.add(at, "", "%s", problem)
		} else if p.Values != nil {
			v.axis(at, p.Values)
		} else if s.Search == muster.SearchGrid && p.Step == 0 {
			v.add(at, "add step, list the values, or write search: random", "a grid has no end of values")
		}
	}
	switch s.Search {
	case muster.SearchRandom:
		if s.Trials < 1 || s.Trials > muster.MaxTrials {
			v.add("sweep.trials", "", "%d is not a number of trials: write 1 to %d", s.Trials, muster.MaxTrials)
		}
	case muster.SearchGrid:
		if s.Trials != 0 || s.Seed != 0 {
			v.add("sweep.trials", "leave it out, or write search: random", "a grid has as many trials as combinations, and no seed")
		}
	default:
		v.add("sweep.search", muster.DidYouMean(s.Search, []string{muster.SearchGrid, muster.SearchRandom}), "%q is not a search: write grid or random", muster.Truncate(s.Search))
	}
}
