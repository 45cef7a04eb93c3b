package trainforge_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/dialecttest"
	"github.com/muster-dev/muster/internal/dialect/trainforge"
	"github.com/muster-dev/muster/internal/serverd"
	"github.com/muster-dev/muster/internal/testkit"
)

// testTimeout is how long a test waits for what is to happen.
const testTimeout = 60 * time.Second

var rewrite = flag.Bool("update", false, "write the golden files")

// env is a Muster server with a TrainForge gateway.
type env struct {
	t        *testing.T
	dir      string
	shared   string
	port     string
	cfg      dialect.Config
	timeouts trainforge.Timeouts
	gateway  *trainforge.Gateway
	client   *client.Client
	url      string // of the Muster server
	stop     func()
}

func newEnv(t *testing.T, change func(*env)) *env {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3")
	}
	w := &env{t: t, dir: t.TempDir(), shared: t.TempDir(), port: "127.0.0.1:0"}
	w.cfg = dialect.Config{Name: trainforge.Name, Options: map[string]string{"projects": w.shared, "cpus": "4"}}
	if change != nil {
		change(w)
	}
	w.start()
	return w
}

func (w *env) start() {
	w.t.Helper()
	system := trainforge.System()
	system.New = func(ctx context.Context, deps dialect.Deps) (dialect.Gateway, error) {
		g, err := trainforge.OpenWith(ctx, deps, w.timeouts)
		w.gateway = g
		return g, err
	}
	cfg := w.cfg
	cfg.Address = w.port
	server := dialecttest.Start(w.t, serverd.Config{Data: w.dir, Heartbeat: muster.Duration(200 * time.Millisecond), Dialects: []dialect.Config{cfg}, Systems: []dialect.System{system}})
	w.port = strings.TrimPrefix(w.gateway.URL(), "http://")
	w.url, w.client, w.stop = server.URL(), server.Client, server.Stop
}

func (w *env) newClient() fakeClient { return fakeClient{t: w.t, base: w.gateway.URL()} }

// runInBackground runs a peer until the test ends or stop is called.
func (w *env) runInBackground(run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { run(ctx) })
	stop = func() { cancel(); wait.Wait() }
	w.t.Cleanup(stop)
	return stop
}

func (w *env) submit(t muster.TaskSpec) muster.Job {
	w.t.Helper()
	job, err := w.client.Submit(w.t.Context(), &muster.Spec{Tasks: []muster.TaskSpec{t}}, client.SubmitOptions{})
	if err != nil {
		w.t.Fatalf("submit: %v", err)
	}
	return job
}

func (w *env) task(job muster.JobID, n int) muster.Task {
	w.t.Helper()
	t, err := w.client.Task(w.t.Context(), muster.TaskID{Job: job, Num: n})
	if err != nil {
		w.t.Fatal(err)
	}
	return t
}

// waitTask waits for the end of a job's first task.
func (w *env) waitTask(job muster.JobID) muster.Task {
	w.t.Helper()
	var t muster.Task
	testkit.Await(w.t, fmt.Sprintf("task %d.0 ends", job), func() bool { t = w.task(job, 0); return t.State.Final() })
	return t
}

func (w *env) log(id muster.TaskID) string {
	w.t.Helper()
	var b strings.Builder
	for l, err := range w.client.Logs(w.t.Context(), id, client.LogOptions{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		b.Write(l.Data)
	}
	return b.String()
}

func (w *env) artifact(t muster.Task, name string) string {
	w.t.Helper()
	for _, a := range t.Artifacts {
		if a.Name == name {
			var b bytes.Buffer
			if err := w.client.ReadArtifact(w.t.Context(), t.ID, a, &b); err != nil {
				w.t.Fatal(err)
			}
			return b.String()
		}
	}
	w.t.Fatalf("there is no artifact %s: %v", name, t.Artifacts)
	return ""
}

// waitPolled waits until a worker has asked for jobs and there was none: that comes before its first job, as in the golden transcripts.
func (w *env) waitPolled(tr *transcript) {
	w.t.Helper()
	testkit.Await(w.t, "the worker has polled", func() bool { return strings.Contains(tr.text(), "[]") })
}

// waitQuiet waits until a worker's last word is said, and ends the transcript.
func (w *env) waitQuiet(worker string, tr *transcript) {
	w.t.Helper()
	testkit.Await(w.t, "worker "+worker+" is idle", func() bool {
		list := w.gateway.Fleet.Worker(worker)
		return list != nil && len(list.Tasks()) == 0
	})
	before := ""
	testkit.Await(w.t, "nothing more is said", func() bool {
		now := tr.text()
		same := now == before
		before = now
		time.Sleep(5 * pollInterval)
		return same
	})
	tr.silence(true)
}

// files uploads a folder.
func (w *env) files(content map[string]string) string {
	w.t.Helper()
	dir := w.t.TempDir()
	for name, text := range content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			w.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			w.t.Fatal(err)
		}
	}
	hash, err := w.client.UploadFolder(w.t.Context(), dir, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return hash
}

// golden compares a transcript with a file.
func golden(t *testing.T, name string, answer *transcript) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	got := answer.text()
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the session differs from %s, which -update writes:\n%s", path, got)
	}
}

// findProgram is a task that uses all that a task may.
const findProgram = `
import json, os
print("hello from", os.environ["WHO"])
print("::muster progress=0.5 step=half loss=0.25")
with open(os.environ["MUSTER_EVENTS"], "a") as f:
    f.write('{"progress": 0.75, "accuracy": 0.9}\n')
data = open("data/numbers.txt").read().split()
with open(os.path.join(os.environ["MUSTER_OUT"], "result.json"), "w") as f:
    json.dump({"sum": sum(map(int, data)), "rank": os.environ["MUSTER_RANK"]}, f)
os.makedirs("plots")
open("model.bin", "w").write("weights")
open("plots/a.txt", "w").write("plot")
open(os.path.join(os.environ["MUSTER_OUT"], "extra.txt"), "w").write("extra")
`

func (w *env) wholeTask() muster.TaskSpec {
	return muster.TaskSpec{
		Name: "sum", Files: w.files(map[string]string{"data/numbers.txt": "1 2 3", "main.py": findProgram, "train.py": "raise SystemExit('not this one')"}),
		Run: &muster.Command{Argv: []string{"python3", "main.py"}}, Env: map[string]string{"WHO": "muster"}, Outputs: []string{"model.bin", "plots/*.txt"},
	}
}

func (w *env) checkWhole(task muster.Task) {
	w.t.Helper()
	if task.State != muster.Succeeded {
		w.t.Fatalf("the task is %s: %s %s\n%s", task.State, task.Reason, task.Message, w.log(task.ID))
	}
	var result struct {
		Sum  int    `json:"sum"`
		Rank string `json:"rank"`
	}
	if err := json.Unmarshal(task.Result, &result); err != nil || result.Sum != 6 || result.Rank != "0" {
		w.t.Errorf("the result is %s", task.Result)
	}
	if w.artifact(task, "model.bin") != "weights" || w.artifact(task, "plots/a.txt") != "plot" || w.artifact(task, "extra.txt") != "extra" {
		w.t.Errorf("the artifacts are wrong: %v", task.Artifacts)
	}
	if log := w.log(task.ID); strings.Count(log, "hello from muster\n") != 1 || strings.Contains(log, "::muster ") || strings.Contains(log, "::trainforge") {
		w.t.Errorf("the log is %q", log)
	}
	if task.Metrics["loss"] != 0.25 || task.Metrics["accuracy"] != 0.9 || task.ExitCode == nil || *task.ExitCode != 0 {
		w.t.Errorf("metrics %v, exit code %v", task.Metrics, task.ExitCode)
	}
}

func TestNodeSession(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	answer := &transcript{}
	a := &workerA{fakeClient: w.newClient(), id: "w-test", hostname: "vm", gpus: mockGPUs(), projects: w.shared}
	a.transcript = answer
	stop := w.runInBackground(a.run)
	w.waitPolled(answer)
	failing := w.submit(muster.TaskSpec{Run: &muster.Command{Shell: "echo to stderr >&2; exit 3"}})
	task := w.waitTask(failing.ID)
	if task.State != muster.Failed || task.Reason != muster.ExitCode || task.ExitCode == nil || *task.ExitCode != 3 || w.log(task.ID) != "to stderr\n" {
		t.Errorf("%s %s %v %q", task.State, task.Reason, task.ExitCode, w.log(task.ID))
	}
	w.waitQuiet("w-test", answer)
	w.checkWhole(w.waitTask(w.submit(w.wholeTask()).ID))
	worker, err := w.client.Worker(t.Context(), "w-test")
	if err != nil || len(worker.Resources.GPUs) != 0 || worker.Labels["gpus"] != "invented" || worker.Resources.MaxTasks != 4 {
		t.Errorf("the worker is %+v, %v", worker, err)
	}
	testkit.Await(w.t, "its projects are removed", func() bool {
		list, err := os.ReadDir(w.shared)
		return err == nil && len(list) == 0
	})
	answer.silence(false)
	stop()
	testkit.Await(w.t, "it is gone", func() bool {
		worker, err := w.client.Worker(t.Context(), "w-test")
		return err == nil && worker.State == muster.WorkerGone
	})
	golden(t, "node", answer)
}

func TestPollerSession(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	answer := &transcript{}
	b := &workerB{fakeClient: w.newClient(), projects: w.shared}
	b.transcript = answer
	w.runInBackground(b.run)
	w.waitPolled(answer)
	task := w.waitTask(w.submit(muster.TaskSpec{Run: &muster.Command{Shell: "exit 3"}, Outputs: []string{"never"}}).ID)
	if task.State != muster.Failed || task.Reason != muster.ExitCode || task.ExitCode == nil || *task.ExitCode != 3 {
		t.Errorf("%s %s %v", task.State, task.Reason, task.ExitCode)
	}
	task = w.waitTask(w.submit(muster.TaskSpec{Run: &muster.Command{Shell: "true"}, Outputs: []string{"never"}}).ID)
	if task.State != muster.Failed || task.Reason != muster.ArtifactMissing {
		t.Errorf("%s %s %s", task.State, task.Reason, task.Message)
	}
	w.waitQuiet("poller-127.0.0.1", answer)
	w.checkWhole(w.waitTask(w.submit(w.wholeTask()).ID))
	golden(t, "poller", answer)
}

func TestExternalSession(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	answer := &transcript{}
	c := &workerC{fakeClient: w.newClient(), id: "colab-1795193358", kaggle: true, gpu: true}
	c.transcript = answer
	w.runInBackground(c.run)
	w.waitPolled(answer)
	script := w.waitTask(w.submit(muster.TaskSpec{Script: &muster.Script{Text: "#!/bin/sh\necho args $1 $MUSTER_INDEX", Args: []string{"one"}}}).ID)
	if script.State != muster.Succeeded || w.log(script.ID) != "args one 0\n" {
		t.Errorf("%s %q", script.State, w.log(script.ID))
	}
	w.waitQuiet(c.id, answer)
	spec := w.wholeTask()
	spec.Resources.GPUs.Count = 1
	w.checkWhole(w.waitTask(w.submit(spec).ID))
	golden(t, "external", answer)
}

// projectZip is an archive of texts.
func projectZip(files map[string]string) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range files {
		f, _ := z.Create(name)
		_, _ = f.Write([]byte(text))
	}
	_ = z.Close()
	return b.Bytes()
}

func TestClients(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	key, err := w.client.CreateKey(t.Context(), client.NewKey{Name: "alice", Role: "submitter", Project: "default"})
	if err != nil {
		t.Fatal(err)
	}
	answer := &transcript{}
	p := w.newClient()
	p.transcript, p.token = answer, key.Secret
	var made struct {
		JobID     string       `json:"job_id"`
		MusterJob muster.JobID `json:"muster_job"`
	}
	conf := `{"project":{"name":"digits","description":"d"},"training":{"script":"fit.py"},"resources":{"cpu":1,"memory":"64Mi"},"environment":{"python_version":3.9}}`
	zipped := projectZip(map[string]string{"fit.py": "import os\nos.makedirs('outputs')\nopen('outputs/m.txt','w').write('m')\nprint('trained')", "data/x.csv": "1"})
	if status := p.form("/api/jobs", map[string]string{"config": conf}, "project_zip", zipped, &made); status != http.StatusCreated {
		t.Fatalf("status %d", status)
	}
	answer.name(made.JobID, "JOB")
	var back []byte
	if p.do("GET", "/api/jobs/"+made.JobID+"/files", nil, &back) != http.StatusOK || !bytes.Equal(back, zipped) {
		t.Error("the project does not come back as it was")
	}
	p.do("GET", "/api/jobs/"+made.JobID, nil, nil)
	quiet := w.newClient()
	c := &workerC{fakeClient: quiet, id: "colab-1"}
	w.runInBackground(c.run)
	task := w.waitTask(made.MusterJob)
	if task.State != muster.Succeeded {
		t.Fatalf("%s %s: %s", task.State, task.Message, w.log(task.ID))
	}
	testkit.Await(w.t, "its job is over", func() bool {
		job, err := w.client.Job(t.Context(), made.MusterJob)
		return err == nil && job.State == muster.JobSucceeded
	})
	answer.name(string(task.Worker), "WORKER")
	p.do("GET", "/api/jobs/"+made.JobID, nil, nil)
	p.do("GET", "/api/jobs?limit=50", nil, nil)
	p.do("GET", "/api/jobs/"+made.JobID+"/logs", nil, nil)
	p.do("GET", "/api/jobs/"+made.JobID+"/results/files", nil, nil)
	var file []byte
	if p.do("GET", "/api/jobs/"+made.JobID+"/results/file/outputs/m.txt", nil, &file); string(file) != "m" {
		t.Errorf("the file is %q", file)
	}
	p.do("GET", "/api/jobs/"+made.JobID+"/results", nil, &file)
	if err := unzipBytes(file, filepath.Join(t.TempDir(), "results")); err != nil {
		t.Errorf("results: %v", err)
	}
	p.do("DELETE", "/api/jobs/"+made.JobID, nil, nil)
	p.do("GET", "/api/jobs/"+made.JobID, nil, nil)
	p.do("GET", "/api/nothing", nil, nil)
	p.do("GET", "/health", nil, nil)
	golden(t, "client", answer)
}
