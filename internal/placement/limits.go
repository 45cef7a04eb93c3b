package placement

import (
	"slices"

	"github.com/muster-dev/muster"
)

// features is a set of muster.SpecFeatures, by their positions.
type features uint32

// featuresOf returns the set that a list names. It ignores other names, such as muster.RunFeatures.
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

// Limits counts the features that workers of a fleet lack, and the projects that they are
// restricted to. Only these features and projects make Needs differ, so that a fleet without
// such workers has fewer shapes. The zero value is of a fleet without workers.
type Limits struct {
	lacks    [32]int // number of workers that lack a feature, by its position
	lacked   features
	projects map[string]int // number of workers that name a project
}

// Count adds a worker (sign 1), or removes one that was added (sign -1). It reports whether
// earlier Needs may have become too coarse, which Current checks.
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
		case sign: // the first one
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

// Current reports whether Need would still return an equal of n.
func (l *Limits) Current(n *Need, project string, t *muster.TaskSpec) bool {
	uses, project := l.relevant(project, t)
	return n.features == uses && n.project == project
}

// relevant returns the features of a stage that some worker lacks, and its project if some worker
// names it.
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
