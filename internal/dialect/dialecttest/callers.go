package dialecttest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
)

// Caller is a key with its owner.
type Caller struct {
	auth.Principal

	Secret string
}

// Callers creates a key of each role but worker for all projects and for one where the role may be for one, and a link to a new job of the project.
// adminToken is that of an administrator of the server at url.
func Callers(tb testing.TB, url, adminToken, project string) []Caller {
	tb.Helper()
	admin, err := client.New(url, adminToken, client.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	var list []Caller
	add := func(role auth.Role, project string) {
		made, err := admin.CreateKey(tb.Context(), client.NewKey{Name: string(role), Role: string(role), Project: project})
		if err != nil {
			tb.Fatal(err)
		}
		list = append(list, Caller{auth.Principal{KeyID: made.Key.ID, Name: string(role), Role: role, Project: project}, made.Secret})
	}
	for _, role := range auth.Roles {
		if role == auth.Worker {
			continue // its session tokens are no keys
		}
		if add(role, ""); role.ForProject() {
			add(role, project)
		}
	}
	job, err := admin.Submit(tb.Context(), &muster.Spec{Project: project, Tasks: []muster.TaskSpec{{Kind: muster.KindNoop, Resources: muster.Request{CPUs: 9000}}}}, client.SubmitOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	var shared wire.Share
	post(tb, url+wire.Prefix+"/jobs/"+job.ID.String()+"/share", adminToken, "", &shared)
	return append(list, Caller{auth.Principal{KeyID: shared.Key, Name: "link", Role: auth.Viewer, Project: project, Job: job.ID}, shared.Secret})
}

// CallersOf is Callers with keys for another project beside it.
func CallersOf(tb testing.TB, url, adminToken, project, other string) []Caller {
	tb.Helper()
	return append(Callers(tb, url, adminToken, project), slices.DeleteFunc(Callers(tb, url, adminToken, other), func(c Caller) bool { return c.Project == "" || c.Job != 0 })...)
}

func post(tb testing.TB, url, token, body string, answer any) {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil || resp.StatusCode >= http.StatusBadRequest {
		tb.Fatalf("%s: %d, %v", url, resp.StatusCode, err)
	}
}
