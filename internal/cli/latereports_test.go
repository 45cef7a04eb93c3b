package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/client"
)

// TestJobShowsLateReports has two jobs with late reports, and one without.
func TestJobShowsLateReports(t *testing.T) {
	t.Setenv("MUSTER_CONFIG", filepath.Join(t.TempDir(), "context.json"))
	s := apitest.Start(t, nil)
	t.Setenv("MUSTER_SERVER", s.URL)
	t.Setenv("MUSTER_TOKEN", apitest.AdminToken)
	c := s.Client(t)
	w := s.ConnectWorker(t, "w1")
	var jobs []string
	for _, late := range []bool{true, false, true} {
		job, err := c.Submit(t.Context(), &muster.Spec{Tasks: []muster.TaskSpec{{Kind: muster.KindNoop}}}, client.SubmitOptions{})
		if err != nil {
			t.Fatal(err)
		}
		id := w.StartNext()
		w.Finish(id, muster.AttemptSucceeded, 0)
		if _, err := c.Wait(t.Context(), job.ID); err != nil {
			t.Fatal(err)
		}
		if late {
			w.Finish(id, muster.AttemptFailed, 0)
			w.Finish(muster.AttemptID{Task: id.Task, N: 7}, muster.AttemptFailed, 0) // it never was
		}
		jobs = append(jobs, job.ID.String())
	}
	show := func(args ...string) string {
		t.Helper()
		a, out, errs := newApp("")
		if status := a.Run(t.Context(), a.commands(), append([]string{"muster", "job"}, args...)); status != 0 {
			t.Fatalf("%v ended with %d: %s", args, status, errs)
		}
		return out.String() + errs.String()
	}
	if _, err := s.Engine.Workers(t.Context()); err != nil { // decided after the reports
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(show(append([]string{"--late"}, jobs...)...)), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "ATTEMPT") {
		t.Fatalf("the late reports are:\n%s", strings.Join(lines, "\n"))
	}
	for i, job := range []string{jobs[0], jobs[2]} {
		fields := strings.Fields(lines[i+1])
		if len(fields) < 6 || fields[0] != job+".0#1" || fields[1] != "w1" || fields[2] != "failed" || !strings.HasSuffix(lines[i+1], "exit code 1") {
			t.Errorf("the late report of job %s is %q", job, lines[i+1])
		}
	}
	if out := show("--late", jobs[1]); strings.TrimSpace(out) != "no late reports" {
		t.Errorf("a job without late reports shows %q", out)
	}
	if out := show(jobs[0]); strings.Contains(out, "ATTEMPT") {
		t.Errorf("without --late the job shows its late reports:\n%s", out)
	}
}
