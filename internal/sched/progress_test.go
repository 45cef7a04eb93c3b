package sched_test

import (
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

// Progress is published at once, and its rows are written together some seconds later, or with the next
// change of the task.
func TestProgressIsWrittenLater(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w")
	job := d.submit(stage("a"))
	d.start(job, 0)
	report := func(share float64) {
		t.Helper()
		d.do(sched.Progressed{Worker: w, Progress: muster.Progress{Attempt: d.attempt(job, 0), Progress: &share, Metrics: map[string]float64{"loss": 1 - share}}})
		if n := len(d.last.Rows.Tasks); n != 0 {
			t.Errorf("%d rows are written for a progress", n)
		}
		if e := d.last.Events; len(e) != 1 || *e[0].Detail.Progress != share {
			t.Errorf("the events are %+v", e)
		}
		if p := d.last.Progress; len(p) != 1 || *p[0].Progress != share || p[0].Metrics["loss"] != 1-share || p[0].Attempt != 1 {
			t.Errorf("the progress is %+v", p)
		}
	}
	written := func(share float64) {
		t.Helper()
		row := d.task(job, 0)
		if row.Progress == nil || *row.Progress != share || row.Metrics["loss"] != 1-share {
			t.Errorf("the row has %v %v", row.Progress, row.Metrics)
		}
	}
	report(0.25)
	report(0.5)
	d.advance(muster.Duration(11 * time.Second))
	written(0.5)
	report(0.75)
	d.finish(job, 0, muster.AttemptSucceeded)
	written(0.75)
}
