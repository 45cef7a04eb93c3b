package qubix_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/kind"
	"github.com/muster-dev/muster/internal/testkit"
)

const machine = "7504b4378b5d0f8f"

// The guide's first worker: a job of a QUBIX client, from creation to its result.
func TestSimpleWorkerSession(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	p := w.newClient()
	p.transcript = &transcript{}
	simple := newSimple(p, machine)
	simple.register()
	if job := simple.heartbeat(); job != nil {
		t.Fatalf("an idle server offers %v", job)
	}
	w.waitReady("Provider-7504b437", kind.Foreign) // the price of the job is this worker's
	status, made := p.call(http.MethodPost, "/api/jobs/create", map[string]any{
		"modelType": "inference", "computeNeeded": 0.5, "inputData": map[string]any{"model": "resnet50", "input": "image.jpg"}, "escrowTxHash": "tx-1",
	})
	if status != http.StatusOK {
		t.Fatalf("create: %d %v", status, made)
	}
	job := simple.runJob()
	if field(job, "modelType") != "inference" || job["computeNeeded"] != 0.5 {
		t.Fatalf("the worker is offered %v", job)
	}
	id := field(job, "id")
	for _, percent := range []int{10, 50, 100} {
		simple.progress(id, percent, "")
	}
	result, metrics := simpleResult(job)
	status, answer := simple.complete(id, "completed", result, nil, metrics)
	if status != http.StatusOK || field(answer, "job", "status") != "COMPLETED" || answer["payment"] != nil {
		t.Errorf("completion: %d %v", status, answer)
	}
	simple.heartbeat()
	_, shown := p.call(http.MethodGet, "/api/jobs/"+field(made, "job", "id"), nil)
	if field(shown, "status") != "COMPLETED" || field(shown, "result", "status") != "success" {
		t.Errorf("the job is %v", shown)
	}
	p.transcript.golden(t, "simple.golden")
	own := w.foreignWorker("Provider-7504b437")
	if own.Price != 5 || own.Labels["location"] != "Local Network" || !slices.Contains(own.Tags, "location:local-network") || !slices.Contains(own.Tags, "qubix:simple") {
		t.Errorf("the worker is %+v", own)
	}
	if len(own.Resources.GPUs) != 0 {
		t.Errorf("the invented GPU is offered: %+v", own.Resources.GPUs)
	}
	if !slices.Contains(own.UnsupportedFeatures, "cancel") || !slices.Contains(own.UnsupportedFeatures, "files") {
		t.Errorf("it lacks %v", own.UnsupportedFeatures)
	}
}

// The second worker: a script of Muster's, with progress, output and a result; then one that fails.
func TestEnhancedWorkerSession(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	p := w.newClient()
	p.transcript = &transcript{}
	enhanced := newEnhanced(p, machine)
	enhanced.model, enhanced.vram = "NVIDIA GeForce RTX 3070", 8
	enhanced.gpu = map[string]any{"gpuPercent": 5.0, "gpuTemp": 41.0}
	enhanced.register()
	enhanced.heartbeat()
	first := w.submit(script("print('hello')"))
	job := enhanced.runJob()
	if field(job, "jobType") != "custom_script" || field(job, "inputData", "script") != "print('hello')" {
		t.Fatalf("the worker is offered %v", job)
	}
	id := field(job, "id")
	enhanced.progress(id, 50, "Running script")
	task := w.waitState(first, muster.Running)
	testkit.Await(t, "the progress is seen", func() bool { task = w.task(first); return task.Progress != nil && *task.Progress == 0.5 })
	if task.Step != "Running script" || task.Metrics["gpuUtilization"] != 88 {
		t.Errorf("progress is %q %v", task.Step, task.Metrics)
	}
	enhanced.complete(id, "completed", map[string]any{
		"status": "success", "exitCode": 0, "stdout": []string{"hello"}, "stderr": []string{}, "metrics": map[string]any{"processingTimeSeconds": 0.01},
	}, nil, map[string]any{"processingTimeSeconds": 0.01})
	task = w.waitState(first, muster.Succeeded)
	if !strings.Contains(string(task.Result), `"hello"`) || !strings.Contains(w.fullLog(first), "hello\n") || task.Usage == nil || task.Usage.Cost <= 0 {
		t.Errorf("result %s, log %q, usage %+v", task.Result, w.fullLog(first), task.Usage)
	}
	enhanced.heartbeat() // thrown away
	second := w.submit(script("raise ValueError('no')"))
	job = enhanced.runJob()
	enhanced.complete(field(job, "id"), "failed", map[string]any{"error": "Script failed with exit code 3: no", "errorDetails": "Traceback (most recent call last):\n  File \"w.py\", line 1\nValueError: no"},
		"Script failed with exit code 3: no", nil)
	task = w.waitState(second, muster.Failed)
	if task.Reason != muster.ExitCode || task.ExitCode == nil || *task.ExitCode != 3 || !strings.Contains(w.fullLog(second), "ValueError: no") {
		t.Errorf("the failure is %s, %q, %v, log %q", task.Reason, task.Message, task.ExitCode, w.fullLog(second))
	}
	p.transcript.golden(t, "enhanced.golden")
	own := w.foreignWorker("Provider-7504b437")
	if len(own.Resources.GPUs) != 1 || own.Resources.GPUs[0].Memory != 8<<30 {
		t.Errorf("GPUs are %+v", own.Resources.GPUs)
	}
	testkit.Await(t, "the load of the GPU is shown", func() bool {
		load := w.foreignWorker("Provider-7504b437").Load
		return load != nil && len(load.GPUs) == 1 && load.GPUs[0].Temperature != nil
	})
}

// Workers drop the jobs of the heartbeat after a job, so a job is offered again until its first report.
func TestOfferedUntilTheFirstReport(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	enhanced := newEnhanced(w.newClient(), machine)
	enhanced.register()
	enhanced.heartbeat()
	w.submit(script("print(1)"))
	id := field(enhanced.runJob(), "id")
	for range 2 {
		enhanced.drop = true
		enhanced.heartbeat()
		if again := field(enhanced.poll(), "id"); again != id {
			t.Fatalf("offered %q, and then %q", id, again)
		}
	}
	enhanced.progress(id, 1, "")
	if job := enhanced.poll(); job != nil {
		t.Errorf("a job that began is offered again: %v", job)
	}
}

// The answer to a final report may be lost: the worker then reports a failure. The first report counts; where there was none it is
// known only that the result is lost, which is not the job's fault.
func TestFirstFinalReportCounts(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	enhanced := newEnhanced(w.newClient(), machine)
	enhanced.register()
	enhanced.heartbeat()
	first := w.submit(script("print(1)"))
	id := field(enhanced.runJob(), "id")
	enhanced.complete(id, "completed", map[string]any{"status": "success", "exitCode": 0}, nil, nil)
	for range 2 {
		if status, answer := enhanced.retry(id); status != http.StatusOK || field(answer, "job", "status") != "COMPLETED" {
			t.Errorf("the report after the first one is answered %d %v", status, answer)
		}
	}
	if status := enhanced.progress(id, 50, ""); status != http.StatusOK {
		t.Errorf("progress after the end is answered %d", status)
	}
	if task := w.waitState(first, muster.Succeeded); task.Attempt != 1 || string(task.Result) == "" {
		t.Errorf("the task is %+v", task)
	}
	second := w.submit(script("print(2)"))
	lost := field(enhanced.runJob(), "id")
	enhanced.retry(lost)
	again := field(enhanced.runJob(), "id")
	if again == lost {
		t.Fatal("the attempt whose result was lost is offered again under its id")
	}
	enhanced.complete(again, "completed", map[string]any{"status": "success", "exitCode": 0}, nil, nil)
	if task := w.waitState(second, muster.Succeeded); task.Attempt != 2 || task.Retries != 0 {
		t.Errorf("the task whose result was lost is %+v", task)
	}
}

func TestSimulatedResultsDoNotCount(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	enhanced := newEnhanced(w.newClient(), machine)
	enhanced.register()
	enhanced.heartbeat()
	made := w.submit(mnist(`{"epochs": 2}`))
	job := enhanced.runJob()
	if input, _ := job["inputData"].(map[string]any); field(job, "jobType") != "mnist_training" || input["epochs"] != 2.0 {
		t.Fatalf("the worker is offered %v", job)
	}
	enhanced.complete(field(job, "id"), "completed", map[string]any{"status": "success", "finalAccuracy": 0.97, "simulated": true}, nil, nil)
	if task := w.waitState(made, muster.Failed); task.Reason != muster.Dependency || !strings.Contains(task.Message, "simulated") {
		t.Errorf("the task is %s %q", task.Reason, task.Message)
	}
	honest := w.submit(mnist(`{"epochs": 2}`))
	enhanced.complete(field(enhanced.runJob(), "id"), "completed", map[string]any{"status": "success", "finalAccuracy": 0.97, "finalLoss": 0.1, "modelUrl": "ipfs://Qm0123456789abcdef0123456789abcdef"}, nil, nil)
	if task := w.waitState(honest, muster.Succeeded); strings.Contains(string(task.Result), "modelUrl") || !strings.Contains(string(task.Result), "0.97") || !strings.Contains(w.fullLog(honest), "invented") {
		t.Errorf("the result is %s, the log %q", task.Result, w.fullLog(honest))
	}
}

// What the worker would not heed is done by another one.
func TestUnsupportedFieldsGoElsewhere(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	enhanced := newEnhanced(w.newClient(), machine)
	enhanced.register()
	enhanced.heartbeat()
	id := w.submit(mnist(`{"dataset": "digits"}`))
	testkit.Await(t, "the task is rejected", func() bool {
		if job := enhanced.poll(); job != nil {
			t.Fatalf("the worker is offered %v", job)
		}
		attempts, err := w.client.Attempts(t.Context(), muster.TaskID{Job: id})
		return err == nil && len(attempts) > 0 && strings.Contains(attempts[0].Message, "does not support dataset")
	})
	with := script("print(1)")
	with.Env = map[string]string{"A": "b"}
	other := w.submit(with)
	x, err := w.client.Explain(t.Context(), muster.TaskID{Job: other})
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := json.Marshal(x); !strings.Contains(string(text), "env") {
		t.Errorf("explain says %s", text)
	}
}

// The GPU that workers claim to have without nvidia-smi is offered once it was measured, and not before.
func TestInventedGPUIsNotOffered(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	enhanced := newEnhanced(w.newClient(), machine)
	enhanced.register()
	enhanced.heartbeat()
	name := "Provider-7504b437"
	testkit.Await(t, "it accepts tasks", func() bool { return w.foreignWorker(name).Constrained == "" })
	if gpus := w.foreignWorker(name).Resources.GPUs; len(gpus) != 0 {
		t.Fatalf("it offers %+v", gpus)
	}
	enhanced.gpu = map[string]any{"gpuPercent": 3.0, "gpuTemp": 40.0}
	enhanced.heartbeat()
	testkit.Await(t, "the measured GPU is offered", func() bool { return len(w.foreignWorker(name).Resources.GPUs) == 1 })
}

// A program that registers has just begun: what it ran is lost, and done again.
func TestWorkerThatIsStartedAgain(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	enhanced := newEnhanced(w.newClient(), machine)
	enhanced.register()
	enhanced.heartbeat()
	id := w.submit(script("print(1)"))
	first := field(enhanced.runJob(), "id")
	enhanced.progress(first, 10, "")
	enhanced.register()
	second := field(enhanced.runJob(), "id")
	if first == second {
		t.Fatal("the attempt continues under its id")
	}
	enhanced.complete(second, "completed", map[string]any{"status": "success", "exitCode": 0}, nil, nil)
	if status, _ := enhanced.complete(first, "completed", map[string]any{"status": "success", "exitCode": 1}, nil, nil); status != http.StatusOK {
		t.Errorf("the late report of the first attempt is answered %d", status)
	}
	if task := w.waitState(id, muster.Succeeded); task.Attempt != 2 || !strings.Contains(string(task.Result), `"exitCode":0`) {
		t.Errorf("the task is %+v", task)
	}
}

// Neither try to report came through: the worker asks for work, and the job is done again.
func TestJobWithLostReport(t *testing.T) {
	t.Parallel()
	w := newEnv(t, func(c *dialect.Config) { c.Options["lost"] = "1s" })
	enhanced := newEnhanced(w.newClient(), machine)
	enhanced.register()
	enhanced.heartbeat()
	id := w.submit(script("print(1)"))
	first := field(enhanced.runJob(), "id")
	enhanced.progress(first, 10, "")
	if second := field(enhanced.runJob(), "id"); second == first {
		t.Error("the attempt continues under its id")
	}
	testkit.Await(t, "the task is assigned again", func() bool { return w.task(id).Attempt == 2 })
}

// Two workers on one machine have the same id. Each gets the jobs that it can run; a job that both run has one result.
func TestTwoWorkersWithOneID(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	simple, enhanced, twin := newSimple(w.newClient(), machine), newEnhanced(w.newClient(), machine), newEnhanced(w.newClient(), machine)
	simple.register()
	enhanced.register()
	twin.register()
	simple.heartbeat()
	enhanced.heartbeat()
	id := w.submit(script("print(1)"))
	job := enhanced.runJob()
	if other := simple.heartbeat(); other != nil {
		t.Fatalf("the simple worker is offered a script: %v", other)
	}
	if again := twin.poll(); field(again, "id") != field(job, "id") {
		t.Fatalf("the twin is offered %v", again)
	}
	enhanced.progress(field(job, "id"), 50, "")
	twin.progress(field(job, "id"), 10, "")
	twin.complete(field(job, "id"), "completed", map[string]any{"status": "success", "exitCode": 0, "by": "twin"}, nil, nil)
	status, answer := enhanced.complete(field(job, "id"), "failed", nil, "late", nil)
	if status != http.StatusOK || field(answer, "job", "status") != "COMPLETED" {
		t.Errorf("the second report is answered %d %v", status, answer)
	}
	if task := w.waitState(id, muster.Succeeded); !strings.Contains(string(task.Result), "twin") {
		t.Errorf("the result is %s", task.Result)
	}
}

// A worker cannot be stopped: a cancelled task is done at once, its late report has no effect, and then the worker is idle.
func TestCancelledTask(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	enhanced := newEnhanced(w.newClient(), machine)
	enhanced.register()
	enhanced.heartbeat()
	id := w.submit(script("print(1)"))
	first := field(enhanced.runJob(), "id")
	enhanced.progress(first, 10, "")
	w.waitState(id, muster.Running)
	if _, err := w.client.Cancel(t.Context(), id, nil); err != nil {
		t.Fatal(err)
	}
	w.waitState(id, muster.Cancelled)
	testkit.Await(t, "the worker is constrained", func() bool {
		return strings.Contains(w.foreignWorker("Provider-7504b437").Constrained, "may still run")
	})
	if status := enhanced.progress(first, 90, ""); status != http.StatusOK {
		t.Errorf("its progress is answered %d", status)
	}
	status, answer := enhanced.complete(first, "completed", map[string]any{"status": "success"}, nil, nil)
	if status != http.StatusOK || field(answer, "job", "status") != "CANCELLED" {
		t.Errorf("its end is answered %d %v", status, answer)
	}
	w.waitState(id, muster.Cancelled)
	testkit.Await(t, "the worker is free", func() bool { return w.foreignWorker("Provider-7504b437").Constrained == "" })
}

// The server stops and starts: the worker notices at most that requests failed.
func TestRestartOfTheServer(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	enhanced := newEnhanced(w.newClient(), machine)
	enhanced.register()
	enhanced.heartbeat()
	begun := w.submit(script("print(1)"))
	id := field(enhanced.runJob(), "id")
	enhanced.progress(id, 10, "")
	w.waitState(begun, muster.Running)
	w.stop()
	if status := enhanced.progress(id, 20, ""); status != 0 {
		t.Errorf("a server that is stopped answers %d", status)
	}
	w.start()
	enhanced.progress(id, 30, "")
	enhanced.complete(id, "completed", map[string]any{"status": "success", "exitCode": 0}, nil, nil)
	if task := w.waitState(begun, muster.Succeeded); task.Attempt != 1 {
		t.Errorf("the task took %d attempts", task.Attempt)
	}
	offered := w.submit(script("print(2)"))
	id = field(enhanced.runJob(), "id")
	w.stop()
	w.start()
	if again := field(enhanced.runJob(), "id"); again != id {
		t.Errorf("the job %s is offered as %s after the restart", id, again)
	}
	enhanced.complete(id, "completed", map[string]any{"status": "success", "exitCode": 0}, nil, nil)
	w.waitState(offered, muster.Succeeded)
	if status, answer := enhanced.retry(id); status != http.StatusOK {
		t.Errorf("a report of a job of before is answered %d %v", status, answer)
	}
}
