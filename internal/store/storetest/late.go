package storetest

import (
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

func lateReports(t *testing.T, f *fixture) {
	t.Helper()
	const tasks = store.MaxLateReports + 20
	var want []muster.LateReport
	for id := range muster.JobID(2) {
		j, g := job(id+1, tasks)
		g.Materialized = tasks
		rows := make([]muster.Task, tasks)
		for i := range rows {
			rows[i] = row(&j, &g, i, muster.Succeeded)
			rows[i].Attempt, rows[i].Worker = 2, "w2"
		}
		recount(&j, &g, rows)
		f.mustCommit(t, muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}, Tasks: rows})
	}
	report := func(job muster.JobID, num, n int, w muster.WorkerID) muster.LateReport {
		code := 3
		return muster.LateReport{Worker: w, At: 7, Report: muster.Report{
			Attempt: muster.AttemptID{Task: muster.TaskID{Job: job, Num: num}, N: n}, Outcome: muster.AttemptFailed, Reason: muster.ExitCode, ExitCode: &code,
			Message: "exit code 3", FinishedAt: 5,
		}}
	}
	foreign := report(1, 0, 1, "w2") // the attempt was assigned to w1
	foreign.Message = "of another worker"
	past := muster.Attempt{ID: muster.AttemptID{Task: muster.TaskID{Job: 1}, N: 1}, Worker: "w1", Outcome: muster.AttemptLost, FinishedAt: 5}
	rows := muster.Rows{Attempts: []muster.Attempt{past}, LateReports: []muster.LateReport{
		report(1, 0, 1, "w1"), foreign, report(1, 0, 2, "w1"), report(1, 0, 3, "w2"), report(1, tasks, 1, "w2"), report(9, 0, 1, "w1"),
	}}
	f.mustCommit(t, rows)
	want = append(want, rows.LateReports[0])
	check := func(name string, job muster.JobID, want []muster.LateReport) {
		t.Helper()
		got := must(f.LateReports(t.Context(), job))(t)
		wantEqual(t, name, want, got)
	}
	check("reports of known attempts", 1, want)
	check("an unknown job's", 9, nil)
	rows = muster.Rows{}
	for i := range tasks {
		rows.LateReports = append(rows.LateReports, report(1, i, 2, "w2"))
	}
	f.mustCommit(t, rows)
	want = append(want, rows.LateReports[:store.MaxLateReports-1]...)
	f.reopen(t)
	check("the first hundred", 1, want)
	check("another job's", 2, nil)
	rows = muster.Rows{LateReports: []muster.LateReport{report(2, 5, 2, "w2")}}
	f.mustCommit(t, rows)
	check("another job's report", 2, rows.LateReports)
}
