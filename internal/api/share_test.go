package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/tasklog"
)

// linkAccess is the access of a link to a job to an operation.
type linkAccess int

const (
	linkForbidden linkAccess = iota + 1 // always
	linkOwnJob                          // of its own job; others look as if they were not there
	linkFiltered                        // what it answers is about its own job only: see TestSharedKeyReadsOnlyItsJob
	linkPublic                          // anyone may
)

// linkAccessByOperation has every operation of the API. A new operation needs a decision: links to jobs are public.
var linkAccessByOperation = map[string]linkAccess{
	"healthz": linkPublic, "readyz": linkPublic, "create-session": linkPublic, "delete-session": linkPublic,
	"get-sign-in": linkPublic, "begin-sign-in": linkPublic, "begin-device-sign-in": linkPublic, "finish-device-sign-in": linkPublic, "whoami": linkFiltered,

	"get-job": linkOwnJob, "get-job-states": linkOwnJob, "get-job-usage": linkOwnJob, "list-tasks": linkOwnJob,
	"get-task": linkOwnJob, "list-attempts": linkOwnJob, "explain-task": linkOwnJob, "get-task-spec": linkOwnJob, "list-task-events": linkOwnJob,
	"get-logs": linkOwnJob, "get-log-window": linkOwnJob, "search-logs": linkOwnJob, "get-usage": linkOwnJob, "get-task-metrics": linkOwnJob,
	"list-artifacts": linkOwnJob, "get-artifact": linkOwnJob,
	"list-jobs": linkFiltered, "watch-events": linkFiltered, "get-content": linkFiltered,

	"submit-job": linkForbidden, "plan-job": linkForbidden, "cancel-job": linkForbidden, "exec-task": linkForbidden, "retry-job": linkForbidden, "edit-job": linkForbidden, "list-late-reports": linkForbidden, "get-previous-job": linkForbidden,
	"share-job": linkForbidden, "unshare-job": linkForbidden, "list-job-notifications": linkForbidden, "list-notifications": linkForbidden,
	"get-notify": linkForbidden, "put-notify": linkForbidden, "delete-notify": linkForbidden, "list-secrets": linkForbidden, "put-secret": linkForbidden, "delete-secret": linkForbidden, "test-notify": linkForbidden,
	"list-schedules": linkForbidden, "create-schedule": linkForbidden, "get-schedule": linkForbidden, "pause-schedule": linkForbidden, "resume-schedule": linkForbidden, "run-schedule": linkForbidden, "delete-schedule": linkForbidden,
	"list-cache": linkForbidden, "clear-cache": linkForbidden, "explain-cache": linkForbidden,
	"list-all-tasks": linkForbidden, "get-overview": linkForbidden, "get-history": linkForbidden, "list-kinds": linkForbidden, "get-kind": linkForbidden,
	"list-workers": linkForbidden, "get-worker": linkForbidden, "drain-worker": linkForbidden, "pause-worker": linkForbidden, "resume-worker": linkForbidden, "heal-worker": linkForbidden, "approve-worker": linkForbidden,
	"remove-worker": linkForbidden, "join-worker": linkForbidden, "register-worker-key": linkPublic, "create-worker-session": linkPublic, "reset-worker": linkForbidden, "download-muster": linkForbidden,
	"remove-job": linkForbidden, "keep-job": linkForbidden, "unkeep-job": linkForbidden, "prune": linkForbidden,
	"get-retention": linkForbidden, "put-retention": linkForbidden, "delete-retention": linkForbidden, "backup": linkForbidden,
	"list-audit-records": linkForbidden, "verify-audit-log": linkForbidden, "export-audit-log": linkForbidden,
	"create-key": linkForbidden, "rotate-key": linkForbidden, "list-keys": linkForbidden, "revoke-key": linkForbidden,
	"missing-blobs": linkForbidden, "get-blob": linkForbidden, "head-blob": linkForbidden, "put-blob": linkForbidden, "check-blob": linkForbidden,
	"get-job-schema": linkPublic,
}

// share creates a link to a job and returns its key.
func share(t *testing.T, s *apitest.Server, job string) wire.Share {
	t.Helper()
	var link wire.Share
	if err := json.Unmarshal(expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs/" + job + "/share"}, http.StatusCreated), &link); err != nil {
		t.Fatal(err)
	}
	return link
}

// Every route of the API has a decision about links to a job, and implements it.
func TestShareByRoute(t *testing.T) {
	s := startPopulatedServer(t)
	token := share(t, s, "1").Secret
	seen := map[string]bool{}
	for path, item := range api.Document().Paths {
		ops := map[string]string{}
		if item.Get != nil {
			ops["GET"] = item.Get.OperationID
		}
		if item.Head != nil {
			ops["HEAD"] = item.Head.OperationID
		}
		if item.Post != nil {
			ops["POST"] = item.Post.OperationID
		}
		if item.Put != nil {
			ops["PUT"] = item.Put.OperationID
		}
		if item.Delete != nil {
			ops["DELETE"] = item.Delete.OperationID
		}
		if item.Patch != nil {
			ops["PATCH"] = item.Patch.OperationID
		}
		for method, id := range ops {
			seen[id] = true
			statusForJob := func(job string) int {
				url := strings.NewReplacer("{job}", job, "{task}", job+".0", "{name}", "out/hello%20world.txt", "{worker}", "w1", "{key}", "root", "{kind}", "noop", "{secret}", "A", "{schedule}", "nightly",
					"{project}", "default", "{sha256}", helloSum, "{cid}", "QmT78zSuBmuS4z925WZfrqQ1qHaJ56DQaTfyMUF7F8ff5o").Replace(path)
				switch id {
				case "search-logs":
					url += "?q=hello"
				case "get-logs":
					url += "?follow=false"
				case "watch-events":
					return http.StatusOK // a stream: see TestSharedKeyReadsOnlyItsJob
				}
				resp, _ := send(t, s, request{method: method, path: url, token: token, body: `{}`})
				return resp.StatusCode
			}
			switch linkAccessByOperation[id] {
			case linkForbidden:
				if a, b := statusForJob("1"), statusForJob("2"); a != http.StatusForbidden || b != http.StatusForbidden {
					t.Errorf("%s %s (%s) answers a link %d, and for another job %d; want 403", method, path, id, a, b)
				}
			case linkOwnJob:
				if a, b := statusForJob("1"), statusForJob("2"); a != http.StatusOK || b != http.StatusNotFound {
					t.Errorf("%s %s (%s) answers a link %d, and for another job %d; want 200 and 404", method, path, id, a, b)
				}
			case linkFiltered:
				if a := statusForJob("1"); a != http.StatusOK && a != http.StatusNotFound {
					t.Errorf("%s %s (%s) answers a link %d", method, path, id, a)
				}
			case linkPublic:
			default:
				t.Errorf("operation %s (%s %s) has no decision about links to jobs: decide what users with a link may see", id, method, path)
			}
		}
	}
	for id := range linkAccessByOperation {
		if !seen[id] {
			t.Errorf("operation %s does not exist", id)
		}
	}
	for _, path := range []string{"/link/v1", "/link/v1/poll"} {
		expectStatus(t, s, request{method: "GET", path: path, token: token}, http.StatusForbidden)
	}
}

// Operations without a job in their path are limited to the job of the link.
func TestSharedKeyReadsOnlyItsJob(t *testing.T) {
	s := startPopulatedServer(t)
	token := share(t, s, "1").Secret
	var jobs wire.Jobs
	for _, query := range []string{"", "?limit=1000", "?order=oldest", "?project=speech", "?state=failed"} {
		if err := json.Unmarshal(expectStatus(t, s, request{method: "GET", path: "/api/v1/jobs" + query, token: token}, http.StatusOK), &jobs); err != nil {
			t.Fatal(err)
		}
		for _, j := range jobs.Jobs {
			if j.ID != 1 {
				t.Errorf("%s: a link to job 1 sees job %d", query, j.ID)
			}
		}
		if want := query == "" || query[1] == 'l' || query[1] == 'o'; want != (len(jobs.Jobs) == 1) {
			t.Errorf("%s: %d jobs", query, len(jobs.Jobs))
		}
	}
	expectStatus(t, s, request{method: "GET", path: "/api/v1/events?job=2", token: token}, http.StatusNotFound)
	events := openStream(t, s, "/api/v1/events", map[string]string{"Authorization": "Bearer " + share(t, s, "3").Secret})
	for _, path := range []string{"/workers/w1/pause", "/workers/w1/resume", "/jobs/2/retry", "/jobs/3/cancel"} { // the last one is seen
		expectStatus(t, s, request{method: "POST", path: "/api/v1" + path}, http.StatusOK)
	}
	for line := range events.lines {
		if !strings.HasPrefix(line, "data:") || strings.Contains(line, `"type":"resync"`) {
			continue
		}
		if !strings.Contains(line, `"job":3`) {
			t.Errorf("a link to job 3 receives %s", line)
		}
		if strings.Contains(line, `"cancelled"`) {
			return
		}
	}
	t.Error("a link to job 3 does not receive its event")
}

// A link does not show values of environment variables and notifications, which may be secret.
func TestShareHidesSecrets(t *testing.T) {
	s := apitest.Start(t, nil)
	spec := "name: x\nkind: noop\nenv: {TOKEN: s3cr3t}\nnotify:\n  - {on: [ended], url: \"https://hooks.example/s3cr3t\"}\n"
	expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs", body: spec, header: map[string]string{"Content-Type": "application/yaml"}}, http.StatusCreated)
	token := share(t, s, "1").Secret
	for _, path := range []string{"/jobs/1", "/jobs", "/jobs/1/states", "/jobs/1/tasks", "/tasks/1.0", "/tasks/1.0/spec", "/tasks/1.0/events", "/tasks/1.0/explain"} {
		if body := expectStatus(t, s, request{method: "GET", path: "/api/v1" + path, token: token}, http.StatusOK); strings.Contains(string(body), "s3cr3t") {
			t.Errorf("%s shows a link %s", path, body)
		}
		if path == "/jobs/1" || path == "/tasks/1.0/spec" {
			if body := expectStatus(t, s, request{method: "GET", path: "/api/v1" + path}, http.StatusOK); !strings.Contains(string(body), "s3cr3t") {
				t.Errorf("%s does not show an administrator the value: %s", path, body)
			}
		}
	}
}

func TestShareLifetime(t *testing.T) {
	s := startPopulatedServer(t)
	link := share(t, s, "1")
	if d := time.Until(link.ExpiresAt.Std()); d > 24*time.Hour || d < 23*time.Hour || link.URL != "/share#"+link.Secret {
		t.Errorf("the link is %+v", link)
	}
	_, cookieHeader := signIn(t, s, link.Secret, nil)
	var whoami wire.Whoami
	if err := json.Unmarshal(expectStatus(t, s, request{method: "GET", path: "/api/v1/whoami", token: "none", header: map[string]string{"Cookie": cookieHeader}}, http.StatusOK), &whoami); err != nil {
		t.Fatal(err)
	}
	if whoami.Job != 1 || whoami.Role != string(auth.Viewer) || fmt.Sprint(whoami.Permissions) != "[read jobs]" || whoami.ExpiresAt != link.ExpiresAt {
		t.Errorf("the link is %+v", whoami)
	}
	old := store.Key{ID: "old", Name: "link to job 1", Role: "viewer", Job: 1, Hash: auth.Hash("token-of-an-old-link"), ExpiresAt: muster.NewTime(time.Now().Add(-time.Second))}
	if err := s.Store.PutKeys(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	expectStatus(t, s, request{method: "GET", path: "/api/v1/jobs/1", token: "token-of-an-old-link"}, http.StatusUnauthorized)
	share(t, s, "1")
	if keys, err := s.Store.ListKeys(t.Context()); err != nil || strings.Contains(fmt.Sprint(keys), "{old ") {
		t.Errorf("an expired link is kept: %v, %v", keys, err)
	}
	other := share(t, s, "2").Secret
	expectStatus(t, s, request{method: "DELETE", path: "/api/v1/jobs/1/share"}, http.StatusNoContent)
	expectStatus(t, s, request{method: "GET", path: "/api/v1/jobs/1", token: link.Secret}, http.StatusUnauthorized)
	expectStatus(t, s, request{method: "GET", path: "/api/v1/jobs/2", token: other}, http.StatusOK)
	viewer := s.CreateKey(t, auth.Viewer, "", "")
	expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs/1/share", token: viewer}, http.StatusForbidden)
	expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs/2/share", token: s.CreateKey(t, auth.Submitter, "vision", "")}, http.StatusNotFound)
	expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs/99/share"}, http.StatusNotFound)
	for range 99 {
		share(t, s, "2")
	}
	expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs/2/share"}, http.StatusConflict)
}

// A link ends with the key that created it.
func TestLinksExpireWithTheirKeys(t *testing.T) {
	s := startPopulatedServer(t)
	expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs", body: `{"kind":"noop"}`}, http.StatusCreated)
	keys, err := s.Store.ListKeys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	expiring := muster.NewTime(time.Now().Add(time.Hour))
	ann := store.Key{ID: "ann", Name: "ann", Role: string(auth.Submitter), Hash: auth.Hash("token-of-ann"), CreatedAt: 1, ExpiresAt: expiring}
	if err := s.Store.PutKeys(t.Context(), ann); err != nil {
		t.Fatal(err)
	}
	var link wire.Share
	created := expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs/1/share", token: "token-of-ann", body: `{"ttl":"30d"}`}, http.StatusCreated)
	if err := json.Unmarshal(created, &link); err != nil {
		t.Fatal(err)
	}
	if link.ExpiresAt != expiring {
		t.Errorf("the link expires at %s, after the key that created it: %s", link.ExpiresAt, expiring)
	}
	other := share(t, s, "1")
	events := openStream(t, s, "/api/v1/events", map[string]string{"Authorization": "Bearer " + link.Secret})
	expectStatus(t, s, request{method: "GET", path: "/api/v1/jobs/1", token: link.Secret}, http.StatusOK)
	expectStatus(t, s, request{method: "DELETE", path: "/api/v1/keys/ann"}, http.StatusNoContent)
	expectStatus(t, s, request{method: "GET", path: "/api/v1/jobs/1", token: link.Secret}, http.StatusUnauthorized)
	expectStatus(t, s, request{method: "GET", path: "/api/v1/jobs/1", token: other.Secret}, http.StatusOK)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for range events.lines {
			continue
		}
	}()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Error("the stream of a link stays open after the key that created it was revoked")
	}
	open, err := s.Store.ListKeys(t.Context())
	if err != nil || len(open) != len(keys)+1 {
		t.Errorf("%d keys remain of %d and one link: %v", len(open), len(keys), err)
	}
}

// The number of links is limited per project.
func TestLinksOfAProjectAreLimited(t *testing.T) {
	s := startPopulatedServer(t)
	job, err := s.Store.Job(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	put := func(n int, ends muster.Time) {
		t.Helper()
		k := store.Key{ID: fmt.Sprint("link", n), Name: "link", Role: "viewer", Project: job.Project, Job: muster.JobID(1_000 + n/50), Hash: auth.Hash(strconv.Itoa(n)), CreatedAt: 1, ExpiresAt: ends}
		if err := s.Store.PutKeys(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 1_000 {
		put(n, muster.NewTime(time.Now().Add(time.Hour)))
	}
	q := request{method: "POST", path: "/api/v1/jobs/1/share"}
	if body := string(expectStatus(t, s, q, http.StatusConflict)); !strings.Contains(body, "project "+job.Project+" has the maximum of 1000 valid links") {
		t.Errorf("the refusal is %s", body)
	}
	elsewhere := 0
	for _, id := range []string{"1", "2", "3"} {
		if other, err := s.Store.Job(t.Context(), muster.JobID(id[0]-'0')); err == nil && other.Project != job.Project {
			share(t, s, id)
			elsewhere++
		}
	}
	if elsewhere == 0 {
		t.Error("no job is of another project")
	}
	put(0, 1) // it has expired
	expectStatus(t, s, q, http.StatusCreated)
	expectStatus(t, s, q, http.StatusConflict)
}

// An HTML artifact of a task is shown, but cannot run scripts with the dashboard's permissions.
func TestArtifactsRunNoScripts(t *testing.T) {
	s := apitest.Start(t, nil)
	w := s.ConnectWorker(t, "w1")
	expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs", body: `{"run":"x"}`}, http.StatusCreated)
	id := w.StartNext()
	if err := s.PutBlob(t.Context(), helloSum, "hello\n"); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{
		"page.html": "text/html; charset=utf-8", "image.svg": "image/svg+xml", "script.js": "text/plain; charset=utf-8", "plot.png": "image/png", "table.csv": "text/csv; charset=utf-8",
		"rows.parquet": "application/vnd.apache.parquet", "README.md": "text/markdown; charset=utf-8", "model.bin": "application/octet-stream", "LOUD.PNG": "image/png", "no-extension": "text/plain; charset=utf-8",
	}
	var list []muster.Artifact
	for name := range kinds {
		list = append(list, muster.Artifact{Name: name, Size: 6, SHA256: helloSum})
	}
	size := appendLog(t, s, id, apitest.EncodeRecord(tasklog.Stdout, "done\n"))
	w.Finish(id, muster.AttemptSucceeded, size, list...)
	eventuallyTrue(t, func() bool {
		task, err := s.Store.Task(t.Context(), id.Task)
		return err == nil && task.State.Final()
	})
	_, cookieHeader := signIn(t, s, apitest.AdminToken, nil)
	for name, kind := range kinds {
		q := request{method: "GET", path: "/api/v1/tasks/1.0/artifacts/" + name, token: "none", header: map[string]string{"Cookie": cookieHeader}}
		resp, _ := send(t, s, q)
		h := resp.Header
		if resp.StatusCode != http.StatusOK || h.Get("Content-Type") != kind {
			t.Errorf("%s: %d %s, want %s", name, resp.StatusCode, h.Get("Content-Type"), kind)
		}
		policy := h.Get("Content-Security-Policy")
		if !strings.Contains(policy, "sandbox;") || strings.Contains(policy, "allow-") || !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "script-src") || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s has the policy %q and %q", name, policy, h.Get("X-Content-Type-Options"))
		}
		if got := h.Get("Content-Disposition"); !strings.HasPrefix(got, "inline") {
			t.Errorf("%s: %s", name, got)
		}
		q.path += "?download=true"
		if resp, _ = send(t, s, q); !strings.HasPrefix(resp.Header.Get("Content-Disposition"), "attachment") || resp.Header.Get("Content-Security-Policy") != policy {
			t.Errorf("%s is saved as %v", name, resp.Header)
		}
		q.header["Range"] = "bytes=1-2"
		if resp, body := send(t, s, q); resp.StatusCode != http.StatusPartialContent || string(body) != "el" || resp.Header.Get("Content-Range") != "bytes 1-2/6" {
			t.Errorf("a range of %s: %d %q", name, resp.StatusCode, body)
		}
	}
}
