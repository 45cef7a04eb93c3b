package trainforge_test

import (
	"net/http"
	"testing"

	"github.com/muster-dev/muster"
)

func TestWorkersAreListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	p := w.peer()
	a, c := &workerA{peer: p, id: "worker-1", hostname: "vm", maxJobs: 2}, &externalPeer{caller: newCaller(t, p.base, ""), id: "colab-1"}
	if status := a.register(); status != http.StatusOK {
		t.Fatalf("the registration is answered with %d", status)
	}
	job := w.submit(muster.TaskSpec{Python: &muster.Python{Packages: []string{"only-external-workers-install"}}, Run: &muster.Command{Shell: "true"}})
	work, err := c.Take(t.Context())
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
	w.until("progress is the task's", func() bool {
		task := w.task(job.ID, 0)
		return task.Progress != nil && *task.Progress == 0.4 && task.Step == "epoch 2" && task.Metrics["loss"] == 0.5 && task.Metrics["accuracy"] == 0.75
	})
	if err := work.Succeed(t.Context(), "done"); err != nil {
		t.Fatal(err)
	}
	w.ended(job.ID)
	if status := p.do("DELETE", "/api/workers/colab-1", nil, nil); status != http.StatusOK {
		t.Errorf("its end is answered with %d", status)
	}
	var said dict
	if status := p.do("GET", "/api/workers/colab-1", nil, &said); status != http.StatusNotFound || said["error"] != "Worker not found" {
		t.Errorf("a worker that left is answered with %d: %v", status, said)
	}
}

func TestAClientCancels(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	p := w.peer()
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
		w.until("the job is "+string(want), func() bool {
			got, err := w.client.Job(t.Context(), job)
			return err == nil && got.State == want
		})
	}
	one, oneJob := submit("one")
	if status := p.do("PUT", "/api/jobs/"+one, dict{"status": "completed"}, nil); status != http.StatusConflict {
		t.Errorf("a client that says completed is answered with %d", status)
	}
	var said dict
	if status := p.do("PUT", "/api/jobs/"+one, dict{"status": "cancelled"}, &said); status != http.StatusOK || said["status"] != "cancelled" {
		t.Errorf("%d %v", status, said)
	}
	is(oneJob, muster.JobCancelled)
	two, twoJob := submit("two")
	if status := p.do("DELETE", "/api/jobs/"+two, nil, nil); status != http.StatusOK {
		t.Errorf("the deletion is answered with %d", status)
	}
	is(twoJob, muster.JobCancelled)
	var list struct {
		Jobs []dict `json:"jobs"`
	}
	for query, want := range map[string]int{"?limit=50": 1, "?status=cancelled": 1, "?status=pending": 0} {
		if p.do("GET", "/api/jobs"+query, nil, &list); len(list.Jobs) != want {
			t.Errorf("%s shows %v", query, list.Jobs)
		}
	}
}
