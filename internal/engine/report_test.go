package engine

import (
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/sched"
)

// TestLargestReportsAreAccepted checks that the session and the scheduler have the same limits for reports: the scheduler does not drop a
// report that the session accepts.
func TestLargestReportsAreAccepted(t *testing.T) {
	t.Parallel()
	carried := 0
	for _, outcome := range []muster.Outcome{
		muster.AttemptSucceeded, muster.AttemptFailed, muster.AttemptTimedOut, muster.AttemptCancelled, muster.AttemptRejected, muster.AttemptLost,
	} {
		for _, reason := range append([]muster.Reason{muster.NoReason}, muster.Reasons...) {
			st := sched.New(sched.Config{})
			now := muster.Time(1_000_000)
			attempt := muster.AttemptID{Task: muster.TaskID{Job: 1}, N: 1}
			spec := &muster.Spec{Name: "job", Project: "p", Tasks: []muster.TaskSpec{{Name: "a", Kind: muster.KindNoop}}}
			worker := muster.Worker{ID: "w", Name: "w", Kinds: []string{muster.KindNoop}, Resources: muster.Resources{Slots: 1}}
			for _, ev := range []sched.Event{sched.Joined{Worker: worker}, sched.Submit{ID: 1, Spec: spec}} {
				if err := st.Apply(now, ev); err != nil {
					t.Fatal(err)
				}
			}
			st.Place(now)
			report := muster.Report{Attempt: attempt, Outcome: outcome, Reason: reason, FinishedAt: now}
			refused := link.CheckReport(&report)
			if refused == nil {
				carried++
				if err := st.Apply(now, sched.Finished{Worker: "w", Report: report}); err != nil {
					t.Errorf("%s, %q: %v", outcome, reason, err)
				}
			} else if outcome != muster.AttemptRejected {
				t.Errorf("%s, %q: %v", outcome, reason, refused)
			}
			if err := st.Check(); err != nil {
				t.Error(err)
			}
		}
	}
	if carried == 0 {
		t.Error("the link carries no report")
	}
}
