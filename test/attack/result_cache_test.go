//go:build unix

package attack

import (
	"net/http"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
)

// TestTheResultCacheOfAProjectIsItsOwn states that an identical task of another project runs, and that the keys of that project neither see nor
// clear the results.
func TestTheResultCacheOfAProjectIsItsOwn(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.StartWorker("rig", t.TempDir())
	cached := func(project string) bool {
		job := e.Submit(&muster.Spec{Project: project, Name: "features", Tasks: []muster.TaskSpec{{Kind: muster.KindNoop, Cache: muster.DefaultCacheLifetime}}})
		if job = e.Wait(job.ID, awaitTimeout); job.State != muster.JobSucceeded {
			t.Fatalf("the job of %s is %s", project, job.State)
		}
		return e.Tasks(job.ID)[0].Cached
	}
	if cached("alpha") || !cached("alpha") {
		t.Fatal("the second job of alpha has not the result of the first")
	}
	if cached("beta") {
		t.Error("a task of beta has the result of one of alpha")
	}
	const cache = "/api/v1/projects/alpha/cache"
	for _, project := range []string{"beta", "gamma"} {
		token := e.key(string(auth.Admin), project, 0).Secret
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			if rec := e.do(e.request(method, cache, token, nil)); rec.Code != http.StatusForbidden || strings.Contains(rec.Body.String(), "origin") {
				t.Errorf("%s by a key of %s: %d %s", method, project, rec.Code, rec.Body)
			}
		}
		own := strings.Replace(cache, "alpha", project, 1)
		if rec := e.do(e.request(http.MethodDelete, own, token, nil)); rec.Code != http.StatusOK {
			t.Errorf("clear %s: %d %s", project, rec.Code, rec.Body)
		}
	}
	if !cached("alpha") {
		t.Error("keys of other projects cleared the cache of alpha")
	}
}
