package trainforge

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/fleet"
)

// Whatever a worker says of itself is refused, or makes a machine that the server takes.
func FuzzRegistration(f *testing.F) {
	f.Add(`{"worker_info":{"worker_id":"w","cpu_count":2,"memory_total_gb":23.54,"gpus":[{"gpu_id":0,"name":"NVIDIA GeForce RTX 3080","memory_mb":10240}]},"capabilities":{"max_concurrent_jobs":4}}`)
	f.Add(`{"worker_id":"colab-1","gpu_name":"T4","gpu_memory_gb":15.0,"capabilities":{"gpu_count":1,"max_memory_gb":12.7}}`)
	f.Add(`{"worker_id":"x","capabilities":{"gpu_count":64,"max_memory_gb":-1}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var body registration
		if json.Unmarshal([]byte(text), &body) != nil {
			return
		}
		g := &Gateway{cpus: 2, memory: 8 << 30}
		var facts fleet.Facts
		var err error
		if body.WorkerInfo != nil {
			facts, err = nodeFacts(&body)
		} else {
			facts, err = g.externalFacts(&body)
		}
		if err != nil {
			if muster.CodeOf(err) != muster.Invalid {
				t.Fatalf("%v", err)
			}
			return
		}
		r := facts.Resources
		if facts.ID == "" || len(facts.ID) > maxID || r.Memory < 0 || r.Disk < 0 || r.CPUs <= 0 || r.MaxTasks < 1 || len(r.GPUs) > maxWorkerGPUs {
			t.Fatalf("%+v", facts)
		}
		seen := map[string]bool{}
		for _, d := range r.GPUs {
			if seen[d.UUID] || d.Memory < 0 {
				t.Fatalf("%+v", r.GPUs)
			}
			seen[d.UUID] = true
			if numbers := deviceNumbers(muster.Grant{GPUs: []string{d.UUID}}); len(numbers) != 1 || numbers[0] != itoa(d.Index) {
				t.Fatalf("%s is %v", d.UUID, numbers)
			}
		}
	})
}

// A config is refused, or its program and what it asks for are inside the project and the bounds.
func FuzzConfig(f *testing.F) {
	f.Add(`{"project":{"name":"p"},"training":{"script":"a/b.py","requirements":"r.txt"},"resources":{"gpu":1,"cpu":2,"memory":"4Gi"},"environment":{"python_version":3.9}}`)
	f.Add(`{"project":{"name":"p"},"training":{"script":"../../x"},"resources":{"memory":5e99}}`)
	dir := f.TempDir()
	if err := errors.Join(os.Mkdir(dir+"/a", 0o755), os.WriteFile(dir+"/train.py", nil, 0o644), os.WriteFile(dir+"/a/b.py", nil, 0o644), os.WriteFile(dir+"/r.txt", []byte("numpy"), 0o644)); err != nil {
		f.Fatal(err)
	}
	f.Add(`{"project":{"name":"p"},"training":{"script":"python a/b.py --epochs 3"},"resources":{"gpu":true,"cpu":"2"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseConfig(text)
		if err != nil {
			return
		}
		q, err := c.Resources.request(true)
		if err != nil || q.GPUs.Count < 0 || q.CPUs < 0 || q.Memory < 0 {
			t.Fatalf("%+v %v", q, err)
		}
		spec, err := projectSpec(dir, c, false, 0)
		if err != nil {
			if muster.CodeOf(err) != muster.Invalid {
				t.Fatal(err)
			}
			return
		}
		if run := spec.Tasks[0].Run; run.Shell == "" && run.Argv[1] != "train.py" && run.Argv[1] != "a/b.py" {
			t.Fatalf("it runs %q", run.Argv)
		}
	})
}

// A line of the runner never makes a report that is neither a success nor a failure with a reason.
func FuzzControl(f *testing.F) {
	f.Add(`{"end":true,"exit_code":0,"result":{"a":1},"missing":[]}`, "completed")
	f.Add(`{"end":true,"exit_code":1,"failure":{"reason":"bad_input","message":"m"}}`, "failed")
	f.Add(`{"end":true,"stopped":"timeout"}`, "failed")
	f.Fuzz(func(t *testing.T, payload, status string) {
		c := parseControl(payload)
		if c != nil && !c.Alive && !c.End {
			t.Fatal("it says nothing")
		}
		e := toFinalReport(status, "m", nil, c)
		switch e.Outcome {
		case muster.AttemptSucceeded:
			if status != statusCompleted || c != nil && c.End && (c.ExitCode == nil || *c.ExitCode != 0) {
				t.Fatalf("%q and %q are a success", status, payload)
			}
		case muster.AttemptFailed, muster.AttemptTimedOut:
			if e.Reason == muster.NoReason || e.Message == "" {
				t.Fatalf("%+v", e)
			}
		default:
			t.Fatalf("%+v", e)
		}
	})
}

// A server's lists and jobs are read or refused; what is read can be asked for.
func FuzzForeignJob(f *testing.F) {
	f.Add(`{"job_id":"1","training_script":"t.py","resources":{"gpu":1,"cpu":2,"memory":"4Gi"},"config":{"project":{"name":"x"}}}`)
	f.Add(`{"_id":"1","config":[],"resources":{"gpu":1e300}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var j job
		if json.Unmarshal([]byte(text), &j) != nil {
			return
		}
		conf := jobConfig(&j)
		if conf.Project.Name == "" {
			t.Fatal("it has no name")
		}
		_, _ = conf.Resources.request(true)
	})
}

// A multipart body is refused, or brings no more than it may.
func FuzzUpload(f *testing.F) {
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	_ = m.SetBoundary("xx")
	_ = m.WriteField("config", "{}")
	w, _ := m.CreateFormFile("project_zip", "p.zip")
	_, _ = w.Write([]byte("zip"))
	_ = m.Close()
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		r.Header.Set("Content-Type", "multipart/form-data; boundary=xx")
		u, err := receiveUpload(r, t.TempDir(), "project_zip", 64)
		if err != nil {
			if code := muster.CodeOf(err); code != muster.Invalid && code != muster.TooLarge {
				t.Fatalf("%v", err)
			}
			return
		}
		defer u.close()
		if u.file != nil {
			if got, _ := io.ReadAll(u.file); len(got) > 64 || int64(len(got)) != u.size {
				t.Fatalf("%d bytes", len(got))
			}
		}
	})
}
