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
	after, before := New(spec), New(job.Spec)
	start, known := after.stages[from]
	if _, had := before.stages[from]; !known || !had {
		names := make([]string, len(job.Spec.Tasks))
		for i := range job.Spec.Tasks {
			names[i] = job.Spec.Tasks[i].Name
		}
		return fail(muster.Invalid, "there is no such stage: it has %s", muster.Truncate(strings.Join(names, ", ")))
	}
	needs := after.Needs()
	order := NewOrder(needs)
	if order.cyclic {
		return fail(muster.Invalid, "its stages need each other in a cycle")
	}
	reused := make([]bool, len(spec.Tasks))
	var list []int
	for _, i := range order.sorted {
		t := &spec.Tasks[i]
		old, had := before.stages[t.Name]
		same := had && sameJSON(&job.Spec.Tasks[old], t)
		done := had && job.Groups[old].Counts[muster.Succeeded] == int64(job.Groups[old].Size)
		needed := order.Before(i, start)
		switch {
		case needed && !same:
			return fail(muster.Invalid, "stage %s, which it needs, is changed: name that one with --from", t.Name)
		case needed && !done:
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

func sameJSON(a, b *muster.TaskSpec) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}
