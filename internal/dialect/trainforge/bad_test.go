package trainforge_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect/dialecttest"
	"github.com/muster-dev/muster/internal/dialect/trainforge"
	"github.com/muster-dev/muster/internal/testkit"
)

func TestBadRequestsAreAnsweredInTheFormat(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	p := w.newClient()
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/api/workers/register", `{}`, 400},
		{"POST", "/api/workers/register", `{"worker_id":5}`, 400},
		{"POST", "/api/workers/register", `{"worker_info":{"worker_id":"a","cpu_count":-1}}`, 400},
		{"POST", "/api/workers/register", `{"worker_info":{"worker_id":"a","memory_total_gb":1e30}}`, 400},
		{"POST", "/api/workers/register", `{"worker_info":{"worker_id":"a","gpus":[{"gpu_id":0},{"gpu_id":0}]}}`, 400},
		{"POST", "/api/workers/register", `{"worker_id":"a","capabilities":{"gpu_count":100000}}`, 400},
		{"POST", "/api/workers/register", `[`, 400},
		{"POST", "/api/workers/nobody/heartbeat", `{"timestamp":1}`, 404},
		{"POST", "/api/workers/heartbeat", `{"worker_id":"nobody"}`, 404},
		{"GET", "/api/workers/jobs?worker_id=nobody", ``, 404},
		{"GET", "/api/workers/jobs", ``, 404},
		{"POST", "/api/jobs/x/claim", `{}`, 400},
		{"POST", "/api/jobs/x/logs/batch", `{"logs":[]}`, 400},
		{"POST", "/api/jobs/x/logs/batch", `{"logs":[{"message":"m"}]}`, 404},
		{"POST", "/api/jobs/x/logs", `{"message":" "}`, 400},
		{"PUT", "/api/jobs/x/status", `{}`, 400},
		{"PUT", "/api/jobs/x/status", `{"status":"completed"}`, 404},
		{"PUT", "/api/jobs/x", `{"status":"dancing"}`, 400},
		{"PUT", "/api/jobs/x", `{"status":"completed"}`, 404},
		{"POST", "/api/jobs/x/results", `{}`, 404},
		{"POST", "/api/jobs", `{}`, 400},
		{"GET", "/api/jobs?limit=x", ``, 400},
		{"GET", "/nothing", ``, 404},
		{"PATCH", "/api/jobs", `{}`, 404},
	} {
		var answer struct {
			Error string `json:"error"`
		}
		if status := p.do(c.method, c.path, c.body, &answer); status != c.status || answer.Error == "" {
			t.Errorf("%s %s %s: %d %q", c.method, c.path, c.body, status, answer.Error)
		}
	}
	// A body of 100 MB is not read to its end.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.base+"/api/workers/register", io.LimitReader(zeros{}, 100<<20))
	if err != nil {
		t.Fatal(err)
	}
	if res, err := http.DefaultClient.Do(req); err == nil {
		if res.Body.Close(); res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("100 MB are answered with %d", res.StatusCode)
		}
	}
	good := `{"project":{"name":"x"}}`
	for name, form := range map[string]struct {
		config string
		zip    []byte
		status int
	}{
		"no config":       {"", projectZip(map[string]string{"train.py": ""}), 400},
		"bad config":      {"[", projectZip(map[string]string{"train.py": ""}), 400},
		"no name":         {"{}", projectZip(map[string]string{"train.py": ""}), 400},
		"no zip":          {good, []byte("hello"), 400},
		"no program":      {good, projectZip(map[string]string{"other.txt": ""}), 400},
		"no such program": {`{"project":{"name":"x"},"training":{"script":"fit.py"}}`, projectZip(map[string]string{"train.py": ""}), 400},
		"a path out":      {good, projectZip(map[string]string{"train.py": "", "../x": ""}), 400},
		"a bomb":          {good, projectZip(map[string]string{"train.py": strings.Repeat("0", 1<<20), "../../y": ""}), 400},
		"memory of texts": {`{"project":{"name":"x"},"resources":{"memory":"lots"}}`, projectZip(map[string]string{"train.py": ""}), 400},
	} {
		if status := p.form("/api/jobs", map[string]string{"config": form.config}, "project_zip", form.zip, nil); status != form.status {
			t.Errorf("%s: %d", name, status)
		}
	}
	bearer := w.newClient()
	bearer.token = "firebase-token"
	if status := bearer.do("GET", "/api/jobs", nil, nil); status != http.StatusUnauthorized {
		t.Errorf("a foreign token is answered with %d", status)
	}
	for j, err := range w.client.Jobs(t.Context(), client.JobQuery{}) {
		t.Errorf("there is job %d, %v", j.ID, err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

func TestANodeThatDropsJobsIsNotTrusted(t *testing.T) {
	t.Parallel()
	w := newEnv(t, func(w *env) { w.timeouts = trainforge.Timeouts{NodeStart: 2 * time.Second} })
	a := &workerA{fakeClient: w.newClient(), id: "silent", hostname: "vm", projects: w.shared, docker: true}
	w.runInBackground(a.run)
	job := w.submit(muster.TaskSpec{Run: &muster.Command{Shell: "true"}, Retries: muster.Retries{Backoff: muster.Duration(time.Millisecond)}})
	testkit.Await(w.t, "it is said of it", func() bool {
		worker, err := w.client.Worker(t.Context(), "silent")
		return err == nil && (strings.Contains(worker.Constrained, "DOCKER_HOST") || worker.Health != nil)
	})
	other := &workerA{fakeClient: w.newClient(), id: "honest", hostname: "vm2", projects: w.shared}
	w.runInBackground(other.run)
	if task := w.waitTask(job.ID); task.State != muster.Succeeded {
		t.Errorf("%s %s", task.State, task.Message)
	}
}

// TestATaskThatIsNotHeardOfIsRunElsewhere holds for all three workers that one which vanishes while it runs a task loses it, and that its late report changes nothing.
func TestATaskThatIsNotHeardOfIsRunElsewhere(t *testing.T) {
	t.Parallel()
	for form, start := range map[string]func(*env) dialecttest.Worker{
		"node": func(w *env) dialecttest.Worker {
			return &nodeWorker{conformClient: newConformClient(w.t, w.gateway.URL(), ""), id: "first", shared: w.shared, taken: map[string]bool{}}
		},
		"poller": func(w *env) dialecttest.Worker { return &pollerWorker{newConformClient(w.t, w.gateway.URL(), "")} },
		"external": func(w *env) dialecttest.Worker {
			return &externalWorker{conformClient: newConformClient(w.t, w.gateway.URL(), ""), id: "first"}
		},
	} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			w := newEnv(t, func(w *env) {
				w.timeouts = trainforge.Timeouts{Silence: 2 * time.Second, RunnerSilence: 300 * time.Millisecond}
			})
			first := start(w)
			job := w.submit(muster.TaskSpec{Run: &muster.Command{Shell: "true"}, Disconnect: muster.Disconnect{Grace: muster.Duration(2 * time.Second)}})
			work, err := first.NextTask(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := work.(interface{ alive(context.Context) error }).alive(t.Context()); err != nil {
				t.Fatal(err)
			}
			first.Crash()
			testkit.Await(w.t, "it is taken from it", func() bool { return w.task(job.ID, 0).Attempt >= 2 || w.task(job.ID, 0).State == muster.Queued })
			second := &externalWorker{conformClient: newConformClient(t, w.gateway.URL(), ""), id: "second"}
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			again, err := second.NextTask(ctx)
			if err != nil {
				t.Fatal(err)
			}
			_ = work.Succeed(t.Context(), "late")
			if task := w.task(job.ID, 0); task.State.Final() {
				t.Errorf("the late report made the task %s", task.State)
			}
			if err := again.Succeed(t.Context(), "right"); err != nil {
				t.Fatal(err)
			}
			if task := w.waitTask(job.ID); !strings.Contains(string(task.Result), "right") {
				t.Errorf("%s", task.Result)
			}
		})
	}
}

func TestALostReportIsMadeUpFor(t *testing.T) {
	t.Parallel()
	w := newEnv(t, func(w *env) { w.timeouts = trainforge.Timeouts{ReportGrace: 300 * time.Millisecond} })
	for id, c := range map[string]struct {
		end   string
		state muster.TaskState
	}{
		"works": {endLine("its own word"), muster.Succeeded},
		"fails": {`::trainforge {"end": true, "exit_code": 3}`, muster.Failed},
	} {
		worker := &externalWorker{conformClient: newConformClient(t, w.gateway.URL(), ""), id: id}
		job := w.submit(muster.TaskSpec{Run: &muster.Command{Shell: "true"}})
		work, err := worker.NextTask(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := work.(*pathAssignment).print(t.Context(), c.end); err != nil {
			t.Fatal(err)
		}
		task := w.waitTask(job.ID)
		if task.State != c.state || task.Attempt != 1 || c.state == muster.Succeeded && !strings.Contains(string(task.Result), "its own word") {
			t.Errorf("%s: %s after %d attempts: %s %s", id, task.State, task.Attempt, task.Message, task.Result)
		}
		_ = work.Fail(t.Context(), "late")
		worker.do("DELETE", "/api/workers/"+id, nil, nil)
	}
}

func TestAStoppedNodeIsGivenNothing(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	a := &workerA{fakeClient: w.newClient(), id: "a", hostname: "vm", projects: w.shared}
	stop := w.runInBackground(a.run)
	job := w.submit(muster.TaskSpec{Run: &muster.Command{Shell: "sleep 600"}, Retries: muster.Retries{Backoff: muster.Duration(time.Millisecond)}})
	testkit.Await(w.t, "it runs", func() bool { return w.task(job.ID, 0).State == muster.Running })
	stop()
	testkit.Await(w.t, "the task is back in the queue", func() bool { return w.task(job.ID, 0).State == muster.Queued })
	list, err := w.client.Attempts(t.Context(), muster.TaskID{Job: job.ID})
	if err != nil || len(list) != 1 || list[0].Reason != muster.WorkerShutdown {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestClaims(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	one, other := &workerC{fakeClient: w.newClient(), id: "one"}, &workerC{fakeClient: w.newClient(), id: "other"}
	one.register()
	job := w.submit(muster.TaskSpec{Run: &muster.Command{Shell: "true"}})
	var list []dict
	testkit.Await(w.t, "it is offered", func() bool {
		list = nil
		one.do("GET", "/api/jobs/pending", nil, &list)
		return len(list) == 1
	})
	id := list[0]["job_id"].(string)
	other.register()
	p := w.newClient()
	if status := p.do("POST", "/api/jobs/"+id+"/claim", dict{"worker_id": "nobody"}, nil); status != http.StatusNotFound {
		t.Errorf("the claim of an unknown worker gets %d", status)
	}
	if status := p.do("POST", "/api/jobs/"+id+"/claim", dict{"worker_id": "other"}, nil); status != http.StatusBadRequest {
		t.Errorf("the claim of the worker that has no task is answered with %d", status)
	}
	results := make(chan int, 8)
	for range 8 {
		go func() { results <- p.do("POST", "/api/jobs/"+id+"/claim", dict{"worker_id": "one"}, nil) }()
	}
	good := 0
	for range 8 {
		if <-results == http.StatusOK {
			good++
		}
	}
	if good == 0 {
		t.Error("no worker got it")
	}
	if status := p.do("POST", "/api/jobs/"+id+"/claim", dict{"worker_id": "other"}, nil); status != http.StatusBadRequest {
		t.Errorf("the second claim is answered with %d", status)
	}
	one.status(id, "running", "")
	one.status(id, "completed", "")
	one.status(id, "failed", "") // a double report
	if status := p.do("POST", "/api/jobs/"+id+"/claim", dict{"worker_id": "one"}, nil); status != http.StatusBadRequest {
		t.Errorf("the claim of a finished job is answered with %d", status)
	}
	one.do("POST", "/api/jobs/"+id+"/logs/batch", dict{"logs": []dict{{"message": "late"}}}, nil)
	if task := w.waitTask(job.ID); task.State != muster.Succeeded || task.Attempt != 1 {
		t.Errorf("%s after %d attempts", task.State, task.Attempt)
	}
}

func TestTwoNodesWithOneID(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	a := &workerA{fakeClient: w.newClient(), id: "same", hostname: "one"}
	b := &workerA{fakeClient: w.newClient(), id: "same", hostname: "two"}
	if a.register() != http.StatusOK || b.register() != http.StatusConflict || a.register() != http.StatusOK {
		t.Error("a second machine may not have the id, and the first one may be started again")
	}
}

func TestADistributedJobOfAClient(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	p := w.newClient()
	for _, id := range []string{"colab-a", "colab-b"} {
		c := &workerC{fakeClient: w.newClient(), id: id}
		w.runInBackground(c.run)
	}
	var made struct {
		JobID     string       `json:"job_id"`
		MusterJob muster.JobID `json:"muster_job"`
		Workers   int          `json:"num_workers"`
	}
	zipped := projectZip(map[string]string{"train.py": "import os\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], bool(os.environ['MASTER_ADDR']))"})
	if status := p.form("/api/jobs/distributed", map[string]string{"config": `{"project":{"name":"d"}}`, "num_workers": "2"}, "project_zip", zipped, &made); status != http.StatusCreated || made.Workers != 2 {
		t.Fatalf("%d %+v", status, made)
	}
	testkit.Await(w.t, "the job ends", func() bool {
		job, err := w.client.Job(t.Context(), made.MusterJob)
		return err == nil && job.State.Final()
	})
	var logs struct {
		Logs []struct {
			Message string `json:"message"`
		} `json:"logs"`
	}
	p.do("GET", "/api/jobs/"+made.JobID+"/logs", nil, &logs)
	var lines []string
	for _, l := range logs.Logs {
		lines = append(lines, l.Message)
	}
	for _, want := range []string{"[rank 0] rank 0 of 2 True", "[rank 1] rank 1 of 2 True"} {
		if !slices.Contains(lines, want) {
			t.Errorf("%q is not in %q", want, lines)
		}
	}
}
