package sched_test

import (
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

// Numbers of attempts that a worker still knows but the server does not, as after a restored backup, are not reused:
// neither for a job nor, on that worker, for an attempt.
func TestNumbersOfLostJobsAreSkipped(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	of := func(job muster.JobID, num, n int) muster.AttemptID {
		return muster.AttemptID{Task: muster.TaskID{Job: job, Num: num}, N: n}
	}
	known := d.submit(stage("a"))
	d.do(sched.Joined{
		Worker: offer("w"), Held: []muster.AttemptID{of(known, 0, 1), of(7, 3, 2)},
		Stale: []muster.AttemptID{of(known, 0, 2), of(9, 0, 1), of(9_000_000_000, 0, 1)},
	})
	if d.last.Rows.NextJob != 10 || d.s.NextJob() != 10 {
		t.Errorf("the next job gets number %d, and %d is to be stored; want 10", d.s.NextJob(), d.last.Rows.NextJob)
	}
	if len(d.commands) != 1 {
		t.Fatalf("the worker is sent %+v", d.commands)
	}
	if as, ok := d.commands[0].(sched.Assign); !ok || as.Attempt != of(known, 0, 3) {
		t.Errorf("the worker that knows attempts 1 and 2 gets %+v", d.commands[0])
	}
	// Once it knows nothing else, no more is skipped.
	second := d.submit(stage("b"))
	d.do(sched.Disconnected{Worker: "w"}, sched.Joined{Worker: offer("w"), Held: []muster.AttemptID{of(known, 0, 3), of(second, 0, 1)}})
	if d.s.NextJob() != second+1 {
		t.Errorf("numbers were skipped again: the next is %d", d.s.NextJob())
	}
}
