package mlocbridge

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect/mloc"
	"github.com/muster-dev/muster/internal/dialect/mloc/mloctest"
	"github.com/muster-dev/muster/internal/testkit"
)

// TestDeliveries holds what becomes of a task whose result the host does not take, with the host's own words.
func TestDeliveries(t *testing.T) {
	r := mloctest.StartRedis(t)
	h, f := startHost(t, r), startFleet(t, "m1")
	cfg := f.config(t, r, t.TempDir())
	cfg.DeliveryTimeout, cfg.Bandwidth = 200*time.Millisecond, 1e6
	startBridge(t, cfg)
	set := func(status int) { h.mu.Lock(); h.refuse = status; h.mu.Unlock() }
	for _, status := range []int{503, 403} {
		set(status)
		one := h.dispatch("w1", newTask(), h.document("echo", nil))
		want := "HTTP delivery for task " + one.id + " returned status " + strconv.Itoa(status) + ": not today"
		if got := h.waitEnded(one); got != "FAILED" || h.snapshot(one).err != want {
			t.Errorf("it is %s: %s, and should be: %s", got, h.snapshot(one).err, want)
		}
	}
	set(0)
	testkit.Await(t, "the questions about the task before have ended", func() bool { return h.rdb.HGet(t.Context(), "worker:w1", "status").Val() == "IDLE" })
	h.mu.Lock()
	h.token, h.headers = "secret-of-the-host", nil
	h.mu.Unlock()
	doc := h.document("echo", nil)
	destination := mloc.Lookup(doc["spec"].(map[string]any), "output", "destination")
	destination["headers"] = map[string]any{"Authorization": "Bearer secret-of-the-host", "X-Mine": "é"}
	if one := h.dispatch("w1", newTask(), doc); h.waitEnded(one) != "DONE" {
		t.Errorf("with its headers it is %s", h.snapshot(one).err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, head := range h.headers {
		if head.Get("Authorization") == "" {
			t.Errorf("a request has no authorization: %v", head)
		}
		if head.Get("Content-Type") != "" && head.Get("X-Mine") != "é" {
			t.Errorf("the result has not the headers of its task: %v", head)
		}
	}
	if len(h.headers) < 2 {
		t.Errorf("there were %d requests: no result, or no question about the task", len(h.headers))
	}
}

// TestALocalDestination holds where results are without a host's store: RESULTS_DIR, or the path of the task.
func TestALocalDestination(t *testing.T) {
	r := mloctest.StartRedis(t)
	h, f, dir := startHost(t, r), startFleet(t, "m1"), t.TempDir()
	cfg := f.config(t, r, dir)
	cfg.AllowAnyPath, cfg.Shared = false, []string{filepath.Join(dir, "mount")}
	if err := os.Mkdir(filepath.Join(dir, "mount"), 0o755); err != nil {
		t.Fatal(err)
	}
	startBridge(t, cfg)
	for path, want := range map[string]string{"": "results/ID", "sub": "results/sub/ID", filepath.Join(dir, "mount", "x"): "mount/x/ID", "sub/ID": "results/sub/ID"} {
		id := newTask()
		doc := h.document("echo", nil)
		doc["spec"].(map[string]any)["output"] = map[string]any{"destination": map[string]any{"type": "local", "path": strings.ReplaceAll(path, "ID", id)}, "artifacts": []any{"./logs/", "missing.bin"}}
		if one := h.dispatch("w1", id, doc); h.waitEnded(one) != "DONE" {
			t.Errorf("%s: %s", path, h.snapshot(one).err)
			continue
		}
		m := read(t, dir, strings.ReplaceAll(want, "ID", id), "manifest.json")
		if !strings.Contains(m, `"name":"missing.bin","path":"missing.bin","type":"artifact","required":true,"status":"missing"`) {
			t.Errorf("the manifest is %s", m)
		}
	}
	doc := h.document("echo", nil)
	doc["spec"].(map[string]any)["output"] = map[string]any{"destination": map[string]any{"type": "local", "path": "/somewhere/else"}}
	if one := h.dispatch("w1", newTask(), doc); h.waitEnded(one) != "FAILED" || !strings.Contains(h.snapshot(one).err, "--shared") {
		t.Errorf("a path elsewhere: %+v", h.snapshot(one))
	}
}

// TestMergedTasks holds that each merged task has a result of its own, posted before the parent's TASK_SUCCEEDED.
func TestMergedTasks(t *testing.T) {
	r := mloctest.StartRedis(t)
	h, f, dir := startHost(t, r), startFleet(t, "m1"), t.TempDir()
	startBridge(t, f.config(t, r, dir))
	child := func(id string, n int) map[string]any {
		return map[string]any{"task_id": id, "spec": h.document("echo", map[string]any{"n": n})["spec"], "metadata": map[string]any{"name": id}}
	}
	parent := h.dispatch("w1", "task-parent", h.document("echo", map[string]any{"n": 0}), child("task-c1", 1), child("task-c2", 2))
	if got := h.waitEnded(parent); got != "DONE" {
		t.Fatalf("it is %s: %s", got, h.snapshot(parent).err)
	}
	for i, id := range []string{"task-parent", "task-c1", "task-c2"} {
		echo, _ := h.result(id)["echo"].(map[string]any)
		if echo["n"] != float64(i) {
			t.Errorf("the result of %s is %v", id, h.result(id))
		}
		if !strings.Contains(read(t, dir, "results", id, "manifest.json"), `"task_id":"`+id+`"`) {
			t.Errorf("%s has no manifest of its own", id)
		}
	}
	if c := mloc.Lookup(h.result("task-parent"), "children"); c["task-c1"] == nil || c["task-c2"] == nil {
		t.Errorf("the children are %v", c)
	}
	all := strings.Join(h.transcript(), "\n")
	if strings.LastIndex(all, "POST /api/v1/results") > strings.Index(all, "TASK_SUCCEEDED") {
		t.Errorf("results came after the final event:\n%s", all)
	}
}

// TestInferenceResults holds the shape of an inference's result with merged tasks and an export, from what Muster's kind
// returns.
func TestInferenceResults(t *testing.T) {
	b := &Bridge{cfg: Config{Results: t.TempDir(), AllowAnyPath: true}}
	spec := map[string]any{}
	if err := mloc.Decode([]byte(`{"taskType":"inference","model":{"source":{"identifier":"gpt2"}},"data":{"items":["a","b"],"metadata":[{"k":1},{"k":2}]},"inference":{"system_prompt":"Be kind."},
		"postprocess":{"jsonl_export":{"path":"out.jsonl","fields":{"q":"prompt","a":"output","k":"metadata.k","r":"metadata.rendered_prompt"},"required_fields":["a"]}}}`), 1<<20, &spec); err != nil {
		t.Fatal(err)
	}
	o := &memberOutcome{member: member{ID: "x", Doc: mloc.Document{Spec: spec}}, dir: t.TempDir()}
	o.task.Result = json.RawMessage(`{"model":"gpt2","complete":true,"tokens_in":7,"tokens_out":5,"predictions":[{"index":0,"prediction":"A"},{"index":1,"prediction":""}]}`)
	got, err := b.makeResult(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if text := mloc.EncodeString(got["items"]); text != `[{"finish_reason":null,"index":0,"output":"A"},{"finish_reason":null,"index":1,"output":""}]` {
		t.Errorf("the items are %s", text)
	}
	if u := mloc.Lookup(got, "usage"); mloc.EncodeString(u["total_tokens"]) != "12" {
		t.Errorf("the usage is %v", u)
	}
	if text := read(t, o.dir, "out.jsonl"); text != `{"a":"A","k":1,"q":"a","r":"Be kind.\na"}`+"\n" {
		t.Errorf("the export is %s", text)
	}
	if e := mloc.Lookup(got, "jsonl_export"); mloc.EncodeString(e["record_count"]) != "1" || e["path"] != "out.jsonl" {
		t.Errorf("it says %v", e)
	}
	all := mergeUsage(got, map[string]mloc.Object{"c": got})
	if mloc.EncodeString(mloc.Lookup(all, "usage")["total_tokens"]) != "24" || mloc.Lookup(all, "children", "c")["items"] == nil {
		t.Errorf("the sum is %v", all)
	}
}

// archiveOf packs a folder as Muster's kinds do.
func archiveOf(t *testing.T, name string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	list := tar.NewWriter(z)
	if err := list.WriteHeader(&tar.Header{Name: name + "/config.json", Size: 2, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	_, _ = list.Write([]byte("{}"))
	_, _ = list.Close(), z.Close()
	return b.Bytes()
}

// TestTrainings holds what a training delivers: its folder, its archive with that folder at its root, their address in
// the result, and that the next stage loads it by checkpoint.load. The training itself is a script that leaves what
// Muster's kinds leave.
func TestTrainings(t *testing.T) {
	r := mloctest.StartRedis(t)
	h, f, dir := startHost(t, r), startFleet(t, "m1"), t.TempDir()
	cfg := f.config(t, r, dir)
	cfg.BaseURL = h.http.URL
	b, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.tmpDir = t.TempDir()
	w := &bridgeWorker{Bridge: b, id: "w1"}
	from := t.TempDir()
	if err := os.WriteFile(filepath.Join(from, "final_lora.tar.gz"), archiveOf(t, "final_lora"), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := f.client.UploadFolder(t.Context(), from, nil)
	if err != nil {
		t.Fatal(err)
	}
	j, err := f.client.Submit(t.Context(), &muster.Spec{Tasks: []muster.TaskSpec{{
		Files: files, Run: &muster.Command{Shell: `cp final_lora.tar.gz $MUSTER_OUT/ && echo learning && echo '{"model":"gpt2","dataset_size":3,"seconds":1.5}' > $MUSTER_OUT/result.json`},
	}}}, client.SubmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the script has ended", func() bool { j, err = f.client.Job(t.Context(), j.ID); return err == nil && j.State.Final() })
	task, err := f.client.Task(t.Context(), muster.TaskID{Job: j.ID, Num: 0})
	if err != nil || task.State != muster.Succeeded {
		t.Fatalf("it is %s: %s %v", task.State, task.Message, err)
	}
	spec := map[string]any{"taskType": "lora_sft", "output": map[string]any{"destination": map[string]any{"type": "http", "url": h.store()}}}
	m := mloc.TaskMessage{TaskID: "train-1", Task: mloc.Document{Spec: spec}}
	if err := w.deliver(t.Context(), m, []muster.Task{task}, &delivery{}); err != nil {
		t.Fatal(err)
	}
	got := h.result("train-1")
	want := map[string]any{
		"final_lora_archive_url": h.store() + "/train-1/files/final_lora.tar.gz", "final_lora_archive": "final_lora.tar.gz", "final_lora_archive_uploaded": true, "training_successful": true,
		"final_lora_path": filepath.Join(dir, "results", "train-1", "final_lora"), "dataset_size": 3.0, "training_time_seconds": 1.5, "task_id": "train-1", "model_name": "gpt2",
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s is %v, and should be %v", k, got[k], v)
		}
	}
	if !slices.Contains(h.transcript(), "POST files final_lora.tar.gz application/zip") {
		t.Errorf("what came is %v", h.transcript())
	}
	if h.files["train-1"]["final_lora.tar.gz"] != string(archiveOf(t, "final_lora")) {
		t.Error("the archive at the host is another one")
	}
	if text := read(t, dir, "results", "train-1", "final_lora", "config.json"); text != "{}" {
		t.Errorf("the folder has %q", text)
	}
	if text := read(t, dir, "results", "train-1", "logs", "task.log"); !strings.Contains(text, "learning") {
		t.Errorf("the log is %q", text)
	}
	// The next stage: from this machine's folder of results, from the host by its id, and by its url.
	for _, load := range []map[string]any{
		{"type": "local", "taskId": "train-1"},
		{"type": "local", "path": want["final_lora_path"]},
		{"type": "http", "url": got["final_lora_archive_url"]},
		nil, // from here on the folder is gone
		{"type": "http", "taskId": "train-1"},
		{"taskId": "train-1", "base_url": h.http.URL, "filename": "final_lora.tar.gz"},
	} {
		if load == nil {
			if err := os.RemoveAll(filepath.Join(dir, "results", "train-1")); err != nil {
				t.Fatal(err)
			}
			continue
		}
		next := member{ID: "train-2", Doc: mloc.Document{Spec: map[string]any{
			"taskType": "lora_sft", "model": map[string]any{"source": map[string]any{"identifier": "gpt2"}}, "data": map[string]any{"prompts": []any{"x"}}, "checkpoint": map[string]any{"load": load},
		}}}
		s, err := b.stage(t.Context(), next)
		if err != nil {
			t.Errorf("%v: %v", load, err)
			continue
		}
		if s.Files == "" || !strings.Contains(string(s.Input), `"checkpoint":{"load":{"path":"weights-final_lora`) {
			t.Errorf("%v: the input is %s", load, s.Input)
		}
	}
}

// TestRetrieval holds that a rag task asks Qdrant with the vectors of Muster's kind, and the shape of its result.
func TestRetrieval(t *testing.T) {
	var asked []string
	q := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+" "+r.Header.Get("Api-Key"))
		_, _ = w.Write([]byte(`{"result":[{"id":7,"version":1,"score":0.5,"payload":{"text":"x"}}],"status":"ok"}`))
	}))
	defer q.Close()
	r, err := parseRetrieval(map[string]any{"taskType": "rag", "qdrant": map[string]any{"url": q.URL, "api_key": "k", "collection": "c"}, "embedding": map[string]any{"model": "m"}, "query": "what?"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.search(t.Context(), newHTTPClient(0), json.RawMessage(`{"embeddings":[{"index":0,"embedding":[0.25,1]}]}`), 1)
	if err != nil {
		t.Fatal(err)
	}
	if text := mloc.EncodeString(got["queries"]); text != `[{"index":0,"items":[{"id":7,"payload":{"text":"x"},"score":0.5}],"query":"what?"}]` || len(asked) != 1 || asked[0] != "/collections/c/points/search k" {
		t.Errorf("it is %s, asked %v", text, asked)
	}
}
