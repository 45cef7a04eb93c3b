//go:build unix

package attack

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/testworker"
)

// caller is a key of the matrix.
type caller struct {
	auth.Principal
	token string // "" for a request without a key
}

func (c *caller) String() string {
	switch {
	case c.token == "":
		return "no key"
	case c.Job != 0:
		return "a link to job " + c.Job.String()
	default:
		return string(c.Role) + " of " + cmp.Or(c.Project, "all projects")
	}
}

// callers makes a key of each role, for all projects and for project "a" where the role may be for one, a link to a job, and one without a key.
func (e *env) callers(job muster.JobID) []caller {
	e.t.Helper()
	list := []caller{{}}
	add := func(role auth.Role, project string) {
		k := e.key(string(role), project, 0)
		list = append(list, caller{auth.Principal{KeyID: k.Key.ID, Name: k.Key.Name, Role: role, Project: project}, k.Secret})
	}
	for _, role := range auth.Roles {
		if role == auth.Worker {
			w := e.join("matrix")
			list = append(list, caller{auth.Principal{Name: "matrix", Role: role, Worker: w.Worker}, w.Key})
			continue
		}
		if add(role, ""); role.ForProject() {
			add(role, "a")
		}
	}
	var share wire.Share
	if rec := e.do(e.request(http.MethodPost, "/api/v1/jobs/"+job.String()+"/share", mustertest.AdminToken, nil)); json.Unmarshal(rec.Body.Bytes(), &share) != nil || share.Secret == "" {
		e.t.Fatalf("share: %d %s", rec.Code, rec.Body)
	}
	return append(list, caller{auth.Principal{KeyID: share.Key, Name: "link to job " + job.String(), Role: auth.Viewer, Project: "a", Job: job}, share.Secret})
}

// job submits a job to a project. No worker takes it.
func (e *env) job(project string) muster.JobID {
	e.t.Helper()
	return e.Submit(&muster.Spec{Project: project, Tasks: []muster.TaskSpec{{Kind: muster.KindNoop}}}).ID
}

// refusal returns the status with which an operation on an object of a project must be refused to a caller by auth.Can; 0 if it must be allowed.
func refusal(rt *rest.Route, who *caller, project string, job muster.JobID) int {
	what := auth.Object{Project: project}
	ofJob := strings.Contains(rt.Path, "{job}") || strings.Contains(rt.Path, "{task}")
	switch {
	case rt.Public:
		return 0
	case who.token == "":
		return http.StatusUnauthorized
	case rt.Verb == "":
		return 0
	case who.Job != 0 && !rt.Shared:
		return http.StatusForbidden
	case who.Job != 0 && ofJob && job != who.Job:
		return http.StatusNotFound
	case auth.Can(who.Principal, rt.Verb, auth.Object{}) != nil:
		return http.StatusForbidden
	case ofJob && auth.Can(who.Principal, rt.Verb, what) != nil, strings.Contains(rt.Path, "{key}") && auth.Can(who.Principal, rt.Verb, what) != nil:
		return http.StatusNotFound // of another project: the answer is that there is none
	case rt.Verb == auth.ExecTasks && auth.Can(who.Principal, rt.Verb, auth.Object{Project: project, Owner: "another key"}) != nil:
		return http.StatusForbidden
	case slices.Contains([]string{"verify-audit-log", "export-audit-log"}, rt.ID):
		if auth.Can(who.Principal, rt.Verb, auth.Object{Project: auth.AllProjects}) != nil {
			return http.StatusForbidden
		}
	case rt.ID == "create-key":
		what.Role = auth.Viewer
		fallthrough
	case strings.Contains(rt.Path, "{project}"), slices.Contains([]string{"submit-job", "plan-job", "prune"}, rt.ID):
		if auth.Can(who.Principal, rt.Verb, what) != nil {
			return http.StatusForbidden
		}
	}
	return 0
}

// ofProject reports whether a path names an object of one project.
func ofProject(path string) bool {
	return slices.ContainsFunc([]string{"{job}", "{task}", "{project}", "{key}"}, func(p string) bool { return strings.Contains(path, p) })
}

// objects are what the requests of the matrix name.
type objects struct {
	project  string
	job, any muster.JobID // job is the one of a link
}

// call sends a request for an operation to an object, valid but for the permission, and returns the status and the first bytes of the answer.
func (e *env) call(rt *rest.Route, who *caller, o *objects) (status int, answer string) {
	e.t.Helper()
	job := o.job
	if slices.Contains([]string{"cancel-job", "remove-job", "unshare-job"}, rt.ID) && who.Job == 0 {
		job = o.any
	}
	content := []byte("content")
	sum := sha256.Sum256(content)
	key := "none"
	if strings.Contains(rt.Path, "{key}") {
		key = e.key(string(auth.Viewer), o.project, 0).Key.ID
	}
	path := strings.NewReplacer("{job}", job.String(), "{task}", job.String()+".0", "{key}", key, "{project}", o.project, "{worker}", "nobody", "{kind}", muster.KindNoop,
		"{name}", "out.txt", "{secret}", "A_SECRET", "{schedule}", "nightly", "{sha256}", hex.EncodeToString(sum[:]), "{cid}", "QmT78zSuBmuS4z925WZfrqQ1qHaJ56DQaTfyMUF7F8ff5o").Replace(rt.Path)
	body := []byte(`{}`)
	switch rt.ID {
	case "search-logs":
		path += "?q=x"
	case "get-logs":
		path += "?follow=false"
	case "submit-job", "plan-job":
		body = fmt.Appendf(nil, `{"kind":"noop","project":%q}`, o.project)
	case "create-key":
		body = fmt.Appendf(nil, `{"name":"x","role":"viewer","project":%q}`, o.project)
	case "create-session":
		body = fmt.Appendf(nil, `{"token":%q}`, mustertest.AdminToken)
	case "finish-device-sign-in":
		body = []byte(`{"device":"none"}`)
	case "put-notify":
		body = []byte(`{"notify":[]}`)
	case "put-secret":
		body = []byte(`{"value":"a secret value"}`)
	case "create-schedule":
		body = fmt.Appendf(nil, `{"name":"nightly","cron":"0 0 1 1 *","replace":true,"spec":{"tasks":[{"kind":"noop"}],"project":%q}}`, o.project)
	case "prune":
		body = fmt.Appendf(nil, `{"project":%q,"dry_run":true}`, o.project)
	case "edit-job":
		body = []byte(`{"priority":50}`)
	case "missing-blobs":
		body = []byte(`{"sha256":[]}`)
	case "put-blob":
		body = content
	case "join-worker":
		_, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			e.t.Fatal(err)
		}
		if body, err = json.Marshal(testworker.JoinRequest(who.token, "another", private)); err != nil {
			e.t.Fatal(err)
		}
	}
	method := cmp.Or(rt.Method, http.MethodGet)
	if method == http.MethodGet || method == http.MethodHead || method == http.MethodDelete {
		body = nil
	}
	r := e.request(method, path, who.token, bytes.NewReader(body))
	if rt.ID == "put-blob" {
		r.Header.Set("Content-Type", "application/octet-stream")
	} else if len(body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := e.http.Do(r)
	if err != nil {
		e.t.Fatalf("%s as %s: %v", rt.ID, who, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		answer = string(b)
	}
	return resp.StatusCode, answer
}

// TestPermissions sends each operation of the API with a key of each role, of all projects and of one, to objects of that project and of another one,
// with a link and without a key. The server refuses exactly what auth.Can refuses.
func TestPermissions(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	linked := e.job("a")
	callers := e.callers(linked)
	targets := []objects{{project: "a", job: linked}, {project: "b", job: e.job("b")}}
	n, allowed := 0, map[string]int{}
	for _, rt := range api.Routes() {
		if rule := slices.IndexFunc(auth.Table, func(r auth.Rule) bool { return r.Verb == rt.Verb }); rule < 0 && !rt.Public && rt.ID != "whoami" {
			t.Errorf("%s needs no permission: give its route a verb of auth.Table", rt.ID)
		}
		for i := range targets {
			o := &targets[i]
			for j := range callers {
				who := &callers[j]
				if o.any = o.job; strings.HasSuffix(rt.ID, "-job") {
					o.any = e.job(o.project)
				}
				want := refusal(&rt, who, o.project, o.job)
				status, answer := e.call(&rt, who, o)
				refused := status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusNotFound && (strings.Contains(answer, "there is no job") || strings.Contains(answer, "there is no key"))
				if who.Project == "a" && o.project == "b" && status < http.StatusBadRequest && ofProject(rt.Path) {
					t.Errorf("%s (%s %s) of project b is open to %s: %d", rt.ID, rt.Method, rt.Path, who, status)
				}
				switch {
				case want != 0 && status != want, want == 0 && refused, status >= http.StatusInternalServerError && status != http.StatusServiceUnavailable:
					t.Errorf("%s %s (%s) as %s in project %s: %d %s; auth.Can wants %d", rt.Method, rt.Path, rt.ID, who, o.project, status, answer, want)
				case want == 0:
					allowed[rt.ID]++
				}
				n++
			}
		}
		if allowed[rt.ID] == 0 {
			t.Errorf("%s (%s %s) is allowed to no key", rt.ID, rt.Method, rt.Path)
		}
	}
	if n < 1_500 {
		t.Errorf("only %d requests were sent", n)
	}
}

// TestGrantedRoles creates keys of each role with each key. Keys of operators are never for one project.
func TestGrantedRoles(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	granted := map[string][]auth.Role{
		"admin of all projects": {auth.Admin, auth.Operator, auth.Submitter, auth.Viewer, auth.Join}, "operator of all projects": {auth.Join},
		"admin of a": {auth.Admin, auth.Submitter, auth.Viewer, auth.Join},
	}
	for _, who := range e.callers(e.job("a"))[1:] {
		for _, role := range auth.Roles {
			for _, project := range []string{"", "a", "b"} {
				want := http.StatusCreated
				of := cmp.Or(project, who.Project)
				switch {
				case role == auth.Worker && who.Job == 0:
					want = http.StatusBadRequest // only joining makes one
				case !slices.Contains(granted[who.String()], role), who.Project != "" && of != who.Project:
					want = http.StatusForbidden
				case of != "" && role == auth.Operator:
					want = http.StatusBadRequest
				}
				body := fmt.Sprintf(`{"name":"x","role":%q,"project":%q}`, role, project)
				r := e.request(http.MethodPost, "/api/v1/keys", who.token, strings.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				rec := e.do(r)
				if rec.Code != want {
					t.Errorf("%s creates a key of the role %s for %q: %d %s, want %d", &who, role, project, rec.Code, rec.Body, want)
				}
				var made client.MadeKey
				if rec.Code == http.StatusCreated && (json.Unmarshal(rec.Body.Bytes(), &made) != nil || made.Key.Project != of || made.Key.Role != string(role)) {
					t.Errorf("%s created %s", &who, rec.Body)
				}
			}
		}
	}
}

// TestProjectAdminsSeeOnlyTheirKeys: an administrator of a project lists, rotates and revokes the keys of the project, and does not learn of others.
func TestProjectAdminsSeeOnlyTheirKeys(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	all := e.callers(e.job("a"))
	of := func(role auth.Role, project string) *caller {
		return &all[slices.IndexFunc(all, func(c caller) bool { return c.Role == role && c.Project == project && c.Job == 0 })]
	}
	admin, own, fleet := of(auth.Admin, "a"), of(auth.Submitter, "a"), of(auth.Submitter, "")
	foreign := e.key(string(auth.Viewer), "b", 0)
	var list wire.Keys
	if rec := e.do(e.request(http.MethodGet, "/api/v1/keys", admin.token, nil)); json.Unmarshal(rec.Body.Bytes(), &list) != nil || len(list.Keys) != 5 { // admin, submitter, viewer, join and the link
		t.Errorf("the administrator of project a sees %s", rec.Body)
	}
	for _, k := range list.Keys {
		if k.Project != "a" {
			t.Errorf("the administrator of project a sees %+v", k)
		}
	}
	for _, id := range []string{foreign.Key.ID, fleet.KeyID} {
		for _, r := range []*http.Request{e.request(http.MethodDelete, "/api/v1/keys/"+id, admin.token, nil), e.request(http.MethodPost, "/api/v1/keys/"+id+"/rotate", admin.token, nil)} {
			if rec := e.do(r); rec.Code != http.StatusNotFound {
				t.Errorf("%s %s: %d %s", r.Method, r.URL.Path, rec.Code, rec.Body)
			}
		}
	}
	for _, token := range []string{foreign.Secret, fleet.token, own.token} {
		if rec := e.do(e.request(http.MethodGet, "/api/v1/whoami", token, nil)); rec.Code != http.StatusOK {
			t.Errorf("a key that nobody revoked: %d %s", rec.Code, rec.Body)
		}
	}
	if rec := e.do(e.request(http.MethodDelete, "/api/v1/keys/"+own.KeyID, admin.token, nil)); rec.Code != http.StatusNoContent {
		t.Errorf("revoking a key of the project: %d %s", rec.Code, rec.Body)
	}
	if rec := e.do(e.request(http.MethodGet, "/api/v1/whoami", own.token, nil)); rec.Code != http.StatusUnauthorized {
		t.Errorf("the revoked key: %d", rec.Code)
	}
}
