package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/auth"
)

const (
	speechNotify = "/api/v1/projects/speech/notify"
	notifyBody   = `{"notify":[{"url":"http://127.0.0.1:1/hook","on":["failed","waiting_long"],"after":"30m","preset":"slack","secret":"a-secret-of-16-characters"}]}`
	notifyingJob = `{"kind":"noop","notify":[{"url":"https://192.0.2.1/","secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw","on":["failed"]}]}`
)

var goldenNotify = []goldenCase{
	{"notify-none", request{method: "GET", path: speechNotify}, "get-notify"},
	{"notify-set", request{method: "PUT", path: speechNotify, body: notifyBody}, "put-notify"},
	{"notify", request{method: "GET", path: speechNotify}, "get-notify"},
	{"notify-tested", request{method: "POST", path: speechNotify + "/test"}, "test-notify"},
	{"notify-no-such", request{method: "POST", path: speechNotify + "/test", body: `{"url":"https://example.org/"}`}, "error"},
	{"notifications", request{method: "GET", path: "/api/v1/notifications?project=speech&state=failed"}, "list-notifications"},
	{"notify-bad", request{method: "PUT", path: speechNotify, body: `{"notify":[{"url":"ftp://example.org","on":["faild"]}]}`}, "error"},
	{"notify-bad-secret", request{method: "PUT", path: speechNotify, body: `{"notify":[{"url":"https://example.org/","secret":"a secret of several words"}]}`}, "error"},
	{"notify-deleted", request{method: "DELETE", path: speechNotify}, ""},
	{"notify-sealed", request{method: "POST", path: "/api/v1/jobs", body: notifyingJob}, "submit-job"},
	{"notify-sealed-elsewhere", request{method: "POST", path: "/api/v1/jobs", body: `{"kind":"noop","notify":[{"url":"https://192.0.2.1/","secret":"sealed:AAAA"}]}`}, "error"},
	{"job-notifications", request{method: "GET", path: "/api/v1/jobs/1/notifications"}, "list-job-notifications"},
}

func TestGoldenNotify(t *testing.T) { checkGolden(t, apitest.Start(t, nil), goldenNotify) }

// Callers without permission cannot read notifications, and an administrator of a project manages only those of this project.
func TestNotifyRequiresAdmin(t *testing.T) {
	s := apitest.Start(t, nil)
	s.CreateKey(t, auth.Submitter, "speech", "")
	s.CreateKey(t, auth.Admin, "speech", "")
	for _, c := range []struct {
		token, method, project string
		want                   int
	}{
		{"token-of-submitter-speech", "GET", "speech", http.StatusForbidden},
		{"token-of-submitter-speech", "PUT", "speech", http.StatusForbidden},
		{"token-of-submitter-speech", "DELETE", "speech", http.StatusForbidden},
		{"token-of-admin-speech", "PUT", "speech", http.StatusOK},
		{"token-of-admin-speech", "GET", "speech", http.StatusOK},
		{"token-of-admin-speech", "GET", "vision", http.StatusForbidden},
		{"token-of-admin-speech", "PUT", "vision", http.StatusForbidden},
		{"token-of-admin-speech", "DELETE", "vision", http.StatusForbidden},
	} {
		q := request{method: c.method, path: "/api/v1/projects/" + c.project + "/notify", token: c.token}
		if c.method == "PUT" {
			q.body = notifyBody
		}
		if resp, body := send(t, s, q); resp.StatusCode != c.want {
			t.Errorf("%s %s of %s: %d, want %d: %s", c.method, q.path, c.token, resp.StatusCode, c.want, body)
		}
	}
}

// TestURLsAreRedacted checks that answers about a job do not reveal secret parts of a URL, and that keys that may not submit see only the host.
func TestURLsAreRedacted(t *testing.T) {
	s := apitest.Start(t, nil)
	job := `{"kind":"noop","notify":[{"url":"https://hooks.slack.com/services/T0/s3cr3t","secret":"s3cr3t-of-many-letters"}]}`
	created := string(expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs", body: job}, http.StatusCreated))
	submitter, viewer := s.CreateKey(t, auth.Submitter, "", ""), s.CreateKey(t, auth.Viewer, "", "")
	responses := map[string]string{"the answer": created}
	for _, token := range []string{apitest.AdminToken, submitter, viewer} {
		responses[token] = string(expectStatus(t, s, request{method: "GET", path: "/api/v1/jobs/1", token: token}, http.StatusOK))
	}
	for token, body := range responses {
		if strings.Contains(body, "s3cr3t") || !strings.Contains(body, `"https://hooks.slack.com/`) {
			t.Errorf("%s: %s", token, body)
		}
		if sealed := strings.Contains(body, `"https://hooks.slack.com/#sealed:`); sealed == (token == viewer) {
			t.Errorf("%s: %s", token, body)
		}
	}
	if !strings.Contains(responses[viewer], `{"url":"https://hooks.slack.com/…","secret":"(hidden)"}`) {
		t.Errorf("a viewer sees %s", responses[viewer])
	}
	put := `{"notify":[{"url":"https://hooks.slack.com/services/T0/s3cr3t"}]}`
	expectStatus(t, s, request{method: "PUT", path: speechNotify, body: put}, http.StatusOK)
	if stored, err := s.Store.ProjectNotify(t.Context(), "speech"); err != nil || len(stored) != 1 || strings.Contains(stored[0].URL, "s3cr3t") {
		t.Errorf("stored: %+v, %v", stored, err)
	}
	if body := string(expectStatus(t, s, request{method: "GET", path: speechNotify}, http.StatusOK)); !strings.Contains(body, `"https://hooks.slack.com/services/T0/s3cr3t"`) {
		t.Errorf("an administrator sees %s", body)
	}
}

// TestSecretsAreRedacted checks that answers do not have the secret of a job, and that a returned spec can be submitted again.
func TestSecretsAreRedacted(t *testing.T) {
	s := apitest.Start(t, nil)
	resp, created := send(t, s, request{method: "POST", path: "/api/v1/jobs", body: notifyingJob})
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("%d %s", resp.StatusCode, created)
	}
	for _, path := range []string{"/api/v1/jobs/1", "/api/v1/jobs", "/api/v1/jobs/1/notifications", "/api/v1/tasks/1.0"} {
		if _, body := send(t, s, request{method: "GET", path: path}); strings.Contains(string(body), "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw") {
			t.Errorf("%s shows the secret: %s", path, body)
		}
	}
	if strings.Contains(string(created), "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw") {
		t.Errorf("the submission shows the secret: %s", created)
	}
	spec := string(created[strings.Index(string(created), `"spec":`)+len(`"spec":`):])
	spec = spec[:strings.Index(spec, `,"groups"`)]
	if resp, body := send(t, s, request{method: "POST", path: "/api/v1/jobs", body: spec}); resp.StatusCode != http.StatusCreated {
		t.Errorf("the returned spec: %d %s\n%s", resp.StatusCode, body, spec)
	}
	copied := strings.Replace(spec, "192.0.2.1", "192.0.2.2", 1)
	if resp, body := send(t, s, request{method: "POST", path: "/api/v1/jobs", body: copied}); resp.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("the sealed secret for another URL: %d %s", resp.StatusCode, body)
	}
}
