package store_test

import (
	"context"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// A page of a huge array reads about as many rows as it has tasks, wherever it
// starts and for all filters.
func TestPageReadsOnlyOnePage(t *testing.T) {
	t.Parallel()
	const size, limit = 1_000_000, 100
	spec := muster.TaskSpec{Name: "s", Kind: muster.KindNoop, Array: &muster.Array{Ranges: []muster.Range{{First: 0, Last: size - 1, Step: 1}}}}
	counts := muster.Counts{muster.Queued: size - 1000, muster.Succeeded: 1000}
	job := &muster.Job{
		ID: 1, Spec: &muster.Spec{Tasks: []muster.TaskSpec{spec}},
		Groups: []muster.Group{{Job: 1, Size: size, Materialized: 1000, UnmaterializedState: muster.Queued, Counts: counts}},
	}
	for name, q := range map[string]store.TaskQuery{
		"all":            {},
		"over the edge":  {Cursor: "950"},
		"far":            {Cursor: "900000"},
		"queued":         {States: []muster.TaskState{muster.Queued}},
		"none are there": {States: []muster.TaskState{muster.Failed, muster.Waiting}},
	} {
		read := 0
		rows := func(_ context.Context, span store.Span, states []muster.TaskState, limit int) (got []muster.Task, err error) {
			for num := span.First; num <= min(span.Last, 999) && len(got) < limit; num++ {
				if len(states) > 0 && states[0] != muster.Succeeded {
					break // all rows have succeeded
				}
				got = append(got, muster.Task{ID: muster.TaskID{Job: 1, Num: num}, Index: num, State: muster.Succeeded})
			}
			read += len(got) + 1
			return got, nil
		}
		q.Limit = limit
		got, _, err := store.PageTasks(t.Context(), q, job, rows)
		if err != nil {
			t.Fatal(err)
		}
		if read > limit+5 {
			t.Errorf("%s: a page of %d tasks read %d rows", name, len(got), read)
		}
		if len(got) != limit && name != "none are there" {
			t.Errorf("%s: a page of %d tasks, want %d", name, len(got), limit)
		}
	}
}
