package dag

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// Reusable returns the stages of a normalized spec whose results are those of an earlier job, if it runs again from a stage: all that did
// succeed, except this stage, those that need it, directly or not, and stages that the spec changes. The stages that it needs must be
// among them: else it is a Conflict.
func Reusable(job *muster.Job, spec *muster.Spec, from string) ([]int, error) {
	fail := func(code muster.Code, format string, args ...any) ([]int, error) {
		return nil, muster.Errorf(code, "job %s cannot be run again from stage "+muster.Truncate(from)+": "+format, append([]any{job.ID}, args...)...)
	}
	start := stageIndex(spec, from)
	if start < 0 || stageIndex(job.Spec, from) < 0 {
		names := make([]string, len(job.Spec.Tasks))
		for i := range job.Spec.Tasks {
			names[i] = job.Spec.Tasks[i].Name
		}
		return fail(muster.Invalid, "there is no such stage: it has %s", muster.Truncate(strings.Join(names, ", ")))
	}
	needs := needsOf(spec)
	order, ok := TopoSort(needs)
	if !ok {
		return fail(muster.Invalid, "its stages need each other in a cycle")
	}
	before := Upstream(needs, start)
	reused := make([]bool, len(spec.Tasks))
	var list []int
	for _, i := range order {
		t := &spec.Tasks[i]
		old := stageIndex(job.Spec, t.Name)
		same := old >= 0 && sameJSON(&job.Spec.Tasks[old], t)
		done := old >= 0 && job.Groups[old].Counts[muster.Succeeded] == int64(job.Groups[old].Size)
		switch {
		case before[i] && !same:
			return fail(muster.Invalid, "stage %s, which it needs, is changed: name that one with --from", t.Name)
		case before[i] && !done:
			return fail(muster.Conflict, "stage %s, which it needs, did not succeed", t.Name)
		}
		reused[i] = same && done && i != start && !slices.ContainsFunc(needs[i], func(n int) bool { return !reused[n] })
		if reused[i] {
			list = append(list, i)
		}
	}
	if len(list) > 0 && job.ArtifactsRemovedAt != 0 {
		return fail(muster.Conflict, "its artifacts were deleted on %s; run muster rerun %s without --from", job.ArtifactsRemovedAt.Std().Format(time.DateOnly), job.ID)
	}
	return list, nil
}

// needsOf returns the stages that each stage needs, without those that do not exist.
func needsOf(s *muster.Spec) [][]int {
	stages := make(map[string]int, len(s.Tasks))
	for i := range s.Tasks {
		stages[s.Tasks[i].Name] = i
	}
	needs := make([][]int, len(s.Tasks))
	for i := range s.Tasks {
		for _, need := range s.Tasks[i].Needs {
			if j, ok := stages[need]; ok {
				needs[i] = append(needs[i], j)
			}
		}
	}
	return needs
}

func sameJSON(a, b *muster.TaskSpec) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}
