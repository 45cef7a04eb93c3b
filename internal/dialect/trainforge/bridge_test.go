package trainforge_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/dialect/dialecttest"
	"github.com/muster-dev/muster/internal/dialect/trainforge"
	"github.com/muster-dev/muster/internal/serverd"
	"github.com/muster-dev/muster/internal/testkit"
	"github.com/muster-dev/muster/internal/workerd"
)

// bridgeEnv is a Muster server with one worker of its own.
type bridgeEnv struct {
	t      *testing.T
	client *client.Client
	dir    string // of the bridge
}

func newBridgeEnv(t *testing.T) *bridgeEnv {
	t.Helper()
	server := dialecttest.Start(t, serverd.Config{Heartbeat: muster.Duration(200 * time.Millisecond)})
	server.StartWorker(t, workerd.Config{Name: "own", ShutdownGrace: time.Second, Slots: 4})
	return &bridgeEnv{t: t, dir: t.TempDir(), client: server.Client}
}

// startBridge starts one; stop ends it as SIGTERM does the drop-in, kill ends it at once.
func (f *bridgeEnv) startBridge(url string, change func(*trainforge.BridgeConfig)) (stop, kill func()) {
	f.t.Helper()
	cfg := trainforge.BridgeConfig{
		Scheduler: url, WorkerID: "muster-1", MaxJobs: 4, PollInterval: 20 * time.Millisecond, Version: "test",
		Core: bridge.Config{Client: f.client, Dir: f.dir, RetryDelay: 10 * time.Millisecond, Log: testkit.Logger(f.t)},
	}
	if change != nil {
		change(&cfg)
	}
	b, err := trainforge.NewBridge(cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	taking, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	kill = dialecttest.Background(f.t, func(ctx context.Context) error {
		defer close(done)
		return b.Run(ctx, taking)
	})
	stop = func() {
		end()
		select {
		case <-done:
		case <-time.After(testTimeout):
			f.t.Error("the bridge does not end")
		}
	}
	f.t.Cleanup(end)
	return stop, kill
}

func (f *bridgeEnv) jobs() []muster.Job {
	f.t.Helper()
	var list []muster.Job
	for j, err := range f.client.Jobs(f.t.Context(), client.JobQuery{}) {
		if err != nil {
			f.t.Fatal(err)
		}
		list = append(list, j)
	}
	return list
}

// digits is a training: it fits a line by gradient descent, tells how it goes and keeps the model.
const digits = `
import json, os
w = 0.0
for epoch in range(3):
    for x in (1.0, 2.0, 3.0):
        w -= 0.05 * 2 * (w * x - 2 * x) * x
    print("::muster progress=%.2f loss=%.6f epoch=%d" % ((epoch + 1) / 3, (w - 2) ** 2, epoch))
    print("epoch", epoch)
os.makedirs("outputs", exist_ok=True)
open("outputs/model.json", "w").write(json.dumps({"w": round(w, 2)}))
print("job", os.environ["TRAINFORGE_JOB_ID"])
`

func TestBridgeToTheCurrentServer(t *testing.T) {
	t.Parallel()
	f, s := newBridgeEnv(t), newScheduler(t, false)
	s.transcript = &transcript{}
	s.add("job-1", map[string]string{"train.py": digits})
	stop, _ := f.startBridge(s.server.URL, nil)
	one := s.jobs[0]
	testkit.Await(t, "the job is completed", func() bool { return len(s.get(one).Finals) > 0 })
	got := s.get(one)
	if got.Status != "completed" || got.Worker != "muster-1" || !slices.Contains(got.Logs, "epoch 2") || !slices.Contains(got.Logs, "job job-1") {
		t.Errorf("%s %q by %s: %q", got.Status, got.Message, got.Worker, got.Logs)
	}
	if !bytes.Contains(got.Results, []byte("outputs/model.json")) || !bytes.Contains(got.Results, []byte(`name="results_zip"`)) {
		t.Error("the model was not uploaded")
	}
	s.transcript.silence(true)
	failing := s.add("job-2", map[string]string{"main.py": "print('no such column: age')\nprint()\nraise SystemExit(7)"})
	bad := s.add("job-3", nil)
	s.mu.Lock()
	bad.Files = []byte("no zip")
	s.mu.Unlock()
	none := s.add("job-4", map[string]string{"readme.txt": "no program"})
	testkit.Await(t, "all have ended", func() bool {
		return len(s.get(failing).Finals) > 0 && len(s.get(bad).Finals) > 0 && len(s.get(none).Finals) > 0
	})
	for job, want := range map[*foreignJob]string{failing: "exit code 7: no such column: age", bad: "zip", none: "no Python program"} {
		if got := s.get(job); got.Status != "failed" || !strings.Contains(got.Message, want) || len(got.Finals) != 1 {
			t.Errorf("%s is %s: %q", got.ID, got.Finals, got.Message)
		}
	}
	s.transcript.silence(false)
	stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.workers) != 0 {
		t.Errorf("it is still registered: %v", s.workers)
	}
}

func TestBridgeToTheOlderServer(t *testing.T) {
	t.Parallel()
	f, s := newBridgeEnv(t), newScheduler(t, true)
	shared := t.TempDir()
	one := s.add("old-1", map[string]string{"train.py": digits})
	s.shareProject(shared, one)
	lost := s.add("old-2", map[string]string{"train.py": "print(1)"})
	taken := s.add("old-3", map[string]string{"train.py": "print(1)"})
	s.mu.Lock()
	taken.Status = "running"
	s.mu.Unlock()
	f.startBridge(s.server.URL, func(c *trainforge.BridgeConfig) { c.Projects = shared })
	testkit.Await(t, "both have ended", func() bool { return len(s.get(one).Finals) > 0 && len(s.get(lost).Finals) > 0 })
	if got := s.get(one); got.Status != "completed" || !slices.Contains(got.Logs, "epoch 2") || len(got.Finals) != 1 {
		t.Errorf("%s %q: %q", got.Finals, got.Message, got.Logs)
	}
	if got := s.get(lost); got.Status != "failed" || !strings.Contains(got.Message, "--projects") {
		t.Errorf("%s %q", got.Status, got.Message)
	}
	if got := s.get(taken); got.Claims != 0 || len(got.Finals) != 0 {
		t.Errorf("a job of another worker was taken: %+v", got)
	}
}

func TestACancellationOnTheServerStopsTheJob(t *testing.T) {
	t.Parallel()
	f, s := newBridgeEnv(t), newScheduler(t, true)
	shared := t.TempDir()
	one := s.add("slow", map[string]string{"train.py": "import time\nprint('begun', flush=True)\ntime.sleep(600)"})
	s.shareProject(shared, one)
	f.startBridge(s.server.URL, func(c *trainforge.BridgeConfig) { c.Projects = shared })
	testkit.Await(t, "it runs", func() bool { return slices.Contains(s.get(one).Logs, "begun") })
	s.mu.Lock()
	one.Status = "cancelled"
	s.mu.Unlock()
	testkit.Await(t, "it was stopped", func() bool { return f.jobs()[0].State == muster.JobCancelled })
	testkit.Await(t, "it was reported", func() bool { return len(s.get(one).Finals) == 1 })
	if got := s.get(one); got.Status != "cancelled" {
		t.Errorf("%s", got.Status)
	}
}

func TestAServerThatTakesNoResults(t *testing.T) {
	t.Parallel()
	f, s := newBridgeEnv(t), newScheduler(t, false)
	s.mu.Lock()
	s.noZip = true
	s.mu.Unlock()
	one := s.add("job-1", map[string]string{"train.py": digits})
	f.startBridge(s.server.URL, nil)
	testkit.Await(t, "the job is completed all the same", func() bool { return len(s.get(one).Finals) > 0 })
	if got := s.get(one); got.Status != "completed" || !slices.ContainsFunc(got.Logs, func(l string) bool { return strings.Contains(l, "artifacts of Muster's job") }) {
		t.Errorf("%s: %q", got.Status, got.Logs)
	}
}

// TestAnIdleBridgeUnregisters holds that a bridge which is stopped at once, as muster bridge is, unregisters if nothing is left for the next one.
func TestAnIdleBridgeUnregisters(t *testing.T) {
	t.Parallel()
	f, s := newBridgeEnv(t), newScheduler(t, false)
	registered := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.workers) > 0
	}
	_, kill := f.startBridge(s.server.URL, nil)
	testkit.Await(t, "it is registered", registered)
	kill()
	if registered() {
		t.Error("it is still registered")
	}
	one := s.add("slow", map[string]string{"train.py": "import time\ntime.sleep(600)"})
	_, kill = f.startBridge(s.server.URL, nil)
	testkit.Await(t, "it runs", func() bool { jobs := f.jobs(); return len(jobs) > 0 && jobs[0].State == muster.JobRunning })
	kill()
	if !registered() || len(s.get(one).Finals) > 0 {
		t.Error("the worker of a job that runs is not registered any more")
	}
}

// TestAServerThatForgetsAJob holds that a job which the server does not know any more ends, and does not keep others from being done.
func TestAServerThatForgetsAJob(t *testing.T) {
	t.Parallel()
	f, s := newBridgeEnv(t), newScheduler(t, false)
	one := s.add("job-1", map[string]string{"train.py": "print(1)"})
	s.mu.Lock()
	s.lost = true
	s.mu.Unlock()
	f.startBridge(s.server.URL, func(c *trainforge.BridgeConfig) { c.MaxJobs = 1 })
	testkit.Await(t, "its report is refused", func() bool { return slices.Contains(s.get(one).Refused, "completed") })
	s.mu.Lock()
	s.lost = false
	s.mu.Unlock()
	two := s.add("job-2", map[string]string{"train.py": "print(2)"})
	testkit.Await(t, "the other one is done", func() bool { return len(s.get(two).Finals) > 0 })
	if got := s.get(one); len(got.Finals) > 0 {
		t.Errorf("%v", got.Finals)
	}
}

func TestSIGTERMCancelsWhatRuns(t *testing.T) {
	t.Parallel()
	f, s := newBridgeEnv(t), newScheduler(t, false)
	one := s.add("slow", map[string]string{"train.py": "import time\nprint('begun', flush=True)\ntime.sleep(600)"})
	stop, _ := f.startBridge(s.server.URL, func(c *trainforge.BridgeConfig) { c.CancelJobs = true })
	testkit.Await(t, "it runs", func() bool { return slices.Contains(s.get(one).Logs, "begun") })
	stop()
	if got := s.get(one); !slices.Equal(got.Finals, []string{"cancelled"}) || got.Message != "Worker shutdown during execution" {
		t.Errorf("%v: %s", got.Finals, got.Message)
	}
}

func TestADistributedJobOfTheServer(t *testing.T) {
	t.Parallel()
	f, s := newBridgeEnv(t), newScheduler(t, false)
	one := s.add("dist", map[string]string{
		"train.py":                      "import os\nprint('rank', os.environ['NODE_RANK'], 'of', os.environ['WORLD_SIZE'], os.environ['MASTER_PORT'])",
		"torch/__init__.py":             "",
		"torch/distributed/__init__.py": "",
		"torch/distributed/run.py":      "import runpy, sys\nprint('launched', sys.argv[1:])\nrunpy.run_path(sys.argv[-1], run_name='__main__')",
	})
	s.mu.Lock()
	one.Dist = dict{"rank": 1, "world_size": 2, "master_addr": "10.0.0.1", "master_port": 29500}
	s.mu.Unlock()
	bad := s.add("mad", map[string]string{"train.py": "print(1)"})
	s.mu.Lock()
	bad.Dist = dict{"rank": 5, "world_size": 2, "master_addr": "--evil", "master_port": 29500}
	s.mu.Unlock()
	f.startBridge(s.server.URL, nil)
	testkit.Await(t, "both have ended", func() bool { return len(s.get(one).Finals) > 0 && len(s.get(bad).Finals) > 0 })
	got := s.get(one)
	if got.Status != "completed" || !slices.Contains(got.Logs, "rank 1 of 2 29500") || !slices.ContainsFunc(got.Logs, func(l string) bool {
		return strings.HasPrefix(l, "launched") && strings.Contains(l, "--node_rank=1") && strings.Contains(l, "--master_addr=10.0.0.1")
	}) {
		t.Errorf("%s %q: %q", got.Status, got.Message, got.Logs)
	}
	if s.get(bad).Status != "failed" {
		t.Errorf("%s", s.get(bad).Status)
	}
}

// TestExactlyOneReport cuts uploads, swallows answers, takes the server away and kills the bridge while it offers the same jobs forever.
func TestExactlyOneReport(t *testing.T) {
	t.Parallel()
	f, s := newBridgeEnv(t), newScheduler(t, false)
	var jobs []*foreignJob
	for i := range 4 {
		jobs = append(jobs, s.add(fmt.Sprintf("job-%d", i), map[string]string{"train.py": digits}))
	}
	s.mu.Lock()
	s.forever, s.cutZip, s.rateHits = true, 2, 1
	s.mu.Unlock()
	_, kill := f.startBridge(s.server.URL, nil)
	testkit.Await(t, "one is claimed", func() bool { return s.get(jobs[3]).Claims > 0 })
	kill()
	s.mu.Lock()
	s.down = true
	s.mu.Unlock()
	_, kill = f.startBridge(s.server.URL, nil)
	time.Sleep(50 * time.Millisecond) // whatever it does in it
	s.mu.Lock()
	s.down = false
	s.mu.Unlock()
	kill()
	f.startBridge(s.server.URL, nil)
	testkit.Await(t, "all are completed", func() bool {
		for _, j := range jobs {
			if len(s.get(j).Finals) == 0 {
				return false
			}
		}
		return true
	})
	time.Sleep(200 * time.Millisecond) // it is offered them all the time
	for _, j := range jobs {
		if got := s.get(j); !slices.Equal(got.Finals, []string{"completed"}) || !bytes.Contains(got.Results, []byte("outputs/model.json")) {
			t.Errorf("%s: %v %q after %d claims", got.ID, got.Finals, got.Message, got.Claims)
		}
	}
	if n := len(f.jobs()); n != len(jobs) {
		t.Errorf("there are %d jobs of Muster", n)
	}
}

// TestBridgeToGateway runs real work through a gateway of one Muster server and the bridge of another, over a restart of both.
func TestBridgeToGateway(t *testing.T) {
	t.Parallel()
	w, f := newEnv(t, nil), newBridgeEnv(t)
	_, kill := f.startBridge(w.gateway.URL(), nil)
	w.checkWhole(w.waitTask(w.submit(w.wholeTask()).ID))
	train := w.submit(muster.TaskSpec{Files: w.files(map[string]string{"fit.py": strings.ReplaceAll(digits, `os.environ["TRAINFORGE_JOB_ID"]`, `"x"`)}), Run: &muster.Command{Shell: "sleep 1 && python3 fit.py"}, Outputs: []string{"outputs/*.json"}})
	testkit.Await(w.t, "it runs", func() bool { return w.task(train.ID, 0).State == muster.Running })
	kill()
	w.stop()
	w.start()
	f.startBridge(w.gateway.URL(), nil)
	task := w.waitTask(train.ID)
	if task.State != muster.Succeeded || task.Attempt != 1 || !strings.Contains(w.artifact(task, "outputs/model.json"), `"w": 2`) || !strings.Contains(w.log(task.ID), "epoch 2\n") {
		t.Errorf("%s %s after %d attempts: %v\n%s", task.State, task.Message, task.Attempt, task.Artifacts, w.log(task.ID))
	}
	slow := w.submit(muster.TaskSpec{Run: &muster.Command{Shell: "sleep 600"}})
	testkit.Await(w.t, "the bridge runs it", func() bool {
		return slices.ContainsFunc(f.jobs(), func(j muster.Job) bool { return j.State == muster.JobRunning })
	})
	if _, err := w.client.Cancel(t.Context(), slow.ID, nil); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the cancellation comes to the farm", func() bool {
		return slices.ContainsFunc(f.jobs(), func(j muster.Job) bool { return j.State == muster.JobCancelled })
	})
}

// TestAStoppedBridgeIsGivenNothing holds that a job which a bridge of one machine cancels when it is stopped is not offered to it again.
func TestAStoppedBridgeIsGivenNothing(t *testing.T) {
	t.Parallel()
	w, f := newEnv(t, nil), newBridgeEnv(t)
	stop, _ := f.startBridge(w.gateway.URL(), func(c *trainforge.BridgeConfig) { c.CancelJobs = true })
	job := w.submit(muster.TaskSpec{Run: &muster.Command{Shell: "sleep 600"}, Retries: muster.Retries{Backoff: muster.Duration(time.Millisecond)}})
	testkit.Await(t, "it runs on the farm", func() bool { jobs := f.jobs(); return len(jobs) > 0 && jobs[0].State == muster.JobRunning })
	stop()
	testkit.Await(w.t, "the task is back in the queue", func() bool { return w.task(job.ID, 0).State == muster.Queued })
	list, err := w.client.Attempts(t.Context(), muster.TaskID{Job: job.ID})
	if err != nil || len(list) != 1 || list[0].Reason != muster.WorkerShutdown {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestServersThatCannotBeServed holds that the bridge ends, with a sentence that says why, where trying again is of no use.
func TestServersThatCannotBeServed(t *testing.T) {
	t.Parallel()
	f := newBridgeEnv(t)
	for want, answer := range map[string]func(path string) (int, string){
		"--scheduler-token-file": func(path string) (int, string) {
			if path == "/health" {
				return 200, `{"status":"healthy"}`
			}
			return 401, `{"error":"Unauthorized","message":"No token provided"}`
		},
		"no TrainForge server": func(path string) (int, string) {
			if path == "/health" {
				return 200, `{}`
			}
			return 404, `<html>`
		},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			status, body := answer(r.URL.Path)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(server.Close)
		b, err := trainforge.NewBridge(trainforge.BridgeConfig{
			Scheduler: server.URL, PollInterval: 20 * time.Millisecond, Core: bridge.Config{Client: f.client, Dir: t.TempDir(), RetryDelay: 10 * time.Millisecond, Log: testkit.Logger(t)},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		if err := b.Run(ctx, ctx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it ends with %v", err)
		}
	}
}
