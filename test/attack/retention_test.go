//go:build unix

package attack

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
)

// TestRetentionOfAnotherProject attacks an ended job, a kept one and the policy of the project alpha with all keys that may not change them: nothing
// changes, and no answer reveals anything of them.
func TestRetentionOfAnotherProject(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	owner, admin := e.key(string(auth.Submitter), "alpha", 0).Secret, e.key(string(auth.Admin), "alpha", 0).Secret
	ended, kept := e.endedJob(owner), e.endedJob(owner)
	e.change(http.MethodPut, "/jobs/"+kept.String()+"/keep", owner, "", http.StatusOK)
	e.change(http.MethodPut, "/projects/alpha/retention", admin, `{"logs":"7d"}`, http.StatusOK)
	const oneJob, everything = `{"project":"alpha","keep":{"jobs":"1ms"}`, `{"keep":{"jobs":"1ms"}`
	e.Await("a prune would remove the job", time.Minute, func() error { return e.planned(admin, oneJob, ended) })

	type attack struct{ method, path, body string }
	changes := []attack{
		{http.MethodDelete, "/jobs/" + ended.String(), ""},
		{http.MethodPut, "/jobs/" + ended.String() + "/keep", ""},
		{http.MethodDelete, "/jobs/" + kept.String() + "/keep", ""},
	}
	policies := []attack{
		{http.MethodPost, "/prune", oneJob + `,"dry_run":true}`},
		{http.MethodPost, "/prune", oneJob + `}`},
		{http.MethodPut, "/projects/alpha/retention", `{"jobs":"1ms"}`},
		{http.MethodDelete, "/projects/alpha/retention", ""},
	}
	own := []attack{ // what names no project is of the key's
		{http.MethodPost, "/prune", everything + `,"dry_run":true}`},
		{http.MethodPost, "/prune", everything + `}`},
	}
	for _, attacker := range []struct {
		role    auth.Role
		project string
		attacks []attack
	}{
		{auth.Viewer, "alpha", slices.Concat(changes, policies, own)},
		{auth.Viewer, "", slices.Concat(changes, policies, own)},
		{auth.Submitter, "alpha", slices.Concat(policies, own)},
		{auth.Viewer, "beta", slices.Concat(changes, policies, own)},
		{auth.Submitter, "beta", slices.Concat(changes, policies, own)},
		{auth.Admin, "beta", slices.Concat(changes, policies)},
	} {
		key := e.key(string(attacker.role), attacker.project, 0).Secret
		for _, a := range attacker.attacks {
			rec := e.do(e.retentionRequest(a.method, a.path, key, a.body))
			if rec.Code != http.StatusForbidden && rec.Code != http.StatusNotFound {
				t.Errorf("%s of %q: %s %s %s: %d %s", attacker.role, attacker.project, a.method, a.path, a.body, rec.Code, rec.Body)
			}
		}
	}
	// The admin of another project may prune its own, and learns nothing of this one.
	foreign := e.key(string(auth.Admin), "beta", 0).Secret
	for _, a := range own {
		rec := e.do(e.retentionRequest(a.method, a.path, foreign, a.body))
		var plan client.Pruned
		if err := json.Unmarshal(rec.Body.Bytes(), &plan); err != nil || rec.Code != http.StatusOK || plan.Jobs.Number != 0 || plan.Logs.Number != 0 || len(plan.Examples) != 0 {
			t.Errorf("the prune of another project: %d %s", rec.Code, rec.Body)
		}
	}
	if rec := e.do(e.retentionRequest(http.MethodGet, "/retention", foreign, "")); rec.Code != http.StatusOK || strings.Contains(rec.Body.String(), "alpha") {
		t.Errorf("the policies as another project sees them: %d %s", rec.Code, rec.Body)
	}

	// A prune is done in the background: one of the administrator, of another project, comes after those of the attackers.
	marker := e.endedJob(foreign)
	e.change(http.MethodPost, "/prune", foreign, everything+`}`, http.StatusOK)
	e.Await("later prunes are done", time.Minute, func() error {
		if _, err := e.Client.Job(t.Context(), marker); muster.CodeOf(err) == muster.NotFound {
			return nil
		}
		_, err := e.Client.Prune(t.Context(), client.PruneRequest{Project: "beta", Keep: client.RetentionPolicy{Jobs: "1ms"}})
		if err == nil {
			err = muster.Errorf(muster.Conflict, "job %s is there", marker)
		}
		return err
	})
	for id, isKept := range map[muster.JobID]bool{ended: false, kept: true} {
		if job, err := e.Client.Job(t.Context(), id); err != nil || (job.KeptAt != 0) != isKept {
			t.Errorf("job %s after the attacks: kept at %s, %v", id, job.KeptAt, err)
		}
	}
	r, err := e.Client.Retention(t.Context())
	want := client.ProjectRetention{Project: "alpha", RetentionPolicy: client.RetentionPolicy{Logs: "7d"}}
	if err != nil || !slices.Equal(r.Projects, []client.ProjectRetention{want}) {
		t.Errorf("the policies after the attacks: %+v, %v", r.Projects, err)
	}
	// Those who may, can.
	e.change(http.MethodDelete, "/jobs/"+kept.String()+"/keep", owner, "", http.StatusOK)
	e.change(http.MethodDelete, "/jobs/"+kept.String(), owner, "", http.StatusNoContent)
}

// endedJob submits a job with a key and cancels it.
func (e *env) endedJob(token string) muster.JobID {
	e.t.Helper()
	job, err := e.submitAs(token, &muster.Spec{Tasks: []muster.TaskSpec{{Kind: muster.KindNoop}}})
	if err == nil {
		_, err = e.Client.Cancel(e.t.Context(), job.ID, nil)
	}
	if err != nil {
		e.t.Fatal(err)
	}
	e.Wait(job.ID, awaitTimeout)
	return job.ID
}

// planned returns an error unless a prune with a key would remove a job.
func (e *env) planned(token, request string, id muster.JobID) error {
	rec := e.do(e.retentionRequest(http.MethodPost, "/prune", token, request+`,"dry_run":true}`))
	var plan client.Pruned
	if err := json.Unmarshal(rec.Body.Bytes(), &plan); err != nil || !slices.Contains(plan.Examples, id) {
		return muster.Errorf(muster.Internal, "it answers %d %s", rec.Code, rec.Body)
	}
	return nil
}

func (e *env) retentionRequest(method, path, token, body string) *http.Request {
	e.t.Helper()
	r := e.request(method, "/api/v1"+path, token, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

// change sends a request that must be answered with a status.
func (e *env) change(method, path, token, body string, status int) {
	e.t.Helper()
	if rec := e.do(e.retentionRequest(method, path, token, body)); rec.Code != status {
		e.t.Fatalf("%s %s: %d %s", method, path, rec.Code, rec.Body)
	}
}
