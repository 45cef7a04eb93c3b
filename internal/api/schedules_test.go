package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
)

const (
	speechSchedules = "/api/v1/projects/speech/schedules"
	newYear         = `{"name":"report","cron":"0 0 1 1 *","timezone":"Europe/Berlin","overlap":"forbid","spec":{"tasks":[{"run":"true","env":{"A":"b"}}]}}`
)

var goldenSchedules = []goldenCase{
	{"schedule-create", request{method: "POST", path: speechSchedules, body: newYear}, "create-schedule"},
	{"schedule-taken", request{method: "POST", path: speechSchedules, body: newYear}, "error"},
	{"schedule-replaced", request{method: "POST", path: speechSchedules, body: strings.Replace(newYear, "{", `{"replace":true,`, 1)}, "create-schedule"},
	{"schedule-bad-cron", request{method: "POST", path: speechSchedules, body: strings.Replace(newYear, "0 0 1", "0 25 1", 1)}, "error"},
	{"schedule-bad-zone", request{method: "POST", path: speechSchedules, body: strings.Replace(newYear, "Berlin", "Bern", 1)}, "error"},
	{"schedule-bad-policies", request{method: "POST", path: speechSchedules, body: strings.Replace(newYear, "{", `{"missed":"run-all",`, 1)}, "error"},
	{"schedule-bad-spec", request{method: "POST", path: speechSchedules, body: strings.Replace(newYear, `"run":"true"`, `"secrets":["NONE"],"run":"true"`, 1)}, "error"},
	{"schedule-local-files", request{method: "POST", path: speechSchedules, body: strings.Replace(newYear, `"run":"true"`, `"files":".","run":"true"`, 1)}, "error"},
	{"schedule-of-another-project", request{method: "POST", path: speechSchedules, body: strings.Replace(newYear, `"tasks"`, `"project":"vision","tasks"`, 1)}, "error"},
	{"schedules", request{method: "GET", path: "/api/v1/schedules?project=speech"}, "list-schedules"},
	{"schedules-none", request{method: "GET", path: "/api/v1/schedules?project=vision"}, "list-schedules"},
	{"schedule-pause", request{method: "POST", path: speechSchedules + "/report/pause"}, "pause-schedule"},
	{"schedule-run", request{method: "POST", path: speechSchedules + "/report/run", header: map[string]string{"Idempotency-Key": "a"}}, "run-schedule"},
	{"schedule-run-again", request{method: "POST", path: speechSchedules + "/report/run", header: map[string]string{"Idempotency-Key": "a"}}, "run-schedule"},
	{"schedule-resume", request{method: "POST", path: speechSchedules + "/report/resume"}, "resume-schedule"},
	{"schedule", request{method: "GET", path: speechSchedules + "/report"}, "get-schedule"},
	{"schedule-deleted", request{method: "DELETE", path: speechSchedules + "/report"}, ""},
	{"schedule-unknown", request{method: "GET", path: speechSchedules + "/report"}, "error"},
}

func TestGoldenSchedules(t *testing.T) { checkGolden(t, apitest.Start(t, nil), goldenSchedules) }

// Who may submit jobs creates schedules, and who may change jobs changes them, each in the project of the key. Readers see no variables.
func TestSchedulesByRole(t *testing.T) {
	s := apitest.Start(t, nil)
	for _, role := range []auth.Role{auth.Submitter, auth.Viewer} {
		s.CreateKey(t, role, "speech", "")
	}
	s.CreateKey(t, auth.Operator, "", "")
	for _, c := range []struct {
		token, method, path, body string
		want                      int
	}{
		{"token-of-viewer-speech", "POST", speechSchedules, newYear, http.StatusForbidden},
		{"token-of-operator-", "POST", speechSchedules, newYear, http.StatusForbidden},
		{"token-of-submitter-speech", "POST", strings.Replace(speechSchedules, "speech", "vision", 1), newYear, http.StatusForbidden},
		{"token-of-submitter-speech", "POST", speechSchedules, newYear, http.StatusCreated},
		{"none", "GET", speechSchedules + "/report", "", http.StatusUnauthorized},
		{"token-of-viewer-speech", "GET", speechSchedules + "/report", "", http.StatusOK},
		{"token-of-viewer-speech", "GET", strings.Replace(speechSchedules, "speech", "vision", 1) + "/report", "", http.StatusForbidden},
		{"token-of-viewer-speech", "POST", speechSchedules + "/report/pause", "", http.StatusForbidden},
		{"token-of-viewer-speech", "POST", speechSchedules + "/report/run", "", http.StatusForbidden},
		{"token-of-viewer-speech", "DELETE", speechSchedules + "/report", "", http.StatusForbidden},
		{"token-of-operator-", "POST", speechSchedules + "/report/pause", "", http.StatusOK},
		{"token-of-operator-", "POST", speechSchedules + "/report/resume", "", http.StatusOK},
		{"token-of-operator-", "POST", speechSchedules + "/report/run", "", http.StatusCreated},
	} {
		if resp, body := send(t, s, request{method: c.method, path: c.path, token: c.token, body: c.body}); resp.StatusCode != c.want {
			t.Errorf("%s %s of %s: %d, want %d: %s", c.method, c.path, c.token, resp.StatusCode, c.want, body)
		}
	}
	for token, want := range map[string]string{"token-of-submitter-speech": "b", "token-of-viewer-speech": "(hidden)", "token-of-operator-": "(hidden)"} {
		var v wire.Schedule
		if err := json.Unmarshal(expectStatus(t, s, request{method: "GET", path: speechSchedules + "/report", token: token}, http.StatusOK), &v); err != nil {
			t.Fatal(err)
		}
		if got := v.Spec.Tasks[0].Env["A"]; got != want || len(v.Runs) != 1 || v.Runs[0].Job != 1 || !v.Runs[0].Manual {
			t.Errorf("%s sees %q and %+v", token, got, v.Runs)
		}
	}
	job := expectStatus(t, s, request{method: "GET", path: "/api/v1/jobs/1"}, http.StatusOK)
	if !strings.Contains(string(job), `"name":"report"`) || !strings.Contains(string(job), `"muster/schedule":"report"`) || !strings.Contains(string(job), `"project":"speech"`) {
		t.Errorf("the job: %s", job)
	}
	var list wire.Schedules
	if err := json.Unmarshal(expectStatus(t, s, request{method: "GET", path: "/api/v1/schedules", token: "token-of-viewer-speech"}, http.StatusOK), &list); err != nil || len(list.Schedules) != 1 {
		t.Errorf("the list: %+v, %v", list, err)
	}
	if err := json.Unmarshal(expectStatus(t, s, request{method: "GET", path: "/api/v1/schedules?project=vision", token: "token-of-viewer-speech"}, http.StatusOK), &list); err != nil || len(list.Schedules) != 0 {
		t.Errorf("the list of another project: %+v, %v", list, err)
	}
}
