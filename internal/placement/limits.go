package placement

import (
	"slices"

	"github.com/muster-dev/muster"
)

// features is a set of muster.SpecFeatures, by their positions.
type features uint32

// featuresOf returns the set that a list names. Others, such as muster.RunFeatures, are left out.
func featuresOf(list []string) (set features) {
	for _, name := range list {
		if i := slices.Index(muster.SpecFeatures, name); i >= 0 {
			set |= 1 << i
		}
	}
	return set
}

// names lists the features of a set in order.
func (set features) names() []string {
	var list []string
	for i, name := range muster.SpecFeatures {
		if set&(1<<i) != 0 {
			list = append(list, name)
		}
	}
	return list
}

// Limits counts what the workers of a fleet lack, and the projects that some of them serve
// alone. Needs are told apart by these features and projects only, so that a fleet without such
// workers has no more classes of tasks. The zero value is of a fleet without workers.
type Limits struct {
	lacks    [32]int // workers that lack the feature, by its position
	lacked   features
	projects map[string]int // workers that name the project
}

// Count enters a worker (sign 1), or strikes out one that was entered before (sign -1). It
// reports whether Needs that were made before may have become too coarse: ask Current.
func (l *Limits) Count(w *muster.Worker, sign int) (refined bool) {
	for i, set := 0, featuresOf(w.UnsupportedFeatures); set != 0; i, set = i+1, set>>1 {
		if set&1 == 0 {
			continue
		}
		l.lacks[i] += sign
		switch bit := features(1) << i; {
		case l.lacks[i] == 0:
			l.lacked &^= bit
		case l.lacked&bit == 0:
			l.lacked |= bit
			refined = true
		}
	}
	for i, name := range w.Projects {
		if slices.Contains(w.Projects[:i], name) {
			continue
		}
		if l.projects == nil {
			l.projects = map[string]int{}
		}
		l.projects[name] += sign
		switch l.projects[name] {
		case 0:
			delete(l.projects, name)
		case sign: // it is the first
			refined = true
		}
	}
	return refined
}

// Need makes the Need of the tasks of a normalized stage of a project.
func (l *Limits) Need(project string, t *muster.TaskSpec) *Need {
	uses, project := l.relevant(project, t)
	return newNeed(t, uses, project)
}

// Current reports whether Need would still return n's equal.
func (l *Limits) Current(n *Need, project string, t *muster.TaskSpec) bool {
	uses, project := l.relevant(project, t)
	return n.features == uses && n.project == project
}

// relevant returns what matters of a stage: the features that some worker lacks, and its project if
// some worker names it.
func (l *Limits) relevant(project string, t *muster.TaskSpec) (features, string) {
	var uses features
	if l.lacked != 0 {
		uses = featuresOf(muster.Features(t)) & l.lacked
	}
	if l.projects[project] == 0 {
		project = ""
	}
	return uses, project
}
