package trainforge_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"slices"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/dialect/dialecttest"
	"github.com/muster-dev/muster/internal/dialect/trainforge"
	"github.com/muster-dev/muster/internal/testkit"
)

// projectForm is the body of a submit.
func projectForm(t *testing.T) (body, contentType string) {
	t.Helper()
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	testkit.NoError(t, m.WriteField("config", `{"project":{"name":"p"}}`))
	file, err := m.CreateFormFile("project_zip", "p.zip")
	testkit.NoError(t, err)
	_, err = file.Write(projectZip(map[string]string{"train.py": "1"}))
	testkit.NoError(t, err)
	testkit.NoError(t, m.Close())
	return b.String(), m.FormDataContentType()
}

// TestCallsFollowTheTable makes each call with each key.
func TestCallsFollowTheTable(t *testing.T) {
	t.Parallel()
	w := newEnv(t, func(w *env) { w.cfg.KeyRequired = true })
	callers := dialecttest.CallersOf(t, w.url, dialecttest.AdminToken, muster.DefaultProject, "another")
	join := callers[slices.IndexFunc(callers, func(c dialecttest.Caller) bool { return c.Role == auth.Join && c.Project == "" })]
	worker := &externalWorker{conformClient: newConformClient(t, w.gateway.URL(), join.Secret), id: "colab-1"}
	w.submit(muster.TaskSpec{Run: &muster.Command{Shell: "true"}})
	work, err := worker.NextTask(t.Context())
	testkit.NoError(t, err)
	task := work.ID()
	node := &workerA{fakeClient: fakeClient{t: t, base: w.gateway.URL() + "/k/" + join.Secret}, id: "node-1", hostname: "vm", maxJobs: 1}
	if status := node.register(); status != http.StatusOK {
		t.Fatalf("the registration is answered with %d", status)
	}
	form, formType := projectForm(t)
	admin := fakeClient{t: t, base: w.gateway.URL() + "/k/" + dialecttest.AdminToken}
	create := func() string {
		t.Helper()
		var made struct {
			ID string `json:"job_id"`
		}
		if status := admin.form("/api/jobs", map[string]string{"config": `{"project":{"name":"p"}}`}, "project_zip", projectZip(map[string]string{"train.py": "1"}), &made); status != http.StatusCreated {
			t.Fatalf("the job is answered with %d", status)
		}
		return made.ID
	}
	client := create()
	owner := fakeClient{t: t, base: w.gateway.URL() + "/k/" + join.Secret}
	n := 0
	registration := func() (string, string) {
		n++
		return "", fmt.Sprintf(`{"worker_id":"w-%d","worker_type":"colab","capabilities":{"cpu_cores":2}}`, n)
	}
	leaving := func(path, body string) func() (string, string) {
		return func() (string, string) {
			_, form := registration()
			var answer dict
			if status := owner.do("POST", "/api/workers/register", json.RawMessage(form), &answer); status != http.StatusOK {
				t.Fatalf("the registration is answered with %d: %v", status, answer)
			}
			id := fmt.Sprintf("w-%d", n)
			if body != "" {
				return path, fmt.Sprintf(body, id)
			}
			return path + id, ""
		}
	}
	ofClient := func(verb auth.Verb, path string) dialecttest.Call {
		return dialecttest.Call{Verb: verb, Project: muster.DefaultProject, Path: "/api/jobs/" + client + path}
	}
	ofTask := func(path, body string) dialecttest.Call {
		return dialecttest.Call{Owner: join.KeyID, Path: "/api/jobs/" + task + path, Body: body}
	}
	ofWorker := func(path, body string) dialecttest.Call {
		return dialecttest.Call{Owner: join.KeyID, Path: "/api/workers/" + path, Body: body}
	}
	results := ofTask("/results", "")
	results.Want = http.StatusBadRequest // without a file
	noResults, noFile := ofClient(auth.ReadJobs, "/results"), ofClient(auth.ReadJobs, "/results/file/none")
	noResults.Want, noResults.Answer = http.StatusNotFound, "No results found"
	noFile.Want, noFile.Answer = http.StatusNotFound, "File not found"
	dialecttest.CheckCalls(t, w.gateway.URL(), trainforge.Patterns(), map[string]dialecttest.Call{
		"GET /health":     {},
		"GET /api/health": {},

		"POST /api/workers/register":               {Verb: auth.JoinWorkers, New: registration},
		"POST /api/workers/heartbeat":              ofWorker("heartbeat", `{"worker_id":"node-1"}`),
		"GET /api/workers/jobs":                    ofWorker("jobs?worker_id=node-1", ""),
		"POST /api/workers/job-status":             ofWorker("job-status", fmt.Sprintf(`{"worker_id":"colab-1","job_id":%q,"status":"running"}`, task)),
		"POST /api/workers/unregister":             {Owner: join.KeyID, New: leaving("/api/workers/unregister", `{"worker_id":%q}`)},
		"POST /api/workers/{worker}/heartbeat":     ofWorker("colab-1/heartbeat", `{}`),
		"GET /api/workers":                         {},
		"GET /api/workers/realtime":                {},
		"GET /api/workers/stats/all":               {},
		"GET /api/workers/{id}":                    {Verb: auth.ReadWorkers, Owner: join.KeyID, Path: "/api/workers/colab-1"},
		"GET /api/workers/{id}/stats":              {Verb: auth.ReadWorkers, Owner: join.KeyID, Path: "/api/workers/colab-1/stats"},
		"PUT /api/workers/{worker}/status":         ofWorker("colab-1/status", `{"status":"busy"}`),
		"PUT /api/workers/{worker}/progress":       ofWorker("colab-1/progress", `{"progress":1}`),
		"POST /api/workers/{worker}/job-started":   ofWorker("colab-1/job-started", `{}`),
		"POST /api/workers/{worker}/job-completed": ofWorker("colab-1/job-completed", `{}`),
		"DELETE /api/workers/{id}":                 {Owner: join.KeyID, New: leaving("/api/workers/", "")},

		"GET /api/jobs":                          {Verb: auth.ReadJobs},
		"POST /api/jobs":                         {Verb: auth.SubmitJobs, Body: form, Type: formType, Want: http.StatusCreated},
		"POST /api/jobs/distributed":             {Verb: auth.SubmitJobs, Body: form, Type: formType, Want: http.StatusCreated},
		"GET /api/jobs/pending":                  {Verb: auth.JoinWorkers},
		"POST /api/jobs/{id}/claim":              {Owner: join.KeyID, Path: "/api/jobs/" + task + "/claim", Body: `{"worker_id":"colab-1"}`, Want: http.StatusBadRequest}, // it has begun
		"PUT /api/jobs/{id}/status":              ofTask("/status", `{"status":"running"}`),
		"GET /api/jobs/{id}/files":               ofTask("/files", ""),
		"GET /api/jobs/{id}/files (of a client)": ofClient(auth.ReadJobs, "/files"),
		"POST /api/jobs/{id}/logs/batch":         ofTask("/logs/batch", `{"logs":[{"message":"x"}]}`),
		"POST /api/jobs/{id}/logs":               ofTask("/logs", `{"message":"x"}`),
		"GET /api/jobs/{id}/logs":                ofClient(auth.ReadJobs, "/logs"),
		"POST /api/jobs/{id}/results":            results,

		"GET /api/jobs/{id}":                        ofClient(auth.ReadJobs, ""),
		"PUT /api/jobs/{id}":                        {Verb: auth.ChangeJobs, Project: muster.DefaultProject, New: func() (string, string) { return "/api/jobs/" + create(), `{"status":"cancelled"}` }},
		"PUT /api/jobs/{id} (of a worker)":          ofTask("", `{"status":"running"}`),
		"DELETE /api/jobs/{id}":                     {Verb: auth.ChangeJobs, Project: muster.DefaultProject, New: func() (string, string) { return "/api/jobs/" + create(), "" }},
		"GET /api/jobs/{id}/results":                noResults,
		"GET /api/jobs/{id}/results/files":          ofClient(auth.ReadJobs, "/results/files"),
		"GET /api/jobs/{id}/results/file/{path...}": noFile,
	}, callers)
	// Lists have what the caller may see.
	for _, c := range callers {
		if c.Job != 0 {
			continue
		}
		p := fakeClient{t: t, base: w.gateway.URL() + "/k/" + c.Secret}
		var list []dict
		var all dict
		p.do("GET", "/api/workers", nil, &list)
		p.do("GET", "/api/workers/stats/all", nil, &all)
		sees := slices.ContainsFunc(list, func(d dict) bool { return d["worker_id"] == "colab-1" })
		if may := c.KeyID == join.KeyID || auth.Can(c.Principal, auth.ReadWorkers, auth.Object{}) == nil; sees != may || all["total_workers"] != float64(len(list)) {
			t.Errorf("%+v sees the worker: %v, of %v", c.Principal, sees, all)
		}
	}
}
