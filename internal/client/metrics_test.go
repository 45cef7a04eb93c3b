package client_test

import (
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/tasklog"
)

// Metrics has the reports of all attempts, also after the task is retried.
func TestMetrics(t *testing.T) {
	s := apitest.Start(t, nil)
	c := s.Client(t)
	w := s.ConnectWorker(t, "w1")
	job, err := c.Submit(t.Context(), &muster.Spec{Tasks: []muster.TaskSpec{{Name: "train", Kind: muster.KindNoop, Retries: muster.Retries{Max: 1}}}}, client.SubmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i, outcome := range []muster.Outcome{muster.AttemptFailed, muster.AttemptSucceeded} {
		id := w.StartNext()
		size := int64(0)
		for k := range 100 {
			step := "one"
			if k == 99 {
				step = "last"
			}
			data := `{"progress":0.5,"step":"` + step + `","metrics":{"loss":` + string(rune('1'+i)) + `}}`
			if size, err = s.Logs.Append(t.Context(), id, size, apitest.EncodeRecord(tasklog.Progress, data)); err != nil {
				t.Fatal(err)
			}
		}
		w.Finish(id, outcome, size)
	}
	for range c.Events(t.Context(), client.EventQuery{Job: job.ID}) {
		if job, err = c.Job(t.Context(), job.ID); err != nil || job.State.Final() {
			break
		}
	}
	m, err := c.Metrics(t.Context(), muster.TaskID{Job: job.ID}, 10)
	if err != nil || len(m.Attempts) != 2 {
		t.Fatalf("%+v, %v", m, err)
	}
	for i, a := range m.Attempts {
		last := a.Points[len(a.Points)-1]
		if a.Attempt != i+1 || a.Taken != 100 || len(a.Points) > 10 || *last.Step != "last" || last.Metrics["loss"] != float64(i+1) {
			t.Errorf("attempt %d: %+v", i+1, a)
		}
	}
	if _, err := c.Metrics(t.Context(), muster.TaskID{Job: 99}, 0); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("unknown task: %v", err)
	}
}
