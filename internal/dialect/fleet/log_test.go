package fleet_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect/fleet"
)

// Of a long log the beginning and the end are kept, also after a restart.
func TestLogKeepsItsEnd(t *testing.T) {
	w := newEnv(t, nil)
	worker := w.register(newFacts("one"))
	job := w.submit(func(s *muster.Spec) { s.Tasks[0].LogCap = muster.MinLogCap })
	task := w.waitOffered(worker)
	write := func(from, to int) {
		t.Helper()
		for i := from; i < to; i += 100 {
			var lines []string
			for k := range 100 {
				lines = append(lines, fmt.Sprintf("%d %s", i+k, strings.Repeat("x", 80)))
			}
			if err := task.Log(t.Context(), lines...); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(0, 5000)
	w.stop()
	w.start()
	task = w.fleet.Task(task.ID())
	write(5000, 10_000)
	if err := task.Finish(t.Context(), fleet.FinalReport{Outcome: muster.AttemptSucceeded}); err != nil {
		t.Fatal(err)
	}
	w.waitState(job, muster.Succeeded)
	for _, err := range w.client.Logs(t.Context(), muster.TaskID{Job: job.ID}, client.LogOptions{Follow: true}) {
		if err != nil { // a follower may see several gaps, one for each time when it is ahead of the copy
			t.Fatal(err)
		}
	}
	size, lines, gaps, last := 0, 0, 0, ""
	for line, err := range w.client.Logs(t.Context(), muster.TaskID{Job: job.ID}, client.LogOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(line.Data), "is left out here") {
			gaps++
			continue
		}
		last = string(line.Data)
		if want := fmt.Sprintf("%d x", lines); gaps == 0 && !strings.HasPrefix(last, want) {
			t.Fatalf("line %d is %q", lines, last)
		}
		lines++
		size += len(line.Data)
	}
	if gaps != 1 || !strings.HasPrefix(last, "9999 x") || size > int(muster.MinLogCap) || size < int(muster.MinLogCap)*6/10 {
		t.Errorf("the log has %d bytes, %d gaps and ends with %q", size, gaps, last)
	}
}
