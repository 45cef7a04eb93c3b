package storetest

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

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
		got := must(f.Contents(t.Context(), store.ContentQuery{CID: cid, Limit: 10}))(t)
		wantEqual(t, name, want, got)
	}
	wantUnpinned := func(name string, after store.Content, limit int, want ...store.Content) {
		t.Helper()
		got := must(f.Unpinned(t.Context(), after, limit))(t)
		wantEqual(t, name, want, got)
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
		got := must(f.Contents(t.Context(), c.q))(t)
		wantEqual(t, name, c.want, got)
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
