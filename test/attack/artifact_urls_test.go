//go:build unix

package attack

import (
	"encoding/json"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/artifacturl"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/sealing"
	"github.com/muster-dev/muster/internal/testkit"
)

// artifactURLs is a job whose second stage got the URL of a file of the first one.
type artifactURLs struct {
	*env

	job muster.JobID
	url *url.URL
	sum string // of the file
}

func newArtifactURLs(t *testing.T) *artifactURLs {
	t.Helper()
	e := newEnv(t)
	e.StartWorker("rig", t.TempDir())
	shell := func(text string) *muster.Command { return &muster.Command{Shell: text} }
	job := e.Submit(&muster.Spec{Tasks: []muster.TaskSpec{
		{Name: "make", Run: shell(`echo file > $MUSTER_OUT/a.txt; echo file > $MUSTER_OUT/b.txt; echo "{\"model_url\": \"artifact://{a.txt}\"}" > $MUSTER_OUT/result.json`)},
		{Name: "use", Needs: []string{"make"}, Env: map[string]string{"URL": `${make.artifact("a.txt").url}`}, Run: shell(`echo "{\"url\": \"$URL\"}" > $MUSTER_OUT/result.json`)},
	}})
	e.Wait(job.ID, awaitTimeout)
	tasks := e.Tasks(job.ID)
	var result struct{ URL string }
	if err := json.Unmarshal(tasks[1].Result, &result); err != nil {
		t.Fatalf("%s: %v; %s", tasks[1].Result, err, tasks[1].Message)
	}
	u, err := url.Parse(result.URL)
	testkit.NoError(t, err)
	return &artifactURLs{env: e, job: job.ID, url: u, sum: tasks[0].Artifacts[0].SHA256}
}

// status returns the status of a request for a URL without a key.
func (e *artifactURLs) status(u url.URL) int {
	e.t.Helper()
	return e.do(e.request(http.MethodGet, u.RequestURI(), "", nil)).Code
}

// signer signs with the server's key.
func (e *artifactURLs) signer() *artifacturl.Signer {
	e.t.Helper()
	keys, err := sealing.LoadKeys(e.t.Context(), sealing.Source{File: filepath.Join(e.DataDir, "server.key")})
	testkit.NoError(e.t, err)
	signer, err := artifacturl.New(keys[0])
	testkit.NoError(e.t, err)
	return signer
}

// TestArtifactURLsReadOneFile uses the query of a URL that reads a file without a key for others: a file with the same content, other tasks, lists, logs, a blob,
// and other methods.
func TestArtifactURLsReadOneFile(t *testing.T) {
	t.Parallel()
	e := newArtifactURLs(t)
	if got := e.do(e.request(http.MethodGet, e.url.RequestURI(), "", nil)); got.Code != http.StatusOK || got.Body.String() != "file\n" {
		t.Fatalf("%s: %d %s", e.url, got.Code, got.Body)
	}
	task := "/api/v1/tasks/" + e.job.String()
	for _, path := range []string{
		task + ".0/artifacts/b.txt", task + ".1/artifacts/a.txt", "/api/v1/tasks/1000.0/artifacts/a.txt", task + ".0/artifacts/../artifacts/b.txt", task + ".0/artifacts", task + ".0", task + ".0/logs",
		"/api/v1/jobs", "/api/v1/jobs/" + e.job.String(), "/api/v1/blobs/" + e.sum, "/api/v1/whoami",
	} {
		other := *e.url
		other.Path = path
		if got := e.status(other); got != http.StatusForbidden && got != http.StatusNotFound {
			t.Errorf("%s: %d", path, got)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		if got := e.do(e.request(method, e.url.RequestURI(), "", strings.NewReader("x"))); got.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, got.Code)
		}
	}
	for _, forged := range []string{"", "x", strings.Repeat("A", 43), e.url.Query().Get("signature") + "A"} {
		other, query := *e.url, e.url.Query()
		query.Set("signature", forged)
		other.RawQuery = query.Encode()
		if got := e.status(other); got != http.StatusForbidden {
			t.Errorf("signature %q: %d", forged, got)
		}
	}
}

// TestArtifactURLsExpire uses a URL whose time has passed, and one whose time was changed.
func TestArtifactURLsExpire(t *testing.T) {
	t.Parallel()
	e := newArtifactURLs(t)
	of := artifacturl.Scope{Task: muster.TaskID{Job: e.job}, Name: "a.txt", SHA256: e.sum}
	at := func(d time.Duration) url.URL {
		of.Expires = muster.NewTime(time.Now().Add(d))
		u, err := url.Parse(e.signer().URL("", of))
		testkit.NoError(t, err)
		return *u
	}
	if got := e.status(at(time.Minute)); got != http.StatusOK {
		t.Fatalf("before its time: %d", got)
	}
	expired := at(-time.Second)
	if got := e.status(expired); got != http.StatusForbidden {
		t.Errorf("after its time: %d", got)
	}
	query := expired.Query()
	query.Set("expires", e.url.Query().Get("expires"))
	expired.RawQuery = query.Encode()
	if got := e.status(expired); got != http.StatusForbidden {
		t.Errorf("with another time: %d", got)
	}
}

// TestArtifactURLsAreForOneContent uses a URL of a file that has changed since, as a retry of its task may do.
func TestArtifactURLsAreForOneContent(t *testing.T) {
	t.Parallel()
	e := newArtifactURLs(t)
	text := e.signer().URL("", artifacturl.Scope{Task: muster.TaskID{Job: e.job}, Name: "a.txt", SHA256: strings.Repeat("0", 64), Expires: muster.NewTime(time.Now().Add(time.Hour))})
	u, err := url.Parse(text)
	testkit.NoError(t, err)
	if got := e.status(*u); got != http.StatusNotFound {
		t.Errorf("another content: %d", got)
	}
}

// TestArtifactURLsEndWithTheirJob uses a URL after its job was removed.
func TestArtifactURLsEndWithTheirJob(t *testing.T) {
	t.Parallel()
	e := newArtifactURLs(t)
	testkit.NoError(t, e.Client.RemoveJob(t.Context(), e.job))
	if got := e.status(*e.url); got != http.StatusNotFound {
		t.Errorf("after the removal: %d", got)
	}
}

// TestOnlyTheTaskSeesItsURLs reads the spec of a task that got a URL, with all keys, and its whole stored form.
func TestOnlyTheTaskSeesItsURLs(t *testing.T) {
	t.Parallel()
	e := newArtifactURLs(t)
	id := e.job.String()
	for who, token := range map[string]string{"the administrator": e.AdminToken, "a viewer": e.key(string(auth.Viewer), "", 0).Secret} {
		for _, path := range []string{"/api/v1/tasks/" + id + ".1/spec", "/api/v1/jobs/" + id} {
			rec := e.do(e.request(http.MethodGet, path, token, nil))
			if body := rec.Body.String(); rec.Code != http.StatusOK || strings.Contains(body, "signature=") || strings.Contains(body, "${artifact_url") {
				t.Errorf("%s: %s: %d %s", who, path, rec.Code, body)
			}
		}
	}
}

// TestSpecsCannotForgeURLs submits the form in which the server notes a URL, and has a task return it as its result.
func TestSpecsCannotForgeURLs(t *testing.T) {
	t.Parallel()
	e := newArtifactURLs(t)
	form := "${artifact_url 0 " + e.sum + " a.txt}"
	shell := func(text string) *muster.Command { return &muster.Command{Shell: text} }
	if _, err := e.submitAs(e.AdminToken, &muster.Spec{Tasks: []muster.TaskSpec{{Run: &muster.Command{Argv: []string{"echo", form}}}}}); muster.CodeOf(err) != muster.InvalidSpec {
		t.Errorf("a spec with it: %v", err)
	}
	job := e.Submit(&muster.Spec{Tasks: []muster.TaskSpec{
		{Name: "forge", Run: shell(`printf '{"url": "$''{artifact_url 0 ` + e.sum + ` a.txt}"}' > $MUSTER_OUT/result.json`)},
		{Name: "use", Needs: []string{"forge"}, Env: map[string]string{"URL": "${forge.result.url}"}, Run: shell(`echo "{\"url\": \"$URL\"}" > $MUSTER_OUT/result.json`)},
	}})
	e.Wait(job.ID, awaitTimeout)
	var result struct{ URL string }
	task := e.Tasks(job.ID)[1]
	if err := json.Unmarshal(task.Result, &result); err != nil || result.URL != form {
		t.Errorf("the next task got %s: %v %s", task.Result, err, task.Message)
	}
}
