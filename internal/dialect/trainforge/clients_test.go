package trainforge_test

import (
	"encoding/json"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/trainforge"
	"github.com/muster-dev/muster/internal/testkit"
)

func TestWorkersAreListed(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	p := w.newClient()
	a, c := &workerA{fakeClient: p, id: "worker-1", hostname: "vm", maxJobs: 2}, &externalWorker{conformClient: newConformClient(t, p.base, ""), id: "colab-1"}
	if status := a.register(); status != http.StatusOK {
		t.Fatalf("the registration is answered with %d", status)
	}
	job := w.submit(muster.TaskSpec{Python: &muster.Python{Packages: []string{"only-external-workers-install"}}, Run: &muster.Command{Shell: "true"}})
	work, err := c.NextTask(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var list []dict
	for _, path := range []string{"/api/workers", "/api/workers/realtime"} {
		if status := p.do("GET", path, nil, &list); status != http.StatusOK || len(list) != 2 {
			t.Errorf("%s is answered with %d: %v", path, status, list)
		}
	}
	for id, want := range map[string]dict{
		"worker-1": {"status": "idle", "active_jobs": 0.0, "max_jobs": 2.0, "hostname": "vm"},
		"colab-1":  {"status": "busy", "active_jobs": 1.0, "worker_type": "external_colab"},
	} {
		for _, path := range []string{"/api/workers/" + id, "/api/workers/" + id + "/stats"} {
			var one dict
			if status := p.do("GET", path, nil, &one); status != http.StatusOK || one["worker_id"] != id {
				t.Errorf("%s is answered with %d: %v", path, status, one)
			}
			for k, v := range want {
				if one[k] != v {
					t.Errorf("%s of %s is %v", k, id, one[k])
				}
			}
		}
	}
	var all dict
	if p.do("GET", "/api/workers/stats/all", nil, &all); all["total_workers"] != 2.0 || all["busy"] != 1.0 || all["idle"] != 1.0 {
		t.Errorf("%v", all)
	}
	for path, body := range map[string]dict{"/status": {"status": "busy", "message": "m"}, "/progress": {"progress": 40, "message": "epoch 2", "epoch": 2, "loss": 0.5, "accuracy": 0.75}} {
		if status := p.do("PUT", "/api/workers/colab-1"+path, body, nil); status != http.StatusOK {
			t.Errorf("%s is answered with %d", path, status)
		}
	}
	for path, body := range map[string]dict{"/job-started": {"job_id": work.ID(), "shard_id": 0}, "/job-completed": {"job_id": work.ID(), "success": true, "metrics": dict{}}} {
		if status := p.do("POST", "/api/workers/colab-1"+path, body, nil); status != http.StatusOK {
			t.Errorf("%s is answered with %d", path, status)
		}
	}
	testkit.Await(w.t, "progress is the task's", func() bool {
		task := w.task(job.ID, 0)
		return task.Progress != nil && *task.Progress == 0.4 && task.Step == "epoch 2" && task.Metrics["loss"] == 0.5 && task.Metrics["accuracy"] == 0.75
	})
	if err := work.Succeed(t.Context(), "done"); err != nil {
		t.Fatal(err)
	}
	w.waitTask(job.ID)
	if status := p.do("DELETE", "/api/workers/colab-1", nil, nil); status != http.StatusOK {
		t.Errorf("its end is answered with %d", status)
	}
	var answer dict
	if status := p.do("GET", "/api/workers/colab-1", nil, &answer); status != http.StatusNotFound || answer["error"] != "Worker not found" {
		t.Errorf("a worker that left is answered with %d: %v", status, answer)
	}
}

func TestAClientCancels(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	p := w.newClient()
	submit := func(name string) (id string, job muster.JobID) {
		var made struct {
			JobID     string       `json:"job_id"`
			MusterJob muster.JobID `json:"muster_job"`
		}
		if status := p.form("/api/jobs", map[string]string{"config": `{"project":{"name":"` + name + `"}}`}, "project_zip", projectZip(map[string]string{"train.py": "1"}), &made); status != http.StatusCreated {
			t.Fatalf("the submission is answered with %d", status)
		}
		return made.JobID, made.MusterJob
	}
	is := func(job muster.JobID, want muster.JobState) {
		testkit.Await(w.t, "the job is "+string(want), func() bool {
			got, err := w.client.Job(t.Context(), job)
			return err == nil && got.State == want
		})
	}
	one, oneJob := submit("one")
	if status := p.do("PUT", "/api/jobs/"+one, dict{"status": "completed"}, nil); status != http.StatusConflict {
		t.Errorf("a client that says completed is answered with %d", status)
	}
	var answer dict
	if status := p.do("PUT", "/api/jobs/"+one, dict{"status": "cancelled"}, &answer); status != http.StatusOK || answer["status"] != "cancelled" {
		t.Errorf("%d %v", status, answer)
	}
	is(oneJob, muster.JobCancelled)
	two, twoJob := submit("two")
	if status := p.do("DELETE", "/api/jobs/"+two, nil, nil); status != http.StatusOK {
		t.Errorf("the deletion is answered with %d", status)
	}
	is(twoJob, muster.JobCancelled)
	if status := p.do("DELETE", "/api/jobs/"+two, nil, nil); status != http.StatusOK {
		t.Errorf("the second deletion is answered with %d", status)
	}
	var list struct {
		Jobs []dict `json:"jobs"`
	}
	for query, want := range map[string]int{"": 2, "?limit=50": 2, "?status=cancelled": 2, "?status=pending": 0} {
		if p.do("GET", "/api/jobs"+query, nil, &list); len(list.Jobs) != want {
			t.Errorf("%s shows %v", query, list.Jobs)
		}
	}
}

// TestWorkersForKaggle plays what the worker for Kaggle does in another way than the one for Colab: its registration has no capabilities, it sends no status before the
// last one, and each line of its log by itself.
func TestWorkersForKaggle(t *testing.T) {
	t.Parallel()
	w := newEnv(t, func(w *env) { w.timeouts = trainforge.Timeouts{ClaimStart: 500 * time.Millisecond} })
	p := w.newClient()
	if status := p.do("POST", "/api/workers/register", dict{
		"worker_id": "kaggle-1795193358", "platform": "kaggle", "gpu_available": true, "gpu_name": "Tesla P100", "gpu_memory_gb": 15.9, "status": "idle", "last_heartbeat": 1795193358.98,
	}, nil); status != http.StatusOK {
		t.Fatalf("the registration is answered with %d", status)
	}
	job := w.submit(muster.TaskSpec{Resources: muster.Request{GPUs: muster.GPURequest{Count: 1}}, Run: &muster.Command{Shell: "true"}})
	var list []dict
	testkit.Await(w.t, "it is offered", func() bool {
		list = nil
		p.do("GET", "/api/jobs/pending", nil, &list)
		return len(list) > 0
	})
	path := "/api/jobs/" + list[0]["job_id"].(string)
	if status := p.do("POST", path+"/claim", dict{"worker_id": "kaggle-1795193358"}, nil); status != http.StatusOK {
		t.Fatalf("the claim is answered with %d", status)
	}
	var project []byte
	if status := p.do("GET", path+"/files", nil, &project); status != http.StatusOK {
		t.Fatalf("the request for the project is answered with %d", status)
	}
	dir := t.TempDir()
	if err := unzipBytes(project, dir); err != nil {
		t.Fatal(err)
	}
	var order struct {
		URL string `json:"url"`
	}
	b, err := os.ReadFile(dir + "/.trainforge/task.json")
	if err == nil {
		err = json.Unmarshal(b, &order)
	}
	if err != nil || order.URL != p.base {
		t.Errorf("the project says that the server is %q, %v", order.URL, err)
	}
	time.Sleep(time.Second) // packages are installed for longer than a job may take to begin
	for _, line := range []string{`::trainforge {"alive": true}`, "epoch 1", `::trainforge {"end": true, "exit_code": 0}`} {
		if status := p.do("POST", path+"/logs", dict{"message": line, "timestamp": 1795193358.98}, nil); status != http.StatusOK {
			t.Errorf("a line is answered with %d", status)
		}
	}
	p.do("PUT", path+"/status", dict{"status": "completed", "message": "Training completed successfully"}, nil)
	if task := w.waitTask(job.ID); task.State != muster.Succeeded || task.Attempt != 1 || w.log(task.ID) != "epoch 1\n" {
		t.Errorf("%s after %d attempts: %s", task.State, task.Attempt, task.Message)
	}
}

// TestAClaimWaits holds that a worker whose claim of another one's job is refused is not answered at once, and that it is given a job that comes meanwhile.
func TestAClaimWaits(t *testing.T) {
	t.Parallel()
	w := newEnv(t, func(w *env) { w.timeouts = trainforge.Timeouts{ClaimHold: testTimeout} })
	one, other := &workerC{fakeClient: w.newClient(), id: "one"}, &workerC{fakeClient: w.newClient(), id: "other"}
	one.register()
	w.submit(muster.TaskSpec{Run: &muster.Command{Shell: "true"}})
	var list []dict
	testkit.Await(w.t, "it is offered", func() bool {
		list = nil
		one.do("GET", "/api/jobs/pending", nil, &list)
		return len(list) > 0
	})
	other.register()
	answer := make(chan int, 1)
	go func() {
		answer <- other.do("POST", "/api/jobs/"+list[0]["job_id"].(string)+"/claim", dict{"worker_id": "other"}, nil)
	}()
	select {
	case status := <-answer:
		t.Errorf("the claim is answered at once with %d", status)
	case <-time.After(200 * time.Millisecond):
	}
	w.submit(muster.TaskSpec{Run: &muster.Command{Shell: "true"}})
	if status := <-answer; status != http.StatusOK {
		t.Errorf("the claim is answered with %d", status)
	}
}
