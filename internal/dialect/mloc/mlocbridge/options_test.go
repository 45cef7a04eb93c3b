package mlocbridge

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/mloc"
	"github.com/muster-dev/muster/internal/dialect/mloc/mloctest"
	"github.com/muster-dev/muster/internal/testkit"
)

// TestBandwidth holds that a cap delays results, and files not.
func TestBandwidth(t *testing.T) {
	t.Parallel()
	var bodies atomic.Int64
	methods := make(chan string, 2)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		bodies.Add(n)
		methods <- r.Method
	}))
	defer s.Close()
	w, d := newHTTPClient(1000), destination{Type: "http", URL: s.URL, Method: http.MethodPut, Timeout: testTimeout}
	began := time.Now()
	if err := w.post(t.Context(), d, "x", "w1", mloc.Object{"text": strings.Repeat("a", 500)}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("%d bytes at 1000 a second took %v", bodies.Load(), took)
	}
	if got := <-methods; got != http.MethodPut {
		t.Errorf("the result was sent by %s", got)
	}
	file := filepath.Join(t.TempDir(), "final_model.tar.gz")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	link, err := w.upload(t.Context(), d, "x", file, "application/zip")
	if err != nil || link != s.URL+"/x/files/final_model.tar.gz" {
		t.Fatalf("%s %v", link, err)
	}
	if took := time.Since(began); took > 1000*time.Second/10 { // a thousand seconds at the cap
		t.Errorf("a file took %v", took)
	}
}

// TestAnUploadThatIsCut holds that an archive whose connection was cut is sent again, and that its result has its address.
func TestAnUploadThatIsCut(t *testing.T) {
	t.Parallel()
	var tries atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/files") && tries.Add(1) < 3 {
			_, _ = io.CopyN(io.Discard, r.Body, 100)
			panic(http.ErrAbortHandler)
		}
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer s.Close()
	s.Config.ErrorLog = nil
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "final_model.tar.gz"), make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	b := &Bridge{cfg: Config{Results: dir, Cleanup: true, DeliveryTimeout: testTimeout}, http: newHTTPClient(0), log: testkit.Logger(t)}
	w := &bridgeWorker{Bridge: b, id: "w1"}
	spec := mloc.Object{"taskType": "sft", "output": mloc.Object{"destination": mloc.Object{"type": "http", "url": s.URL}}}
	d, err := parseDestination(spec)
	if err != nil {
		t.Fatal(err)
	}
	m := mloc.TaskMessage{TaskID: "x", Task: mloc.Document{Spec: spec}}
	r := &delivery{outcomes: []*memberOutcome{{member: member{ID: "x", Doc: m.Task}, dir: dir, dest: d, task: muster.Task{Result: json.RawMessage(`{"model":"m"}`)}}}}
	for n := 1; ; n++ { // the core tries again
		if err = w.deliver(t.Context(), m, nil, r); err == nil {
			break
		}
		if muster.CodeOf(err) != muster.Unavailable || n > 5 {
			t.Fatalf("after %d tries: %v", n, err)
		}
	}
	if tries.Load() != 3 || r.outcomes[0].result["final_model_archive_url"] != s.URL+"/x/files/final_model.tar.gz" {
		t.Errorf("%d uploads, and the result is %v", tries.Load(), r.outcomes[0].result)
	}
	if _, err := os.Stat(filepath.Join(dir, "final_model.tar.gz")); !os.IsNotExist(err) {
		t.Error("the archive is still here, though MODEL_CLEANUP_AFTER_UPLOAD is set and the host has it")
	}
}

// TestEach holds that each worker of a fleet is one of MLOC by itself, with its own resources and price, and its own tasks; and that the fleet as one
// worker has the sum.
func TestEach(t *testing.T) {
	t.Parallel()
	r := mloctest.StartRedis(t)
	h, f, dir := startHost(t, r), startFleet(t, "m1", "m2"), t.TempDir()
	for _, name := range []string{"m1", "m2"} {
		cfg := f.config(t, r, filepath.Join(dir, name))
		cfg.Core.Worker, cfg.WorkerID, cfg.Cost = name, "w-"+name, 0.5
		startBridge(t, cfg)
	}
	whole := f.config(t, r, filepath.Join(dir, "whole"))
	whole.WorkerID = "w-whole"
	startBridge(t, whole)
	for _, name := range []string{"m1", "m2", "m1"} {
		if one := h.dispatch("w-"+name, newTask(), h.document("echo", nil)); h.waitEnded(one) != "DONE" {
			t.Fatalf("it is %s", h.snapshot(one).err)
		}
	}
	workers, err := f.client.Workers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range workers {
		hash, err := mloc.ParseHash(h.rdb.HGetAll(t.Context(), "worker:w-"+w.Name).Val())
		if err != nil || hash.Hardware.CPU.LogicalCores != int(w.Resources.CPUs) || hash.Hardware.Memory.TotalBytes != int64(w.Resources.Memory) || hash.CostPerHour != 0.5 {
			t.Errorf("%s is registered as %+v, %v", w.Name, hash, err)
		}
	}
	testkit.Await(t, "the fleet is registered", func() bool { return h.rdb.HGet(t.Context(), "worker:w-whole", "status").Val() == "IDLE" })
	sum, err := mloc.ParseHash(h.rdb.HGetAll(t.Context(), "worker:w-whole").Val())
	if err != nil || sum.Hardware.CPU.LogicalCores != int(workers[0].Resources.CPUs+workers[1].Resources.CPUs) || sum.Hardware.Memory.TotalBytes != int64(workers[0].Resources.Memory+workers[1].Resources.Memory) {
		t.Errorf("the fleet is registered as %+v, %v", sum, err)
	}
	on := map[string]int{}
	for n := range 3 {
		task, err := f.client.Task(t.Context(), muster.TaskID{Job: muster.JobID(n + 1)})
		if err != nil {
			t.Fatal(err)
		}
		on[string(task.Worker)]++
	}
	if len(on) != 2 {
		t.Errorf("the tasks ran on %v", on)
	}
}

// TestTopicAndHeartbeats holds that tasks are taken from the channel of TASK_TOPIC alone, what a heartbeat says, and how long it counts.
func TestTopicAndHeartbeats(t *testing.T) {
	t.Parallel()
	r := mloctest.StartRedis(t)
	h, f := startHost(t, r), startFleet(t, "m1")
	sub := h.rdb.Subscribe(t.Context(), "workers.events")
	defer sub.Close()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	cfg := f.config(t, r, t.TempDir())
	cfg.Topic, cfg.Bandwidth = "jobs", 1e6
	startBridge(t, cfg)
	var metrics map[string]any
	for m := range sub.Channel() {
		var e struct {
			Type    string         `json:"type"`
			Metrics map[string]any `json:"metrics"`
		}
		if json.Unmarshal([]byte(m.Payload), &e) == nil && e.Type == "HEARTBEAT" {
			metrics = e.Metrics
			break
		}
	}
	for path, keys := range map[string][]string{
		"": {"uptime_sec", "accrued_cost_usd"}, "loadavg": {"1m", "5m", "15m"}, "power": {"timestamp", "cpu_watts", "gpu_watts"},
		"power_summary": {"uptime_sec", "avg_cpu_watts", "avg_gpu_watts", "per_gpu_avg_watts", "estimated_energy_kwh", "estimated_energy_breakdown", "samples"},
	} {
		in := metrics
		if path != "" {
			in, _ = metrics[path].(map[string]any)
		}
		for _, k := range keys {
			if _, there := in[k]; !there {
				t.Errorf("a heartbeat has no %s.%s: %v", path, k, metrics)
			}
		}
	}
	testkit.Await(t, "the worker is IDLE", func() bool { return h.rdb.HGet(t.Context(), "worker:w1", "status").Val() == "IDLE" })
	if ttl := h.rdb.TTL(t.Context(), "worker:w1:hb").Val(); ttl < time.Minute || ttl > 2*time.Minute {
		t.Errorf("a heartbeat counts for %v", ttl)
	}
	if hw := h.rdb.HGet(t.Context(), "worker:w1", "hardware_json").Val(); !strings.Contains(hw, `"bandwidth_bytes_per_sec":1000000`) {
		t.Errorf("the cap is not logged: %s", hw)
	}
	message := func(id string) map[string]any {
		task := &hostTask{id: id, status: "DISPATCHED", worker: "w1"}
		h.mu.Lock()
		h.tasks[id] = task
		h.mu.Unlock()
		return map[string]any{"task_id": id, "assigned_worker": "w1", "task": h.document("echo", nil)}
	}
	if n := h.publish("tasks", message("task-elsewhere")); n != 0 {
		t.Errorf("%d listen to tasks", n)
	}
	h.publish("jobs", message("task-here"))
	testkit.Await(t, "the task of its channel is done", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.tasks["task-here"].status == "DONE" })
	if got := f.jobs(t); !slices.Equal(got, []string{"succeeded"}) {
		t.Errorf("the jobs are %v", got)
	}
}

// TestUsualModels holds which model a task has that names none.
func TestUsualModels(t *testing.T) {
	t.Parallel()
	b := &Bridge{cfg: Config{HFModel: "hf", VLLMModel: "vllm"}}
	for spec, want := range map[string]string{
		`{}`: "hf", `{"enforce_cpu":true,"resources":{"hardware":{"gpu":{"count":1}}}}`: "hf", `{"resources":{"hardware":{"gpu":{"count":1}}}}`: "vllm",
		`{"model":{"source":{"identifier":"own"}}}`: "own",
	} {
		s := mloc.Object{}
		if err := mloc.Decode([]byte(spec), 1<<10, &s); err != nil {
			t.Fatal(err)
		}
		b.setDefaultModel(s)
		if got := mloc.Text(mloc.Lookup(s, "model", "source")["identifier"]); got != want {
			t.Errorf("%s: the model is %q, and should be %q", spec, got, want)
		}
	}
}

// TestAHostThatHangsUp holds that a task is reported once whose host closes each connection without an answer.
func TestAHostThatHangsUp(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(c).ReadBytes('\n')
			_ = c.Close()
		}
	}()
	r := mloctest.StartRedis(t)
	h, f := startHost(t, r), startFleet(t, "m1")
	cfg := f.config(t, r, t.TempDir())
	cfg.DeliveryTimeout = 300 * time.Millisecond
	startBridge(t, cfg)
	doc := h.document("echo", nil)
	mloc.Lookup(doc["spec"].(map[string]any), "output", "destination")["url"] = "http://" + l.Addr().String() + "/results"
	one := h.dispatch("w1", newTask(), doc)
	if got := h.waitEnded(one); got != "FAILED" || !strings.HasPrefix(h.snapshot(one).err, "HTTP delivery for task "+one.id+" failed") {
		t.Errorf("it is %s: %s", got, h.snapshot(one).err)
	}
	if other := h.dispatch("w1", newTask(), h.document("echo", nil)); h.waitEnded(other) != "DONE" || h.snapshot(one).finals != 1 {
		t.Errorf("%d final reports; the next task is %s", h.snapshot(one).finals, h.snapshot(other).err)
	}
}

// TestConfigurations holds that what cannot be meant is refused before anything is sent.
func TestConfigurations(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]Config{
		"WORKER_COST_PER_HOUR": {Cost: -1}, "WORKER_NETWORK_BANDWIDTH_BYTES_PER_SEC": {Bandwidth: -1}, "WORKER_ID": {WorkerID: "a/b"}, "HEARTBEAT_INTERVAL_SEC": {Heartbeat: -1},
		"ORCHESTRATOR_BASE_URL": {BaseURL: "host:8000"}, "Redis": {Redis: "http://x"},
	} {
		if _, err := New(cfg); muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
