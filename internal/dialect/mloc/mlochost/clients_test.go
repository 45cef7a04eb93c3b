package mlochost_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect/dialecttest"
	"github.com/muster-dev/muster/internal/dialect/mloc/mlochost"
	"github.com/muster-dev/muster/internal/testkit"
)

// post submits YAML as a client of MLOC and returns the ids of the tasks.
func (w *env) post(yaml, token string) []string {
	w.tb.Helper()
	status, got := w.request(http.MethodPost, "/api/v1/tasks", yaml, token)
	var in struct {
		OK    bool `json:"ok"`
		Count int  `json:"count"`
		Tasks []struct {
			TaskID string `json:"task_id"`
			Status string `json:"status"`
		} `json:"tasks"`
	}
	if err := json.Unmarshal([]byte(got), &in); err != nil || status != 200 || !in.OK || in.Count != len(in.Tasks) {
		w.tb.Fatalf("%d %s", status, got)
	}
	var ids []string
	for _, t := range in.Tasks {
		if t.Status != "PENDING" {
			w.tb.Errorf("a task begins as %s", t.Status)
		}
		ids = append(ids, t.TaskID)
	}
	return ids
}

// record returns a task as clients see it.
func (w *env) record(id, token string) map[string]any {
	w.tb.Helper()
	status, got := w.request(http.MethodGet, "/api/v1/tasks/"+id, "", token)
	var rec map[string]any
	if status != 200 || json.Unmarshal([]byte(got), &rec) != nil {
		w.tb.Fatalf("%d %s", status, got)
	}
	return rec
}

// waitRecord waits until a task of a client has a state.
func (w *env) waitRecord(id, state string) map[string]any {
	w.tb.Helper()
	var rec map[string]any
	testkit.Await(w.tb, id+" becomes "+state, func() bool {
		rec = w.record(id, adminToken)
		if rec["status"] != state && (rec["completed"] == true || rec["failed"] == true) {
			w.tb.Fatalf("it became %s: %v", rec["status"], rec["error"])
		}
		return rec["status"] == state
	})
	return rec
}

const pipeline = `
apiVersion: mloc/v1
kind: EchoTask
metadata: {name: two, owner: me}
spec:
  taskType: echo
  output: {destination: {type: http, url: "http://127.0.0.1:8000/api/v1/results"}}
  stages:
    - name: a
      spec: {items: [x, "y", {deep: 1.50}], note: "größer"}
    - name: b
      spec:
        whole: "${a.result.echo.items.2}"
        part: "pre-${a.result.echo.items.1}-${a.task_id}"
        by: "${a.worker_id}"
`

// wrapper returns the stored result of a task.
func (w *env) wrapper(id, token string) map[string]any {
	w.tb.Helper()
	status, got := w.request(http.MethodGet, "/api/v1/results/"+id, "", token)
	var in map[string]any
	if status != 200 || json.Unmarshal([]byte(got), &in) != nil {
		w.tb.Fatalf("%d %s", status, got)
	}
	return in
}

func lookup(v any, path ...string) any {
	for _, key := range path {
		o, _ := v.(map[string]any)
		v = o[key]
	}
	return v
}

// TestAPipeline holds that stages run in order on any worker, with the results of earlier ones in their specs: on a worker of MLOC, and on one of Muster's own.
func TestAPipeline(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"mloc", "muster"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			w := newEnv(t, nil)
			if who == "mloc" {
				newFakeWorker(t, w.redis, "w-"+who).register().listen()
			} else {
				w.worker("w-" + who)
			}
			ids := w.post(pipeline, "")
			if len(ids) != 2 {
				t.Fatalf("%d tasks", len(ids))
			}
			rec := w.waitRecord(ids[1], "DONE")
			if rec["graph_node_name"] != "b" || lookup(rec, "parsed", "metadata", "name") != "two:b" || fmt.Sprint(rec["depends_on"]) != "["+ids[0]+"]" || rec["assigned_worker"] != "w-"+who {
				t.Errorf("the record is %v", rec)
			}
			got := lookup(w.wrapper(ids[1], ""), "result", "echo")
			if lookup(got, "part") != "pre-y-"+ids[0] || lookup(got, "by") != "w-"+who || lookup(got, "whole", "deep") != 1.5 {
				t.Errorf("the second stage had %v", got)
			}
			if up := lookup(got, "_upstreamResults", "a", "result", "echo", "note"); up != "größer" {
				t.Errorf("the second stage had of the first %v", up)
			}
			for _, path := range []string{"/api/v1/tasks", "/workers", "/metrics", "/healthz"} {
				if status, _ := w.request(http.MethodGet, path, "", ""); status != 200 {
					t.Errorf("%s: %d", path, status)
				}
			}
			if status, got := w.request(http.MethodGet, "/api/v1/results/"+ids[1]+"/files/manifest.json", "", ""); status != 200 || !strings.Contains(got, `"responses.json"`) {
				t.Errorf("the manifest: %d %s", status, got)
			}
		})
	}
}

// TestMetrics holds the shape of GET /metrics, and that it counts.
func TestMetrics(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	newFakeWorker(t, w.redis, "w1").register().listen()
	good := w.post("apiVersion: mloc/v1\nkind: E\nspec: {taskType: echo}\n", "")[0]
	w.waitRecord(good, "DONE")
	bad := w.post("apiVersion: mloc/v1\nkind: E\nspec: {taskType: echo, stages: [{name: a, spec: {v: \"${zz.result}\"}}]}\n", "")[0]
	w.waitRecord(bad, "FAILED")
	_, text := w.request(http.MethodGet, "/metrics", "", "")
	var got map[string]any
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"tasks_submitted": 2, "tasks_succeeded": 1, "tasks_failed": 1, "tasks_requeued": 0, "workers_registered": 1, "workers_unregistered": 0} {
		if n := lookup(got, "counters", name); n != want {
			t.Errorf("%s is %v, and should be %g", name, n, want)
		}
	}
	for _, category := range []string{"overall", "inference", "training", "other"} {
		for _, of := range []string{"queue_time", "execution_time", "total_time"} {
			for _, name := range []string{"avg_sec", "count", "total_sec"} {
				if _, ok := lookup(got, "task_timings", category, of, name).(float64); !ok {
					t.Errorf("task_timings.%s.%s.%s is %v", category, of, name, lookup(got, "task_timings", category, of, name))
				}
			}
		}
	}
	if lookup(got, "task_timings", "other", "total_time", "count") != 2.0 || lookup(got, "active_workers_count") != 1.0 || lookup(got, "workers", "workers", "w1", "tasks_succeeded") != 1.0 || lookup(got, "workers", "totals", "count") != 1.0 {
		t.Errorf("the figures are %s", text)
	}
	if done, _ := got["completed_tasks"].([]any); len(done) != 2 || lookup(done[0], "task_id") != good {
		t.Errorf("the completed tasks are %v", done)
	}
	if n, _ := lookup(got, "counters", "worker_heartbeats").(float64); n < 1 {
		t.Error("no heartbeats are counted")
	}
}

// TestStagesOverARestart holds that what a client submitted continues after a restart of the server.
func TestStagesOverARestart(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	ids := w.post(pipeline, "")
	w.stop()
	w.start()
	newFakeWorker(t, w.redis, "w1").register().listen()
	w.waitRecord(ids[1], "DONE")
	n := 0
	for _, err := range w.admin.Jobs(t.Context(), client.JobQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 2 {
		t.Errorf("there are %d jobs", n)
	}
}

// TestFailuresOfClientsTasks holds that references that lead nowhere, and failures of stages, fail what depends on them, to the last.
func TestFailuresOfClientsTasks(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	newFakeWorker(t, w.redis, "w1").register().listen()
	ids := w.post(`
apiVersion: mloc/v1
kind: X
spec:
  taskType: echo
  graph:
    nodes:
      - {name: a, spec: {v: 1}}
      - {name: b, dependsOn: [a], spec: {v: "${a.result.nothing}"}}
      - {name: c, dependsOn: [b]}
      - {name: d, dependsOn: [c]}
      - {name: e, spec: {v: "${zz.result}"}}
      - {name: f, spec: {v: "${QDRANT_API_KEY}"}}
`, "")
	for i, want := range map[int]string{1: "Missing value for reference", 2: "Dependency " + ids[1] + " failed", 3: "Dependency " + ids[2] + " failed", 4: "Unknown stage reference 'zz'", 5: "Invalid stage reference"} {
		if rec := w.waitRecord(ids[i], "FAILED"); !strings.Contains(fmt.Sprint(rec["error"]), want) {
			t.Errorf("%d: %v", i, rec["error"])
		}
	}
	single := w.post("apiVersion: mloc/v1\nkind: X\nspec: {taskType: echo, key: \"${QDRANT_API_KEY}\", cost: \"$${x}\", dependsOn: ["+ids[0]+"]}\n", "")
	w.waitRecord(single[0], "DONE")
	if got := lookup(w.wrapper(single[0], ""), "result", "echo"); lookup(got, "key") != "${QDRANT_API_KEY}" || lookup(got, "cost") != "$${x}" {
		t.Errorf("a single task had %v", got)
	}
}

// TestWhatOnlyMLOCCanDo holds that a task without an equivalent waits for a worker of MLOC, which gets it as it was written.
func TestWhatOnlyMLOCCanDo(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	w.worker("native")
	id := w.post("apiVersion: mloc/v1\nkind: R\nspec: {taskType: rag, qdrant: {url: \"http://q\"}, query: \"why? ${HOME}\"}\n", "")[0]
	testkit.Await(t, "it has a job", func() bool { return w.gateway.Submitted(id) })
	if rec := w.record(id, ""); rec["status"] != "PENDING" {
		t.Errorf("it is %v", rec["status"])
	}
	s := newFakeWorker(t, w.redis, "w1")
	s.register().listen()
	w.waitRecord(id, "DONE")
	if got := s.ran()[0]; got.TaskID != id || got.Task.Spec["query"] != "why? ${HOME}" || got.Task.Spec["taskType"] != "rag" {
		t.Errorf("the worker was given %s", got.raw)
	}
}

// TestDestinationsOfUsers holds that a destination that is not this host stays, and that the task ends without a result here.
func TestDestinationsOfUsers(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	s := newFakeWorker(t, w.redis, "w1")
	s.register().listen()
	id := w.post("apiVersion: mloc/v1\nkind: R\nspec: {taskType: echo, output: {destination: {type: local, path: /mnt/x}}}\n", "")[0]
	w.waitRecord(id, "DONE")
	if status, _ := w.request(http.MethodGet, "/api/v1/results/"+id, "", ""); status != 404 {
		t.Errorf("its result: %d", status)
	}
	if !strings.Contains(s.ran()[0].raw, `"path":"/mnt/x"`) {
		t.Error(s.ran()[0].raw)
	}
	ids := w.post(`
apiVersion: mloc/v1
kind: X
spec:
  taskType: echo
  output: {destination: {type: local, path: /mnt/x}}
  graph:
    nodes:
      - {name: a}
      - {name: b, dependsOn: [a], spec: {weights: "/mnt/x/${a.task_id}/final_model"}}
      - {name: c, dependsOn: [a], spec: {weights: "${a.result.final_model_path}"}}
`, "")
	w.waitRecord(ids[1], "DONE")
	if rec := w.waitRecord(ids[2], "FAILED"); !strings.Contains(fmt.Sprint(rec["error"]), "delivered elsewhere") {
		t.Errorf("%v", rec["error"])
	}
	if ran := s.ran(); !strings.Contains(ran[len(ran)-1].raw, `"weights":"/mnt/x/`+ids[0]+`/final_model"`) {
		t.Error(ran[len(ran)-1].raw)
	}
}

// TestArchivesOfStages holds that a stage loads the archive that an earlier one posted, by its address in the result, also where everything needs a token.
func TestArchivesOfStages(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"", "opensesame"} {
		w := newEnv(t, map[string]string{"token": token})
		s := newFakeWorker(t, w.redis, "w1")
		fetched := make(chan string, 1)
		s.execute = func(m message) (map[string]any, map[string]string, string) {
			if m.Task.Spec["taskType"] == "sft" {
				return map[string]any{"training_successful": true}, map[string]string{"final_model.tar.gz": "weights"}, ""
			}
			url, _ := lookup(m.Task.Spec, "checkpoint", "load", "url").(string)
			resp, err := http.Get(url)
			if err != nil {
				return nil, nil, err.Error()
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			fetched <- string(b)
			return echo(m)
		}
		s.register().listen()
		ids := w.post(`
apiVersion: mloc/v1
kind: X
spec:
  taskType: sft
  model: {source: {identifier: m}}
  stages:
    - {name: one}
    - {name: two, spec: {taskType: echo, checkpoint: {load: {type: http, url: "${one.result.final_model_archive_url}"}}}}
`, token)
		w.waitRecord(ids[1], "DONE")
		if got := <-fetched; got != "weights" {
			t.Errorf("with the token %q the second stage had %q", token, got)
		}
	}
}

// TestBadSubmissions holds that each is 400 with a sentence, and that nothing of it is kept.
func TestBadSubmissions(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	for body, want := range map[string]string{
		"":                      "Request body is required",
		"  \n":                  "YAML payload cannot be empty",
		"a: [":                  "",
		"- a":                   "must be a mapping",
		"apiVersion: mloc/v2":   "apiVersion must be mloc/v1",
		"apiVersion: mloc/v1\n": "spec is missing",
		"apiVersion: mloc/v1\nspec: {taskType: echo, stages: [{name: a}, {name: a}]}":                                         "two stages have the name",
		"apiVersion: mloc/v1\nspec: {taskType: echo, stages: [{name: a, dependsOn: [a]}]}":                                    "depends on itself",
		"apiVersion: mloc/v1\nspec: {taskType: echo, graph: {nodes: [{name: a, dependsOn: [b]}, {name: b, dependsOn: [a]}]}}": "by way of others",
		"apiVersion: mloc/v1\nspec: {taskType: echo, stages: [{name: a}], graph: {nodes: [{name: b}]}}":                       "both stages and graph.nodes",
		"apiVersion: mloc/v1\nspec: {taskType: echo, dependsOn: [nothing]}":                                                   "there is no task",
	} {
		status, got := w.request(http.MethodPost, "/api/v1/tasks", body, "")
		if status != 400 || !strings.Contains(got, want) || !strings.HasPrefix(got, `{"detail":"`) {
			t.Errorf("%q: %d %s", body, status, got)
		}
	}
	if status, got := w.request(http.MethodGet, "/api/v1/tasks", "", ""); status != 200 || got != "[]" {
		t.Errorf("%d %s", status, got)
	}
	if status, _ := w.request(http.MethodPost, "/api/v1/tasks", strings.Repeat("a", 3<<20), ""); status != 413 {
		t.Errorf("a large body: %d", status)
	}
	for path, want := range map[string]string{"/api/v1/tasks/none": "task not found", "/api/v1/results/none": "result not found", "/api/v1/results/a/files/b": "artifact not found", "/workers/none": "worker not found"} {
		if status, got := w.request(http.MethodGet, path, "", ""); status != 404 || got != `{"detail":"`+want+`"}` {
			t.Errorf("%s: %d %s", path, status, got)
		}
	}
}

// postFile posts a file with a name as it is given.
func (w *env) postFile(id, field, name, content, token string) (int, string) {
	w.tb.Helper()
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	part, _ := m.CreatePart(map[string][]string{"Content-Disposition": {`form-data; name="` + field + `"; filename="` + name + `"`}})
	_, _ = io.WriteString(part, content)
	_ = m.Close()
	req, err := http.NewRequestWithContext(w.tb.Context(), http.MethodPost, w.gateway.URL()+"/api/v1/results/"+id+"/files", &b)
	if err != nil {
		w.tb.Fatal(err)
	}
	req.Header.Set("Content-Type", m.FormDataContentType())
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.tb.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	got, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(got)
}

// TestResultsOverHTTP holds what hosts answer to deliveries, of tasks that they do not know, too, and that no name leads out of the folder.
func TestResultsOverHTTP(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	for body, want := range map[string]int{
		`{`: 400, `[]`: 422, `{"result":{}}`: 422, `{"task_id":"","result":{}}`: 422, `{"task_id":"t"}`: 422, `{"task_id":"t","result":5}`: 422, `{"task_id":7,"result":{}}`: 422,
		`{"task_id":"../../etc/passwd","result":{}}`: 400, `{"task_id":"t","result":{"a":1},"extra":true}`: 200, `{"task_id":"t","result":{},"metadata":5}`: 422,
		`{"task_id":"deep","result":{"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}}`: 400,
	} {
		if status, got := w.request(http.MethodPost, "/api/v1/results", body, ""); status != want {
			t.Errorf("%s: %d %s", body, status, got)
		}
	}
	if got := w.wrapper("t", ""); lookup(got, "result", "a") != 1.0 || got["task_id"] != "t" || got["received_at"] == "" {
		t.Errorf("the wrapper is %v", got)
	}
	for name, want := range map[string]int{"a.bin": 200, "../x": 400, "a/b": 400, "..": 400, ".hidden": 400, "manifest.json": 400, `a\\b`: 400} {
		if status, got := w.postFile("t", "file", name, "hello", ""); status != want {
			t.Errorf("%q: %d %s", name, status, got)
		}
	}
	if status, _ := w.postFile("t", "other", "a", "x", ""); status != 422 {
		t.Errorf("another field: %d", status)
	}
	if status, got := w.request(http.MethodGet, "/api/v1/results/t/files/a.bin", "", ""); status != 200 || got != "hello" {
		t.Errorf("%d %s", status, got)
	}
	for _, path := range []string{"/api/v1/results/t/files/..%2f..%2ftasks.db", "/api/v1/results/..%2ftasks.db/files/x", "/api/v1/results/%2e%2e/files/secret"} {
		if status, got := w.request(http.MethodGet, path, "", ""); status != 404 {
			t.Errorf("%s: %d %s", path, status, got)
		}
	}
	w.cutUpload("cut", "b.bin", "half of ")
	if status, _ := w.request(http.MethodGet, "/api/v1/results/cut/files/b.bin", "", ""); status != 404 {
		t.Errorf("of an upload that was cut there is a file: %d", status)
	}
	if status, got := w.postFile("cut", "file", "b.bin", "hello", ""); status != 200 {
		t.Errorf("the next try: %d %s", status, got)
	}
	if status, got := w.request(http.MethodGet, "/api/v1/results/cut/files/b.bin", "", ""); status != 200 || got != "hello" {
		t.Errorf("%d %s", status, got)
	}
	// The result names a file, which comes before it or after it.
	for n, order := range []bool{true, false} {
		id := fmt.Sprintf("export%d", n)
		if order {
			w.postFile(id, "file", "out.jsonl", "{}", "")
		}
		w.request(http.MethodPost, "/api/v1/results", `{"task_id":"`+id+`","result":{"jsonl_export":{"path":"/tmp/w/out.jsonl","record_count":1}}}`, "")
		if !order {
			w.postFile(id, "file", "out.jsonl", "{}", "")
		}
		e := lookup(w.wrapper(id, ""), "result", "jsonl_export")
		if lookup(e, "relative_path") != "artifacts/out.jsonl" || lookup(e, "worker_path") != "/tmp/w/out.jsonl" || lookup(e, "url") != w.gateway.URL()+"/api/v1/results/"+id+"/files/out.jsonl" {
			t.Errorf("the export is %v", e)
		}
	}
}

// cutUpload sends a part of a file, and closes the connection.
func (w *env) cutUpload(id, name, content string) {
	w.tb.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(w.gateway.Port(), "http://"))
	if err != nil {
		w.tb.Fatal(err)
	}
	_, err = fmt.Fprintf(c, "POST /api/v1/results/%s/files HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=B\r\nContent-Length: 100000\r\n\r\n"+
		"--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"%s\"\r\n\r\n%s", id, name, content)
	if err = errors.Join(err, c.(*net.TCPConn).CloseWrite()); err != nil {
		w.tb.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, c) // until the gateway has noticed
	_ = c.Close()
}

// TestTokens holds who may ask with key=required and token=…, and that workers deliver without having either.
func TestTokens(t *testing.T) {
	t.Parallel()
	w := newEnv(t, map[string]string{"token": "opensesame", "key": "required"})
	newFakeWorker(t, w.redis, "w1").register().listen()
	key := func(role, project string) string {
		made, err := w.admin.CreateKey(t.Context(), client.NewKey{Name: role, Role: role, Project: project})
		if err != nil {
			t.Fatal(err)
		}
		return made.Secret
	}
	other, own, viewer := key("submitter", "others"), key("submitter", muster.DefaultProject), key("viewer", "")
	id := w.post(pipeline, "opensesame")[1]
	w.waitRecord(id, "DONE")
	for _, c := range []struct {
		method, path, token string
		want                int
		detail              string
	}{
		{"GET", "/healthz", "", 200, ""},
		{"GET", "/api/v1/results/" + id, "", 401, "Missing bearer token"},
		{"GET", "/api/v1/results/" + id, "wrong", 403, "Invalid token"},
		{"GET", "/api/v1/results/" + id, "mst_wrong", 403, "Invalid token"},
		{"GET", "/api/v1/results/" + id, other, 403, "Invalid token"},
		{"GET", "/api/v1/results/" + id + "/files/responses.json", other, 403, "Invalid token"},
		{"GET", "/api/v1/results/" + id + "/files/responses.json?grant=00", "", 401, "Missing bearer token"},
		{"GET", "/api/v1/results/" + id + "/files/responses.json?grant=" + w.gateway.Grant(id), "", 200, ""},
		{"GET", "/api/v1/results/" + id, own, 200, ""},
		{"GET", "/api/v1/results/" + id, viewer, 200, ""},
		{"POST", "/api/v1/tasks", viewer, 403, "Invalid token"},
		{"GET", "/workers", "", 401, "Missing bearer token"},
		{"GET", "/metrics", "opensesame", 200, ""},
		{"POST", "/api/v1/results", "", 401, "Missing bearer token"},
	} {
		if status, got := w.request(c.method, c.path, "x", c.token); status != c.want || !strings.Contains(got, c.detail) {
			t.Errorf("%s %s as %.12q: %d %s", c.method, c.path, c.token, status, got)
		}
	}
	if status, _ := w.postFile(id, "file", "a", "x", ""); status != 401 {
		t.Errorf("a file without a token: %d", status)
	}
	result := "/api/v1/results/" + id
	reads := func(path string) dialecttest.Call {
		return dialecttest.Call{Verb: auth.ReadJobs, Project: muster.DefaultProject, Path: path}
	}
	writes := func(path, body string, want int) dialecttest.Call {
		return dialecttest.Call{Verb: auth.SubmitJobs, Project: muster.DefaultProject, Path: path, Body: body, Want: want}
	}
	dialecttest.CheckCalls(t, w.gateway.URL(), mlochost.Patterns(), map[string]dialecttest.Call{
		"GET /healthz": {Open: true},

		"GET /api/v1/results/{id}":               reads(result),
		"GET /api/v1/results/{id}/files/{name}":  reads(result + "/files/responses.json"),
		"HEAD /api/v1/results/{id}/files/{name}": reads(result + "/files/responses.json"),
		"POST /api/v1/results":                   writes("", `{"task_id":"`+id+`","result":{}}`, http.StatusOK),
		"POST /api/v1/results/{id}/files":        writes(result+"/files", "", http.StatusUnprocessableEntity), // no file

		"POST /api/v1/tasks":         writes("", `"x"`, http.StatusBadRequest), // no YAML of MLOC
		"GET /api/v1/tasks":          reads(""),
		"GET /api/v1/tasks/{id}":     reads("/api/v1/tasks/" + id),
		"GET /workers":               reads(""),
		"GET /workers/{id}":          reads("/workers/w1"),
		"POST /workers/{id}/elastic": writes("/workers/w1/elastic", "x", http.StatusUnprocessableEntity),
		"GET /metrics":               reads(""),
	}, dialecttest.CallersOf(t, "http://"+w.listen, adminToken, muster.DefaultProject, "another"))
}

// TestMergedTasks holds that tasks which differ only in their data become one for a worker that answers each, and that one that gets no answer runs alone.
func TestMergedTasks(t *testing.T) {
	t.Parallel()
	w := newEnv(t, map[string]string{"merge": "true"})
	s := newFakeWorker(t, w.redis, "w1")
	s.tags = `["merge"]`
	s.execute = func(m message) (map[string]any, map[string]string, string) {
		items := func(spec map[string]any) any { return map[string]any{"items": lookup(spec, "data", "items")} }
		result, children := map[string]any{"ok": true, "items": lookup(m.Task.Spec, "data", "items")}, map[string]any{}
		for i, c := range m.Children {
			if i < 2 { // the last is left out
				children[c.TaskID] = items(c.Spec)
			}
		}
		result["children"] = children
		return result, nil, ""
	}
	s.register().listen()
	w.active("w1")
	testkit.Await(t, "the gateway knows that it merges", func() bool {
		one, _ := w.foreignWorker("w1")
		return strings.Contains(strings.Join(one.Tags, " "), mlochost.TagMerges)
	})
	var nodes strings.Builder
	for i := range 4 {
		fmt.Fprintf(&nodes, "      - {name: n%d, spec: {data: {type: list, items: [item%d]}}}\n", i, i)
	}
	ids := w.post("apiVersion: mloc/v1\nkind: I\nspec:\n  taskType: inference\n  model: {source: {identifier: m}}\n  graph:\n    nodes:\n"+nodes.String(), "")
	for i, id := range ids {
		w.waitRecord(id, "DONE")
		if got := fmt.Sprint(lookup(w.wrapper(id, ""), "result", "items")); got != fmt.Sprintf("[item%d]", i) {
			t.Errorf("%d was answered %s", i, got)
		}
	}
	if ran := s.ran(); len(ran) != 2 || len(ran[0].Children) != 3 || len(ran[1].Children) != 0 {
		t.Errorf("%d messages", len(ran))
	}
}

// TestTasksAreMergedWhileTheWorkerIsBusy holds that tasks of several clients are merged which come while the only worker that merges is busy.
func TestTasksAreMergedWhileTheWorkerIsBusy(t *testing.T) {
	t.Parallel()
	w := newEnv(t, map[string]string{"merge": "true", "merge_max": "3"})
	s := newFakeWorker(t, w.redis, "w1")
	s.tags = `["merge"]`
	gate := make(chan bool)
	s.execute = func(m message) (map[string]any, map[string]string, string) {
		<-gate
		children := map[string]any{}
		for _, c := range m.Children {
			children[c.TaskID] = map[string]any{"items": lookup(c.Spec, "data", "items")}
		}
		return map[string]any{"ok": true, "items": lookup(m.Task.Spec, "data", "items"), "children": children}, nil, ""
	}
	s.register().listen()
	w.active("w1")
	document := func(item string) string {
		return "apiVersion: mloc/v1\nkind: I\nspec: {taskType: inference, model: {source: {identifier: m}}, data: {type: list, items: [" + item + "], name: d}}\n"
	}
	ids := w.post(document("item0"), "")
	testkit.Await(t, "the first one runs", func() bool { return len(s.ran()) == 1 })
	for i := 1; i < 5; i++ {
		ids = append(ids, w.post(document(fmt.Sprintf("item%d", i)), "")...)
	}
	close(gate)
	for i, id := range ids {
		w.waitRecord(id, "DONE")
		if got := fmt.Sprint(lookup(w.wrapper(id, ""), "result", "items")); got != fmt.Sprintf("[item%d]", i) {
			t.Errorf("%d was answered %s", i, got)
		}
	}
	if ran := s.ran(); len(ran) != 3 || len(ran[0].Children) != 0 || len(ran[1].Children)+len(ran[2].Children) != 2 || len(ran[1].Children) == 1 {
		for _, m := range ran {
			t.Errorf("a message has %d children", len(m.Children))
		}
	}
	if _, got := w.request(http.MethodGet, "/workers/w1", "", ""); !strings.Contains(got, `"cached_datasets":["d"],"cached_models":["m"]`) || strings.Contains(got, `"cache_updated_ts":null`) {
		t.Errorf("what the worker has used is not noted: %s", got)
	}
}

// TestALostWorkerCounts holds what a record says of a task whose worker left.
func TestALostWorkerCounts(t *testing.T) {
	t.Parallel()
	w := newEnv(t, map[string]string{"watchdog_grace": "30"}) // only the worker that says so is lost
	first := newFakeWorker(t, w.redis, "w1")
	first.manual = make(chan message)
	first.register().listen()
	w.active("w1")
	id := w.post("apiVersion: mloc/v1\nkind: E\nspec: {taskType: echo}\n", "")[0]
	<-first.manual
	testkit.Await(t, "w1 has it", func() bool { return w.waitRecord(id, "DISPATCHED")["assigned_worker"] == "w1" })
	first.sigint()
	newFakeWorker(t, w.redis, "w2").register().listen()
	if r := w.waitRecord(id, "DONE"); r["attempts"] != 1.0 || r["last_failed_worker"] != "w1" || r["assigned_worker"] != "w2" {
		t.Errorf("%v", r)
	}
}

// TestElasticScaling holds that idle workers are disabled but for the last one, and enabled again with a backlog.
func TestElasticScaling(t *testing.T) {
	t.Parallel()
	w := newEnv(t, map[string]string{"elastic": "auto", "elastic_idle": "1", "elastic_cooldown": "1", "elastic_queue_max": "3"})
	gate := make(chan bool)
	for _, id := range []string{"w1", "w2"} {
		s := newFakeWorker(t, w.redis, id)
		s.execute = func(m message) (map[string]any, map[string]string, string) {
			select {
			case <-gate:
			case <-time.After(testTimeout):
			}
			return echo(m)
		}
		s.register().listen()
	}
	w.active("w1")
	w.active("w2")
	disabled := func() int64 { return w.redis.Client().SCard(t.Context(), "workers:elastic_disabled").Val() }
	testkit.Await(t, "one is disabled", func() bool { return disabled() == 1 })
	var ids []string
	for range 6 {
		ids = append(ids, w.post("apiVersion: mloc/v1\nkind: E\nspec: {taskType: echo}\n", "")...)
	}
	testkit.Await(t, "it is enabled again", func() bool { return disabled() == 0 })
	close(gate)
	for _, id := range ids {
		w.waitRecord(id, "DONE")
	}
}
