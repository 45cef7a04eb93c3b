package engine_test

import (
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/event"
)

// TestHugeArrays changes the largest arrays in steps that do not grow with them,
// and refuses what would hold the engine up.
func TestHugeArrays(t *testing.T) {
	r := start(t)
	const n = muster.MaxArray
	id := r.submit(t, n)
	refused := func(what string, err error) {
		t.Helper()
		if muster.CodeOf(err) != muster.TooLarge {
			t.Errorf("%s: %v", what, err)
		}
	}
	done := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("cancel the middle", r.Cancel(t.Context(), id, []event.Span{{First: 1, Last: n - 2}}))
	done("cancel some of the middle", r.Cancel(t.Context(), id, []event.Span{{First: 100, Last: 199}}))
	done("cancel all, in two parts", r.Cancel(t.Context(), id, []event.Span{{First: n / 2, Last: n - 1}, {First: 0, Last: n/2 - 1}}))
	refused("retry all one by one", r.Retry(t.Context(), id, []event.Span{{First: 0, Last: n - 1}}))
	done("retry some", r.Retry(t.Context(), id, []event.Span{{First: 150, Last: 249}}))
	done("retry the others", r.Retry(t.Context(), id, nil))
	job, err := r.store.Job(t.Context(), id)
	if err != nil || job.Counts[muster.Queued] != n {
		t.Errorf("of %d tasks %d are queued (%v)", n, job.Counts[muster.Queued], err)
	}
}
