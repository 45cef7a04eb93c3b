package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/auth"
)

const speechSecrets = "/api/v1/projects/speech/secrets"

var goldenSecrets = []goldenCase{
	{"secrets-none", request{method: "GET", path: speechSecrets}, "list-secrets"},
	{"secret-set", request{method: "PUT", path: speechSecrets + "/HF_TOKEN", body: `{"value":"hf_AbCdEfGhIjKl","workers":["trusted"]}`}, "put-secret"},
	{"secrets", request{method: "GET", path: speechSecrets}, "list-secrets"},
	{"secret-bad-name", request{method: "PUT", path: speechSecrets + "/HF-TOKEN", body: `{"value":"hf_AbCdEfGhIjKl"}`}, "error"},
	{"secret-too-short", request{method: "PUT", path: speechSecrets + "/A", body: `{"value":"      a      "}`}, "error"},
	{"secret-unknown-in-job", request{method: "POST", path: "/api/v1/jobs", body: `{"run":"true","project":"speech","secrets":["HF_TOKEN","OTHER"]}`}, "error"},
	{"secret-in-job", request{method: "POST", path: "/api/v1/jobs", body: `{"run":"true","project":"speech","secrets":["HF_TOKEN",{"name":"HF_TOKEN","file":".hf"}]}`}, "submit-job"},
	{"secret-deleted", request{method: "DELETE", path: speechSecrets + "/HF_TOKEN"}, ""},
	{"secret-deleted-again", request{method: "DELETE", path: speechSecrets + "/HF_TOKEN"}, "error"},
}

func TestGoldenSecrets(t *testing.T) { checkGolden(t, apitest.Start(t, nil), goldenSecrets) }

// Who may submit jobs sees names; only administrators of the project change secrets. No answer has a value.
func TestSecretsRequireAdmin(t *testing.T) {
	s := apitest.Start(t, nil)
	s.CreateKey(t, auth.Submitter, "speech", "")
	s.CreateKey(t, auth.Admin, "speech", "")
	s.CreateKey(t, auth.Viewer, "speech", "")
	s.CreateKey(t, auth.Operator, "", "")
	const value = "hf_AbCdEfGhIjKl"
	for _, c := range []struct {
		token, method, project string
		want                   int
	}{
		{"token-of-admin-speech", "PUT", "speech", http.StatusOK},
		{"token-of-admin-speech", "GET", "speech", http.StatusOK},
		{"token-of-submitter-speech", "GET", "speech", http.StatusOK},
		{"token-of-submitter-speech", "PUT", "speech", http.StatusForbidden},
		{"token-of-submitter-speech", "DELETE", "speech", http.StatusForbidden},
		{"token-of-viewer-speech", "GET", "speech", http.StatusForbidden},
		{"token-of-operator-", "GET", "speech", http.StatusForbidden},
		{"token-of-operator-", "PUT", "speech", http.StatusForbidden},
		{"token-of-admin-speech", "GET", "vision", http.StatusForbidden},
		{"token-of-admin-speech", "PUT", "vision", http.StatusForbidden},
		{"token-of-admin-speech", "DELETE", "vision", http.StatusForbidden},
		{"token-of-submitter-speech", "GET", "vision", http.StatusForbidden},
		{"none", "GET", "speech", http.StatusUnauthorized},
	} {
		q := request{method: c.method, path: "/api/v1/projects/" + c.project + "/secrets", token: c.token}
		if c.method != "GET" {
			q.path += "/HF_TOKEN"
		}
		if c.method == "PUT" {
			q.body = `{"value":"` + value + `"}`
		}
		resp, body := send(t, s, q)
		if resp.StatusCode != c.want {
			t.Errorf("%s %s of %s: %d, want %d: %s", c.method, q.path, c.token, resp.StatusCode, c.want, body)
		}
		if strings.Contains(string(body), value) {
			t.Errorf("%s %s of %s discloses the value: %s", c.method, q.path, c.token, body)
		}
	}
}

// A task may only run where its secrets may be.
func TestTagsOfSecrets(t *testing.T) {
	s := apitest.Start(t, nil)
	for name, body := range map[string]string{"A": `{"value":"12345678","workers":["x","y"]}`, "B": `{"value":"12345678","workers":["y","z"]}`} {
		if resp, answer := send(t, s, request{method: "PUT", path: "/api/v1/projects/default/secrets/" + name, body: body}); resp.StatusCode != http.StatusOK {
			t.Fatalf("%s", answer)
		}
	}
	if resp, answer := send(t, s, request{method: "POST", path: "/api/v1/jobs", body: `{"run":"true","where":{"tags":["w"]},"secrets":["A","B"]}`}); resp.StatusCode != http.StatusCreated {
		t.Fatalf("%s", answer)
	}
	job, err := s.Store.Job(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if got := job.Spec.Tasks[0].Where.Tags; !slices.Equal(got, []string{"w", "x", "y", "z"}) {
		t.Errorf("tags: %v", got)
	}
}
