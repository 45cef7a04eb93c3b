//go:build unix

package attack

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/testkit"
)

// TestReadersDoNotSeeHiddenValues submits a job with a password in a variable, in the URL of its script and in that of a notification: neither
// keys that may not submit jobs nor a link to the job see it, in no answer about the job, which fails because of that URL.
func TestReadersDoNotSeeHiddenValues(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.StartWorker("rig", t.TempDir())
	const password = "s3kr1t-of-the-job"
	job, err := e.submitAs(e.key(string(auth.Submitter), "alpha", 0).Secret, &muster.Spec{
		Notify: []muster.Notify{{URL: "https://user:" + password + "@127.0.0.1:1/" + password, Secret: password}},
		Tasks: []muster.TaskSpec{{
			Kind: muster.KindScript, Env: map[string]string{"PASSWORD": password},
			Script: &muster.Script{URL: "https://user:" + password + "@127.0.0.1:1/run.sh?signature=" + password},
		}},
	})
	testkit.NoError(t, err)
	e.Wait(job.ID, awaitTimeout) // the worker refuses the address, and says so
	id := job.ID.String()
	var link wire.Share
	testkit.NoError(t, json.Unmarshal(e.do(e.request(http.MethodPost, "/api/v1/jobs/"+id+"/share", e.AdminToken, nil)).Body.Bytes(), &link))
	for who, token := range map[string]string{
		"a viewer": e.key(string(auth.Viewer), "alpha", 0).Secret, "an operator": e.key(string(auth.Operator), "", 0).Secret, "a link": link.Secret,
	} {
		for _, path := range []string{"/api/v1/jobs", "/api/v1/jobs/" + id, "/api/v1/jobs/" + id + "/tasks", "/api/v1/tasks/" + id + ".0", "/api/v1/tasks/" + id + ".0/spec", "/api/v1/tasks/" + id + ".0/attempts", "/api/v1/tasks/" + id + ".0/events", "/api/v1/tasks/" + id + ".0/logs"} {
			rec := e.do(e.request(http.MethodGet, path, token, nil))
			if rec.Code != http.StatusOK || strings.Contains(rec.Body.String(), password) {
				t.Errorf("%s: %s: %d %s", who, path, rec.Code, rec.Body)
			}
		}
	}
}
