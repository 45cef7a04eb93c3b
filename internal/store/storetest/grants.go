package storetest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

func grants(t *testing.T, f *fixture) {
	t.Helper()
	a, b, c := strings.Repeat("a", 64), strings.Repeat("b", 64), strings.Repeat("c", 64)
	alpha, beta, worker := store.ProjectGrantee("alpha"), store.ProjectGrantee("beta"), store.WorkerGrantee("alpha")
	check := func(h store.Grantee, sum string, size int64, granted bool) {
		t.Helper()
		if n, ok, err := f.BlobGrant(t.Context(), h, sum); n != size || ok != granted || err != nil {
			t.Errorf("grant of %.4s to %s: %d, %t, %v; want %d, %t", sum, h, n, ok, err, size, granted)
		}
	}
	check(alpha, a, -1, false)
	for range 2 { // granting again changes nothing
		noError(t, f.GrantBlobs(t.Context(), []store.Grantee{alpha, worker}, []store.Blob{{SHA256: a, Size: 7}, {SHA256: b, Size: 0}}))
	}
	check(alpha, a, 7, true)
	check(beta, a, 7, false)
	check(worker, a, 7, false)
	check(worker, b, 0, true)
	check(alpha, b, 0, false)

	j, g := job(1, 1)
	j.Project, g.Materialized = "beta", 1
	done := row(&j, &g, 0, muster.Succeeded)
	done.Attempt, done.Artifacts = 2, []muster.Artifact{{Name: "out", SHA256: c, Size: 9}}
	recount(&j, &g, []muster.Task{done})
	f.mustCommit(t, muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}, Tasks: []muster.Task{done}, Attempts: []muster.Attempt{{
		ID: muster.AttemptID{Task: done.ID, N: 1}, Outcome: muster.AttemptFailed, FinishedAt: 5, Artifacts: []muster.Artifact{{Name: "live/x", SHA256: b, Size: 0}},
	}}})
	f.reopen(t)
	check(beta, c, 9, true)
	check(beta, b, 0, true)
	check(alpha, c, 9, false)
	without, err := f.Ungranted(t.Context(), beta, []string{c, a, b, a})
	if diff := cmp.Diff([]string{a, a}, without); diff != "" || err != nil {
		t.Errorf("ungranted (-want +got): %s%v", diff, err)
	}
}

func cids(t *testing.T, f *fixture) {
	t.Helper()
	id := func(c string) string { return "Qm" + strings.Repeat(c, 44) }
	artifact := func(name, cid, hash string) muster.Artifact {
		return muster.Artifact{Name: name, CID: cid, SHA256: strings.Repeat(hash, 64), Size: 7}
	}
	// commit creates a job with one task that has the artifacts last, and an earlier attempt with the artifacts before.
	commit := func(n muster.JobID, last, before []muster.Artifact) {
		t.Helper()
		j, g := job(n, 1)
		g.Materialized = 1
		done := row(&j, &g, 0, muster.Succeeded)
		done.Attempt, done.Artifacts = 2, last
		recount(&j, &g, []muster.Task{done})
		f.mustCommit(t, muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}, Tasks: []muster.Task{done}, Attempts: []muster.Attempt{{
			ID: muster.AttemptID{Task: done.ID, N: 1}, Outcome: muster.AttemptFailed, FinishedAt: 1_500, Artifacts: before,
		}}})
	}
	wantContents := func(name string, want []store.Content, cid string) {
		t.Helper()
		wantEqual(t, name, want, must(f.Contents(t.Context(), store.ContentQuery{CID: cid, Limit: 10}))(t))
	}
	wantUnpinned := func(name string, after store.Content, limit int, want ...store.Content) {
		t.Helper()
		wantEqual(t, name, want, must(f.Unpinned(t.Context(), after, limit))(t))
	}
	content := func(n muster.JobID, name, cid, hash string) store.Content {
		return store.Content{CID: cid, Job: n, Name: name, SHA256: strings.Repeat(hash, 64), Size: 7}
	}
	commit(1, []muster.Artifact{artifact("a.pt", id("a"), "1"), artifact("log.txt", "", "2")}, []muster.Artifact{artifact("b.pt", id("b"), "3")})
	wantContents("one file", []store.Content{content(1, "a.pt", id("a"), "1")}, id("a"))
	wantContents("of an attempt that failed", []store.Content{content(1, "b.pt", id("b"), "3")}, id("b"))
	wantContents("an unknown CID", nil, id("c"))
	wantUnpinned("both", store.Content{}, 10, content(1, "a.pt", id("a"), "1"), content(1, "b.pt", id("b"), "3"))
	wantUnpinned("the first", store.Content{}, 1, content(1, "a.pt", id("a"), "1"))
	wantUnpinned("the second", content(1, "", id("a"), "1"), 10, content(1, "b.pt", id("b"), "3"))
	noError(t, f.SetPin(t.Context(), content(0, "", id("a"), "1"), store.Pinned))
	// The same file of another job is pinned already; another file with the same identifier is not.
	commit(2, []muster.Artifact{artifact("same.pt", id("a"), "1")}, nil)
	commit(3, []muster.Artifact{artifact("other.pt", id("a"), "9")}, nil)
	wantContents("of three jobs", []store.Content{content(3, "other.pt", id("a"), "9"), content(2, "same.pt", id("a"), "1"), content(1, "a.pt", id("a"), "1")}, id("a"))
	f.reopen(t)
	wantUnpinned("the other one", store.Content{}, 10, content(3, "other.pt", id("a"), "9"), content(1, "b.pt", id("b"), "3"))
	noError(t, f.SetPin(t.Context(), content(0, "", id("a"), "9"), store.PinRefused))
	wantUnpinned("not the refused one", store.Content{}, 10, content(1, "b.pt", id("b"), "3"))

	// The verification of a file holds for all jobs that have it, earlier and later ones.
	one, two, three := content(1, "a.pt", id("a"), "1"), content(2, "same.pt", id("a"), "1"), content(4, "again.pt", id("a"), "1")
	for c, p := range map[store.Content]store.Verification{content(0, "", id("a"), "1"): store.Verified, content(0, "", id("a"), "9"): store.Mismatch} {
		noError(t, f.SetVerification(t.Context(), c, p))
	}
	commit(4, []muster.Artifact{artifact("again.pt", id("a"), "1")}, nil)
	commit(5, []muster.Artifact{artifact("lie.pt", id("a"), "9")}, nil)
	one.Verification, two.Verification, three.Verification = store.Verified, store.Verified, store.Verified
	f.reopen(t)
	wantContents("proven", []store.Content{three, two, one}, id("a"))
	for name, c := range map[string]struct {
		q    store.ContentQuery
		want []store.Content
	}{
		"the first page": {store.ContentQuery{Limit: 2}, []store.Content{three, two}},
		"the next":       {store.ContentQuery{Limit: 2, After: two}, []store.Content{one}},
		"of a project":   {store.ContentQuery{Limit: 2, Project: "default"}, []store.Content{three, two}},
		"of another":     {store.ContentQuery{Limit: 2, Project: "unknown"}, nil},
	} {
		c.q.CID = id("a")
		wantEqual(t, name, c.want, must(f.Contents(t.Context(), c.q))(t))
	}

	// Artifacts of one task of a job do not hide those of another.
	commit(6, []muster.Artifact{artifact("x.pt", id("e"), "8")}, []muster.Artifact{artifact("y.pt", id("e"), "7"), artifact("z.pt", id("e"), "6")})
	six := []store.Content{content(6, "z.pt", id("e"), "6"), content(6, "y.pt", id("e"), "7"), content(6, "x.pt", id("e"), "8")}
	wantContents("all of a job", six, id("e"))
	for after := range six {
		got := must(f.Contents(t.Context(), store.ContentQuery{CID: id("e"), After: six[after], Limit: 1}))(t)
		wantEqual(t, "of a job, one by one", six[after+1:min(after+2, len(six))], got)
	}
}

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
		wantEqual(t, name, want, must(f.LateReports(t.Context(), job))(t))
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
