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
