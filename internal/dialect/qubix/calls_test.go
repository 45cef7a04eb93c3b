package qubix_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/dialecttest"
	"github.com/muster-dev/muster/internal/dialect/qubix"
)

// TestCallsFollowTheTable makes each call with each key.
func TestCallsFollowTheTable(t *testing.T) {
	t.Parallel()
	w := newEnv(t, func(c *dialect.Config) { c.KeyRequired = true })
	callers := dialecttest.CallersOf(t, w.server.URL(), adminToken, muster.DefaultProject, "another")
	join := callers[slices.IndexFunc(callers, func(c dialecttest.Caller) bool { return c.Role == auth.Join && c.Project == "" })]
	worker := newEnhanced(&fakeClient{tb: t, base: w.url + "/k/" + join.Secret}, machine)
	worker.register()
	worker.heartbeat()
	admin := &fakeClient{tb: t, base: w.url + "/k/" + adminToken}
	const script = `{"modelType":"custom_script","computeNeeded":1,"inputData":{"script":"print(1)","scriptUrl":""},"qubicAddress":"` + address + `"}`
	create := func() string {
		_, made := admin.call(http.MethodPost, "/api/jobs/create", script)
		return field(made, "job", "id")
	}
	client := create()
	w.waitReady("Provider-7504b437", muster.KindScript)
	task := field(worker.runJob(), "id")
	n := 0
	registered := func(format string) func() (string, string) {
		return func() (string, string) {
			n++
			return "", fmt.Sprintf(format, n)
		}
	}
	quick := `{"type":"browser","workerId":"quick-%d","qubicAddress":"` + address + `","gpu":{"type":"webgpu","model":"M2","vram":8}}`
	dialecttest.CheckCalls(t, w.url, qubix.Patterns(), map[string]dialecttest.Call{
		"GET /health":     {},
		"GET /api/health": {},

		"POST /api/providers/register":           {Verb: auth.JoinWorkers, New: registered(`{"worker_id":"w-%d","specs":{"cpuCores":4}}`)},
		"POST /api/providers/quick-register":     {Verb: auth.JoinWorkers, New: registered(quick)},
		"POST /api/providers/{worker}/heartbeat": {Owner: join.KeyID, Path: "/api/providers/" + machine + "/heartbeat", Body: `{}`},
		"GET /api/providers":                     {},
		"GET /api/providers/{worker}":            {Owner: join.KeyID, Path: "/api/providers/" + machine},
		"POST /api/jobs/{job}/progress":          {Owner: join.KeyID, Path: "/api/jobs/" + task + "/progress", Body: `{"progress":10}`},
		"POST /api/jobs/{job}/complete":          {Owner: join.KeyID, Path: "/api/jobs/" + task + "/complete", Body: `{"status":"completed","result":{}}`},

		"POST /api/jobs/create":                      {Verb: auth.SubmitJobs, Body: script},
		"POST /api/jobs/estimate":                    {Body: script}, // of what the key may see
		"POST /api/jobs/analyze":                     {Body: script},
		"GET /api/jobs/{job}":                        {Verb: auth.ReadJobs, Project: muster.DefaultProject, Path: "/api/jobs/" + client},
		"GET /api/jobs/{job}/{part}":                 {Verb: auth.ReadJobs, Project: muster.DefaultProject, Path: "/api/jobs/" + client + "/status"},
		"GET /api/jobs/{job}/{part} (monitor)":       {Verb: auth.ReadJobs, Project: muster.DefaultProject, Path: "/api/jobs/" + client + "/monitor"},
		"GET /api/jobs/{job}/{part} (metrics)":       {Verb: auth.ReadJobs, Project: muster.DefaultProject, Path: "/api/jobs/" + client + "/metrics"},
		"GET /api/jobs/{job}/{part} (logs)":          {Verb: auth.ReadJobs, Project: muster.DefaultProject, Path: "/api/jobs/" + client + "/logs"},
		"GET /api/jobs/{job}/{part} (of an address)": {Verb: auth.ReadJobs, Path: "/api/jobs/user/" + address},
		"GET /api/jobs/{job}/{part} (for a worker)":  {Owner: join.KeyID, Path: "/api/jobs/pending/" + machine},
		"POST /api/jobs/{job}/cancel": {Verb: auth.ChangeJobs, Project: muster.DefaultProject, New: func() (string, string) {
			return "/api/jobs/" + create() + "/cancel", `{}`
		}},

		// Accounts grant nothing.
		"POST /api/auth/register":  {Body: `{"email":"a@lab.example","password":"p"}`, Want: http.StatusCreated},
		"POST /api/auth/login":     {Body: `{"email":"a@lab.example","password":"p"}`},
		"GET /api/users/{address}": {Path: "/api/users/" + address},
	}, callers)
	// A list has the workers of the caller's key only.
	for _, c := range callers {
		if c.Job != 0 {
			continue
		}
		_, got := (&fakeClient{tb: t, base: w.url + "/k/" + c.Secret}).call(http.MethodGet, "/api/providers", nil)
		sees := slices.ContainsFunc(got["providers"].([]any), func(p any) bool { return field(p.(map[string]any), "id") == machine })
		if sees != (c.KeyID == join.KeyID) {
			t.Errorf("%+v sees the worker: %v", c.Principal, sees)
		}
	}
}
