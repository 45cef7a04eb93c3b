package api_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/mustertest/testworker"
	"github.com/muster-dev/muster/internal/store"
)

func expectStatus(t *testing.T, s *apitest.Server, q request, want int) []byte {
	t.Helper()
	resp, body := send(t, s, q)
	if resp.StatusCode != want {
		t.Fatalf("%s %s: %d, want %d: %s", q.method, q.path, resp.StatusCode, want, body)
	}
	return body
}

// Every endpoint rejects callers without a key, and with a key without permissions.
func TestEveryEndpointRequiresAKey(t *testing.T) {
	s := apitest.Start(t, nil)
	join := s.CreateKey(t, auth.Join, "", "")
	open := map[string]bool{"/healthz": true, "/readyz": true, "/api/v1/schemas/job.json": true, "/api/v1/oidc": true}
	session := map[string]int{"POST": http.StatusBadRequest, "DELETE": http.StatusNoContent} // without a body
	for path, item := range api.Document().Paths {
		for method, op := range map[string]any{"GET": item.Get, "POST": item.Post, "PUT": item.Put, "DELETE": item.Delete, "HEAD": item.Head} {
			if op == nil || isNilOperation(op) {
				continue
			}
			path := strings.NewReplacer("{job}", "1", "{task}", "1.0", "{name}", "x", "{worker}", "w", "{key}", "k", "{sha256}", strings.Repeat("0", 64)).Replace(path)
			q := request{method: method, path: path, token: "none"}
			if open[path] {
				expectStatus(t, s, q, http.StatusOK)
				continue
			}
			if strings.HasPrefix(path, "/api/v1/oidc/") {
				continue // see TestServerWithoutSignIn
			}
			if path == link.PathKey || path == link.PathSession { // which need a signature
				expectStatus(t, s, q, http.StatusBadRequest)
				continue
			}
			if path == "/api/v1/session" {
				expectStatus(t, s, q, session[method])
				continue
			}
			expectStatus(t, s, q, http.StatusUnauthorized)
			q.token = join
			if path == "/api/v1/whoami" || path == "/download/muster" {
				expectStatus(t, s, q, http.StatusOK)
			} else if path != "/link/v1/join" {
				if resp, _ := send(t, s, q); resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusBadRequest {
					t.Errorf("%s %s with a join token: %d", method, path, resp.StatusCode)
				}
			}
		}
	}
}

func isNilOperation(op any) bool {
	b, err := json.Marshal(op)
	return err == nil && string(b) == "null"
}

func TestRevokedKeyIsRefusedAtOnce(t *testing.T) {
	s := apitest.Start(t, nil)
	var created wire.MadeKey
	body := expectStatus(t, s, request{method: "POST", path: "/api/v1/keys", body: `{"name":"ci","role":"viewer"}`}, http.StatusCreated)
	if err := json.Unmarshal(body, &created); err != nil {
		t.Fatal(err)
	}
	list := request{method: "GET", path: "/api/v1/jobs", token: created.Secret}
	expectStatus(t, s, list, http.StatusOK)
	expectStatus(t, s, request{method: "DELETE", path: "/api/v1/keys/" + created.Key.ID}, http.StatusNoContent)
	expectStatus(t, s, list, http.StatusUnauthorized)
	expectStatus(t, s, request{method: "DELETE", path: "/api/v1/keys/" + created.Key.ID}, http.StatusNotFound)
	expectStatus(t, s, request{method: "DELETE", path: "/api/v1/keys/root"}, http.StatusConflict)
}

func TestExpiredKey(t *testing.T) {
	s := apitest.Start(t, nil)
	err := s.Store.PutKeys(t.Context(), store.Key{ID: "old", Name: "old", Role: "viewer", Hash: auth.Hash("expired-token-0123"), ExpiresAt: muster.NewTime(time.Now().Add(-time.Second))})
	if err != nil {
		t.Fatal(err)
	}
	body := expectStatus(t, s, request{method: "GET", path: "/api/v1/jobs", token: "expired-token-0123"}, http.StatusUnauthorized)
	if !strings.Contains(string(body), "expired at") {
		t.Errorf("the answer does not say that the key has expired: %s", body)
	}
}

// A key for one project cannot read or change another project.
func TestProjectsAreIsolated(t *testing.T) {
	s := apitest.Start(t, nil)
	vision := s.CreateKey(t, auth.Submitter, "vision", "")
	expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs", body: `{"project":"speech","kind":"noop"}`}, http.StatusCreated)
	for _, q := range []request{
		{method: "GET", path: "/api/v1/jobs/1"}, {method: "GET", path: "/api/v1/jobs/1/tasks"}, {method: "GET", path: "/api/v1/jobs/1/late"}, {method: "POST", path: "/api/v1/jobs/1/cancel"},
		{method: "GET", path: "/api/v1/tasks/1.0"}, {method: "GET", path: "/api/v1/tasks/1.0/logs"}, {method: "GET", path: "/api/v1/tasks/1.0/artifacts"},
		{method: "GET", path: "/api/v1/tasks/1.0/usage"},
		{method: "GET", path: "/api/v1/tasks/1.0/explain"}, {method: "GET", path: "/api/v1/events?job=1"},
	} {
		q.token = vision
		if body := expectStatus(t, s, q, http.StatusNotFound); strings.Contains(string(body), "speech") {
			t.Errorf("%s reveals the other project: %s", q.path, body)
		}
	}
	expectStatus(t, s, request{method: "GET", path: "/api/v1/jobs/9/late"}, http.StatusNotFound) // nobody's
	expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs", token: vision, body: `{"project":"speech","kind":"noop"}`}, http.StatusForbidden)
	expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs", token: vision, body: `{"project":"vision","kind":"noop"}`}, http.StatusCreated)
	var list wire.Jobs
	if err := json.Unmarshal(expectStatus(t, s, request{method: "GET", path: "/api/v1/jobs", token: vision}, http.StatusOK), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Jobs) != 1 || list.Jobs[0].ID != 2 {
		t.Errorf("the key for vision sees %+v", list.Jobs)
	}
}

// A job without a project gets the project of the key.
func TestKeyDeterminesTheProject(t *testing.T) {
	s := apitest.Start(t, nil)
	var job muster.Job
	body := expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs", token: s.CreateKey(t, auth.Submitter, "vision", ""), body: `{"kind":"noop"}`}, http.StatusCreated)
	if err := json.Unmarshal(body, &job); err != nil || job.Project != "vision" {
		t.Errorf("job in project %q, %v", job.Project, err)
	}
}

func TestIdempotencyKey(t *testing.T) {
	s := apitest.Start(t, nil)
	q := request{method: "POST", path: "/api/v1/jobs", body: `{"kind":"noop"}`, header: map[string]string{"Idempotency-Key": "once"}}
	first := expectStatus(t, s, q, http.StatusCreated)
	if again := expectStatus(t, s, q, http.StatusCreated); !bytes.Equal(first, again) {
		t.Errorf("the same request created another job: %s, then %s", first, again)
	}
	q.body = `{"kind":"noop","name":"other"}`
	expectStatus(t, s, q, http.StatusConflict)
	q.token = s.CreateKey(t, auth.Submitter, "", "")
	var job muster.Job
	if err := json.Unmarshal(expectStatus(t, s, q, http.StatusCreated), &job); err != nil || job.ID != 2 {
		t.Errorf("another owner's key created job %d, %v; want job 2", job.ID, err)
	}
}

func TestWorkerKeys(t *testing.T) {
	s := apitest.Start(t, nil)
	token := s.CreateKey(t, auth.Join, "", "")
	joined, err := testworker.Join(t.Context(), http.DefaultClient, s.URL, token, "box")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/link/v1", "/link/v1/poll"} {
		got := expectStatus(t, s, request{method: "GET", path: path, token: joined.Key}, http.StatusOK)
		if string(got) != "connected as "+string(joined.Worker) {
			t.Errorf("%s: %s", path, got)
		}
		expectStatus(t, s, request{method: "GET", path: path, token: "none"}, http.StatusUnauthorized)
		expectStatus(t, s, request{method: "GET", path: path}, http.StatusForbidden) // an admin is no worker
	}
	for token, want := range map[string]int{joined.Key: http.StatusForbidden, "a token": http.StatusUnauthorized} {
		var refusal *testworker.StatusError
		if _, err := testworker.Join(t.Context(), http.DefaultClient, s.URL, token, "box"); !errors.As(err, &refusal) || refusal.Status != want {
			t.Errorf("join: %v, want %d", err, want)
		}
	}
	var refusal *testworker.StatusError
	if _, err := testworker.Join(t.Context(), http.DefaultClient, s.URL, token, "a/b"); !errors.As(err, &refusal) || refusal.Status != http.StatusBadRequest {
		t.Errorf("a name with a slash: %v", err)
	}
}

func TestBlobUploads(t *testing.T) {
	s := apitest.Start(t, nil)
	content := strings.Repeat("0123456789", 5_000)
	sum := sha256.Sum256([]byte(content))
	path := "/api/v1/blobs/" + hex.EncodeToString(sum[:])
	token := s.CreateKey(t, auth.Worker, "", "w1")
	offset := func(resp *http.Response) string { return resp.Header.Get("Upload-Offset") }

	resp, _ := send(t, s, request{method: "HEAD", path: path, token: token})
	if resp.StatusCode != http.StatusNotFound || offset(resp) != "0" {
		t.Fatalf("HEAD before: %d, offset %q", resp.StatusCode, offset(resp))
	}
	abortUpload(t, s, path, token, content[:30_000], len(content))
	eventuallyTrue(t, func() bool {
		resp, _ = send(t, s, request{method: "HEAD", path: path, token: token})
		return offset(resp) == "30000"
	})
	resp, _ = send(t, s, request{method: "PUT", path: path, token: token, body: content})
	if resp.StatusCode != http.StatusConflict || offset(resp) != "30000" {
		t.Fatalf("PUT at the wrong offset: %d, offset %q", resp.StatusCode, offset(resp))
	}
	rest := request{method: "PUT", path: path, token: token, body: content[30_000:], header: map[string]string{"Upload-Offset": "30000"}}
	expectStatus(t, s, rest, http.StatusCreated)
	expectStatus(t, s, request{method: "PUT", path: path, token: token, body: content}, http.StatusOK)
	if got := expectStatus(t, s, request{method: "GET", path: path, token: token}, http.StatusOK); string(got) != content {
		t.Errorf("read %d other bytes", len(got))
	}
	part := request{method: "GET", path: path, token: token, header: map[string]string{"Range": "bytes=49990-"}}
	if got := expectStatus(t, s, part, http.StatusPartialContent); string(got) != "0123456789" {
		t.Errorf("range: %q", got)
	}
	resp, _ = send(t, s, request{method: "HEAD", path: path, token: token})
	if resp.StatusCode != http.StatusOK || resp.ContentLength != int64(len(content)) {
		t.Errorf("HEAD after: %d, %d bytes", resp.StatusCode, resp.ContentLength)
	}
	expectStatus(t, s, request{method: "PUT", path: "/api/v1/blobs/" + strings.Repeat("0", 64), token: token, body: "something else"}, http.StatusBadRequest)
	expectStatus(t, s, request{method: "PUT", path: "/api/v1/blobs/NOHASH", token: token, body: "x"}, http.StatusBadRequest)
	expectStatus(t, s, request{method: "GET", path: path, token: s.CreateKey(t, auth.Viewer, "", "")}, http.StatusForbidden)
}

// abortUpload starts an upload of size bytes and disconnects after the first ones.
func abortUpload(t *testing.T, s *apitest.Server, path, token, prefix string, size int) {
	t.Helper()
	body, pipeWriter := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, s.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = int64(size)
	req.Header.Set("Authorization", "Bearer "+token)
	var client sync.WaitGroup
	client.Go(func() {
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
			t.Error("an aborted upload got an answer")
		}
	})
	if _, err := io.WriteString(pipeWriter, prefix); err != nil {
		t.Fatal(err)
	}
	_ = pipeWriter.CloseWithError(io.ErrUnexpectedEOF)
	client.Wait()
}

func eventuallyTrue(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); {
		if time.Now().After(end) {
			t.Fatal("timeout after a minute")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestTooLargeBodies(t *testing.T) {
	s := apitest.Start(t, nil)
	big := `{"name":"` + strings.Repeat("x", 1<<20+1024) + `"}`
	for _, path := range []string{"/api/v1/jobs", "/api/v1/keys", "/api/v1/plan"} {
		var p wire.Problem
		body := expectStatus(t, s, request{method: "POST", path: path, body: big}, http.StatusRequestEntityTooLarge)
		if err := json.Unmarshal(body, &p); err != nil || p.Code != muster.TooLarge || p.Title != "Content Too Large" {
			t.Errorf("%s: %s", path, body)
		}
	}
}

func TestDocsLoadNothingFromOtherHosts(t *testing.T) {
	s := apitest.Start(t, nil)
	for _, path := range []string{"/api/docs", "/api/docs/docs.js", "/api/docs/docs.css", "/api/v1/openapi.json"} {
		body := expectStatus(t, s, request{method: "GET", path: path, token: "none"}, http.StatusOK)
		if path != "/api/v1/openapi.json" && bytes.Contains(body, []byte("//cdn")) || bytes.Contains(body, []byte("unpkg")) {
			t.Errorf("%s loads from another server", path)
		}
	}
	resp, _ := send(t, s, request{method: "GET", path: "/", token: "none"})
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		t.Errorf("/: %d %s", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	var doc struct {
		OpenAPI string         `json:"openapi"`
		Paths   map[string]any `json:"paths"`
	}
	if err := json.Unmarshal(expectStatus(t, s, request{method: "GET", path: "/api/v1/openapi.json", token: "none"}, http.StatusOK), &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1") || doc.Paths["/api/v1/tasks/{task}/artifacts/{name}"] == nil {
		t.Errorf("OpenAPI %s with paths %v", doc.OpenAPI, doc.Paths)
	}
}

// stream is an open stream of server-sent events, read line by line.
type stream struct {
	t     *testing.T
	lines chan string
}

func openStream(t *testing.T, s *apitest.Server, path string, header map[string]string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+apitest.AdminToken)
	req.Header.Set("Accept", "text/event-stream")
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v %v", path, resp, err)
	}
	st := &stream{t: t, lines: make(chan string, 1000)}
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(st.lines)
		for in := bufio.NewScanner(resp.Body); in.Scan(); {
			if line := in.Text(); line != "" && line[0] != ':' {
				st.lines <- line
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = resp.Body.Close()
		reader.Wait()
	})
	return st
}

// expect reads lines and compares them without times.
func (st *stream) expect(want ...string) {
	st.t.Helper()
	for _, w := range want {
		select {
		case line, ok := <-st.lines:
			if got := anyTime.ReplaceAllString(line, `"TIME"`); got != w {
				st.t.Fatalf("the stream has %q (open: %t), want %q", got, ok, w)
			}
		case <-time.After(time.Minute):
			st.t.Fatalf("the stream has no data, want %q", w)
		}
	}
}

func (st *stream) expectEnd() {
	st.t.Helper()
	select {
	case line, ok := <-st.lines:
		if ok {
			st.t.Fatalf("unexpected line %q", line)
		}
	case <-time.After(time.Minute):
		st.t.Fatal("the stream does not end")
	}
}

// A worker that is paused while it is gone is shown as paused, and is paused when it reconnects.
func TestPauseOfDisconnectedWorker(t *testing.T) {
	s := apitest.Start(t, nil)
	s.ConnectWorker(t, "w1").Goodbye()
	is := func(state muster.WorkerState, paused bool) func() bool {
		return func() bool {
			var w muster.Worker
			if err := json.Unmarshal(expectStatus(t, s, request{method: "GET", path: "/api/v1/workers/w1"}, http.StatusOK), &w); err != nil {
				t.Fatal(err)
			}
			return w.State == state && w.Paused == paused
		}
	}
	eventuallyTrue(t, is(muster.WorkerGone, false))
	var w muster.Worker
	if err := json.Unmarshal(expectStatus(t, s, request{method: "POST", path: "/api/v1/workers/w1/pause"}, http.StatusOK), &w); err != nil || w.State != muster.WorkerGone || !w.Paused {
		t.Errorf("the answer is %+v, %v; want a worker that is gone and paused", w, err)
	}
	s.ConnectWorker(t, "w1")
	eventuallyTrue(t, is(muster.WorkerPaused, true))
	expectStatus(t, s, request{method: "POST", path: "/api/v1/workers/w1/resume"}, http.StatusOK)
	eventuallyTrue(t, is(muster.WorkerActive, false))
}

// A worker's name refers to the connected worker if another one with this name has left.
func TestWorkerNamePrefersConnectedWorker(t *testing.T) {
	s := apitest.Start(t, nil)
	session := func(id muster.WorkerID) link.Session {
		t.Helper()
		open, _, err := s.Engine.Open(t.Context(), &link.Hello{Version: link.Version, Worker: id, Name: "box"}, func(*link.ToWorker) {})
		if err != nil {
			t.Fatal(err)
		}
		return open
	}
	first := session("w-1")
	second := session("w-2")
	defer second.Close(false)
	expectStatus(t, s, request{method: "GET", path: "/api/v1/workers/box"}, http.StatusConflict)
	first.Close(true)
	if got := expectStatus(t, s, request{method: "GET", path: "/api/v1/workers/box"}, http.StatusOK); !strings.Contains(string(got), `"w-2"`) {
		t.Errorf("the name refers to %s", got)
	}
}
