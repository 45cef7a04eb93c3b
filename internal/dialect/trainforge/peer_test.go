package trainforge_test

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The peers of this file do what contracts.md says of TrainForge's programs, and know nothing of the packages under test. They only wait less.
const pollInterval = 20 * time.Millisecond

// transcript is what was said, for comparison with a file.
type transcript struct {
	mu   sync.Mutex
	b    strings.Builder
	hide []string // pairs of texts that differ from run to run and what stands for them
	seen map[string]bool
	off  bool
}

// silence has nothing added until it is taken back.
func (t *transcript) silence(off bool) {
	t.mu.Lock()
	t.off = off
	t.mu.Unlock()
}

func (t *transcript) name(id, as string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if id != "" && !slices.Contains(t.hide, id) {
		t.hide = append(t.hide, id, as)
	}
}

func (t *transcript) add(method, path string, body []byte, status int, answer []byte) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	entry := fmt.Sprintf("%s %s\n> %s\n< %d %s\n\n", method, path, short(body), status, short(answer))
	// Polls and heartbeats are there once: how many there are is a matter of time.
	again := strings.Contains(path, "heartbeat") || method == http.MethodGet && !bytes.Contains(answer, []byte("job_id"))
	if t.off || again && t.seen[entry] {
		return
	}
	if t.seen == nil {
		t.seen = map[string]bool{}
	}
	t.seen[entry] = true
	t.b.WriteString(entry)
}

var wall = regexp.MustCompile(`wall_seconds\\": [0-9.e-]+`)

func short(b []byte) string {
	if !json.Valid(b) {
		return "(no JSON)"
	}
	var v any
	_ = json.Unmarshal(b, &v)
	out, _ := json.Marshal(steady(v))
	return string(out)
}

// steady replaces what differs from run to run.
func steady(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, below := range v {
			switch k {
			case "timestamp", "created_at", "updated_at", "started_at", "completed_at", "uptime", "duration", "muster_version", "requestId", "size", "muster_job", "master_port", "last_heartbeat":
				v[k] = "…"
			default:
				v[k] = steady(below)
			}
		}
	case []any:
		for i := range v {
			v[i] = steady(v[i])
		}
	}
	return v
}

func (t *transcript) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return wall.ReplaceAllString(strings.NewReplacer(t.hide...).Replace(t.b.String()), `wall_seconds\": 1`)
}

// fakeClient speaks HTTP.
type fakeClient struct {
	t          *testing.T
	base       string
	token      string
	agent      string
	transcript *transcript
}

func (p *fakeClient) do(method, path string, body any, into any) int {
	r, b, err := p.request(method, path, body)
	if err != nil {
		p.t.Errorf("%s %s: %v", method, path, err)
		return 0
	}
	status, err := p.send(r, b, into)
	if err != nil {
		p.t.Errorf("%s %s: %v", method, path, err)
	}
	return status
}

func (p *fakeClient) try(ctx context.Context, method, path string, body any, into any) (int, error) {
	r, b, err := p.request(method, path, body)
	if err != nil {
		return 0, err
	}
	return p.send(r.WithContext(ctx), b, into)
}

// request is one with this body as JSON, and the body.
func (p *fakeClient) request(method, path string, body any) (*http.Request, []byte, error) {
	var b []byte
	switch body := body.(type) {
	case nil:
	case string:
		b = []byte(body)
	default:
		b, _ = json.Marshal(body)
	}
	r, err := http.NewRequest(method, p.base+path, bytes.NewReader(b))
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	return r, b, nil
}

func (p *fakeClient) send(r *http.Request, b []byte, into any) (int, error) {
	if p.token != "" {
		r.Header.Set("Authorization", "Bearer "+p.token)
	}
	if p.agent != "" {
		r.Header.Set("User-Agent", p.agent)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err
	}
	p.transcript.add(r.Method, strings.TrimPrefix(r.URL.RequestURI(), "/"), b, res.StatusCode, answer)
	if into != nil {
		if raw, ok := into.(*[]byte); ok {
			*raw = answer
			return res.StatusCode, nil
		}
		if err := json.Unmarshal(answer, into); err != nil {
			return res.StatusCode, fmt.Errorf("%w in %s", err, answer)
		}
	}
	return res.StatusCode, nil
}

// form sends a multipart body.
func (p *fakeClient) form(path string, fields map[string]string, file string, content []byte, into any) int {
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	for k, v := range fields {
		_ = m.WriteField(k, v)
	}
	if file != "" {
		w, _ := m.CreateFormFile(file, file+".zip")
		_, _ = w.Write(content)
	}
	_ = m.Close()
	r, err := http.NewRequest(http.MethodPost, p.base+path, &b)
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Content-Type", m.FormDataContentType())
	status, err := p.send(r, nil, into)
	if err != nil {
		p.t.Errorf("POST %s: %v", path, err)
	}
	return status
}

type dict = map[string]any

// workerA is worker_node.py.
type workerA struct {
	fakeClient

	id       string
	gpus     []dict
	maxJobs  int
	projects string // <repo>/api/storage/projects/projects
	docker   bool   // every job is dropped without a word, as where Docker is importable
	hostname string

	mu      sync.Mutex
	active  map[string]*exec.Cmd
	started []string
	wait    sync.WaitGroup
}

func mockGPUs() []dict {
	return []dict{{"gpu_id": 0, "name": "NVIDIA GeForce RTX 3080", "memory_mb": 10240}, {"gpu_id": 1, "name": "NVIDIA GeForce RTX 3090", "memory_mb": 24576}}
}

func (a *workerA) register() int {
	if a.maxJobs == 0 {
		a.maxJobs = 4
	}
	a.active = map[string]*exec.Cmd{}
	return a.do("POST", "/api/workers/register", dict{
		"worker_info": dict{
			"worker_id": a.id, "hostname": a.hostname, "platform": "linux", "python_version": "3.11.2 (main, Apr 28 2025)", "cpu_count": 2, "memory_total_gb": 23.54,
			"disk_total_gb": 251.97, "gpu_count": len(a.gpus), "gpus": a.gpus,
		},
		"capabilities": dict{"max_concurrent_jobs": a.maxJobs, "supports_gpu": true, "supports_docker": true},
	}, nil)
}

// run registers, polls and works until ctx ends; then it cancels what runs and says goodbye.
func (a *workerA) run(ctx context.Context) {
	if a.register() != http.StatusOK {
		return // the process ends
	}
	if len(a.gpus) == 0 {
		a.do("POST", "/api/workers/heartbeat", dict{"worker_id": a.id, "timestamp": 1795193358.98, "active_jobs": 0, "max_jobs": a.maxJobs, "memory_usage": 2.9, "load_average": []float64{0.8, 1.4, 1.2},
			"cpu_status": dict{"total_cores": 2, "utilization_percent": 0.0, "current_metrics": dict{"cpu_usage_percent": 5.0, "memory_usage_percent": 2.9}}, "gpu_status": dict{"gpus": dict{}}}, nil)
	}
	for ctx.Err() == nil {
		a.mu.Lock()
		full := len(a.active) >= a.maxJobs
		a.mu.Unlock()
		if !full {
			a.poll(ctx)
		}
		pause(ctx)
	}
	a.mu.Lock()
	for id, cmd := range a.active {
		_ = cmd.Process.Kill()
		a.do("POST", "/api/workers/job-status", dict{"worker_id": a.id, "job_id": id, "status": "cancelled", "timestamp": 1795193400.5}, nil)
	}
	a.mu.Unlock()
	a.do("POST", "/api/workers/unregister", dict{"worker_id": a.id}, nil)
	a.wait.Wait()
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(pollInterval):
	}
}

func (a *workerA) poll(ctx context.Context) {
	var answer struct {
		Jobs []struct {
			JobID     string         `json:"job_id"`
			Resources map[string]any `json:"resources"`
			Training  struct{ Script string }
		}
	}
	if status, err := a.try(ctx, "GET", "/api/workers/jobs?worker_id="+a.id, nil, &answer); err != nil || status != http.StatusOK {
		return // logged, next turn
	}
	for _, j := range answer.Jobs {
		a.mu.Lock()
		_, runs := a.active[j.JobID]
		full := len(a.active) >= a.maxJobs
		a.mu.Unlock()
		if !runs && !full && !a.docker {
			a.start(j.JobID, j.Training.Script)
		}
	}
}

func (a *workerA) start(id, script string) {
	dir := filepath.Join(a.projects, id)
	if _, err := os.Stat(dir); err != nil {
		return // without a word
	}
	cmd := exec.Command("python3", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TRAINFORGE_JOB_ID="+id, "PYTHONUNBUFFERED=1", "CUDA_VISIBLE_DEVICES=-1")
	if err := cmd.Start(); err != nil {
		return
	}
	a.mu.Lock()
	a.active[id] = cmd
	a.started = append(a.started, id)
	a.mu.Unlock()
	a.transcript.nameJob(id)
	a.do("POST", "/api/workers/job-status", dict{"worker_id": a.id, "job_id": id, "status": "running", "timestamp": 1795193358.98}, nil)
	a.wait.Go(func() {
		_ = cmd.Wait()
		a.mu.Lock()
		_, own := a.active[id]
		delete(a.active, id)
		a.mu.Unlock()
		code, status := cmd.ProcessState.ExitCode(), "completed"
		if code != 0 {
			status = "failed"
		}
		if own && code >= 0 {
			a.do("POST", "/api/workers/job-status", dict{"worker_id": a.id, "job_id": id, "status": status, "timestamp": 1795193359.0, "exit_codes": []int{code}, "duration": 1.5}, nil)
		}
	})
}

func (t *transcript) nameJob(id string) {
	if t != nil {
		t.name(id, "JOB")
	}
}

// workerB is worker/worker.py.
type workerB struct {
	fakeClient

	projects string // ../api/storage/projects/projects
	limit    int
}

func (b *workerB) run(ctx context.Context) {
	if b.limit == 0 {
		b.limit = 1
	}
	b.agent = "python-requests/2.31.0"
	if b.do("GET", "/health", nil, nil) != http.StatusOK {
		return
	}
	for ctx.Err() == nil {
		var answer struct {
			Jobs []dict `json:"jobs"`
		}
		if _, err := b.try(ctx, "GET", fmt.Sprintf("/api/jobs?limit=%d", b.limit), nil, &answer); err == nil {
			for _, j := range answer.Jobs {
				if j["status"] == "pending" {
					b.execute(ctx, j["job_id"].(string), j["training_script"].(string))
					break
				}
			}
		}
		pause(ctx)
	}
}

func (b *workerB) execute(ctx context.Context, id, script string) {
	b.transcript.nameJob(id)
	b.do("PUT", "/api/jobs/"+id, dict{"status": "running", "started_at": "2026-11-20T16:44:14.735270"}, nil)
	b.log(id, "Job started by worker")
	dir, err := os.MkdirTemp(b.t.TempDir(), "job")
	if err == nil {
		err = unzip(filepath.Join(b.projects, id, "project.zip"), dir)
	}
	if err != nil {
		b.do("PUT", "/api/jobs/"+id, dict{"status": "failed", "completed_at": "2026-11-20T16:44:15.735270", "error_message": err.Error()}, nil)
		return
	}
	b.log(id, "Executing: python "+script)
	code := spawn(ctx, dir, b.base, []string{"python3", script}, func(line string) {
		if line = strings.TrimSpace(line); line != "" {
			b.log(id, line)
		}
	})
	switch {
	case ctx.Err() != nil:
		b.do("PUT", "/api/jobs/"+id, dict{"status": "cancelled", "error_message": "Worker shutdown during execution"}, nil)
	case code == 0:
		b.do("PUT", "/api/jobs/"+id, dict{"status": "completed", "progress": 100, "completed_at": "2026-11-20T16:44:15.735270"}, nil)
		b.log(id, "Job completed successfully")
	default:
		b.do("PUT", "/api/jobs/"+id, dict{"status": "failed", "completed_at": "2026-11-20T16:44:15.735270", "error_message": fmt.Sprintf("Script failed with code %d", code)}, nil)
	}
}

func (b *workerB) log(id, line string) {
	b.do("POST", "/api/jobs/"+id+"/logs", dict{"message": line}, nil)
}

// spawn runs a program and hands its lines on.
func spawn(ctx context.Context, dir, base string, argv []string, say func(string)) int {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TRAINFORGE_API_URL="+base, "PYTHONUNBUFFERED=1")
	out, err := cmd.StdoutPipe()
	cmd.Stderr = cmd.Stdout
	if err != nil || cmd.Start() != nil {
		return 127
	}
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			say(strings.TrimRight(line, "\n"))
		}
		if err != nil {
			break
		}
	}
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode()
}

func unzip(path, dir string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return unzipBytes(b, dir)
}

func unzipBytes(b []byte, dir string) error {
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(dir, 0o755), os.CopyFS(dir, z))
}

// workerC is colab_worker.py; with kaggle it uploads results, too.
type workerC struct {
	fakeClient

	id     string
	kaggle bool
	gpu    bool

	mu   sync.Mutex
	done []string
}

func (c *workerC) register() int {
	count := 0
	info := dict{"available": false, "name": "None", "memory_gb": 0.0}
	if c.gpu {
		count, info = 1, dict{"available": true, "name": "Tesla T4", "memory_gb": 15.0, "cuda": "12.2"}
	}
	return c.do("POST", "/api/workers/register", dict{
		"worker_id": c.id, "status": "idle", "worker_type": "external_colab", "location": "google_colab", "gpu_name": info["name"], "gpu_memory_gb": info["memory_gb"],
		"capabilities": dict{"gpu_count": count, "gpu_info": info, "max_memory_gb": 12.7},
	}, nil)
}

func (c *workerC) run(ctx context.Context) {
	c.agent = "TrainForge-Worker/2.0"
	for ctx.Err() == nil {
		if status, err := c.try(ctx, "GET", "/health", nil, nil); err != nil || status != http.StatusOK {
			pause(ctx)
			continue
		}
		if status := c.register(); status != 200 && status != 201 {
			pause(ctx)
			continue
		}
		for ctx.Err() == nil {
			if status, err := c.try(ctx, "POST", "/api/workers/"+c.id+"/heartbeat", dict{"timestamp": 1795193358.98}, nil); err != nil || status != http.StatusOK {
				break // from the beginning
			}
			var jobs []dict
			if _, err := c.try(ctx, "GET", "/api/jobs/pending", nil, &jobs); err == nil && len(jobs) > 0 {
				id, _ := jobs[0]["job_id"].(string)
				c.job(ctx, id)
			}
			pause(ctx)
		}
	}
}

func (c *workerC) job(ctx context.Context, id string) {
	var got struct {
		Success bool
		Dist    *struct {
			Rank       int    `json:"rank"`
			WorldSize  int    `json:"world_size"`
			MasterAddr string `json:"master_addr"`
			MasterPort int    `json:"master_port"`
		} `json:"dist_config"`
	}
	if status, err := c.try(ctx, "POST", "/api/jobs/"+id+"/claim", dict{"worker_id": c.id}, &got); err != nil || status != http.StatusOK || !got.Success {
		return
	}
	c.transcript.nameJob(id)
	c.status(id, "running", "Downloading files")
	var files []byte
	c.do("GET", "/api/jobs/"+id+"/files", nil, &files)
	dir := filepath.Join(c.t.TempDir(), "job")
	if err := unzipBytes(files, dir); err != nil {
		c.status(id, "failed", err.Error())
		return
	}
	c.status(id, "running", "Training")
	script := "train.py"
	for _, name := range []string{"train.py", "main.py", "run.py"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			script = name
			break
		}
	}
	argv := []string{"python3", script}
	var lines []dict
	code := spawn(ctx, dir, c.base, argv, func(line string) { lines = append(lines, dict{"message": line, "timestamp": 1795193358.98}) })
	if len(lines) > 0 {
		c.do("POST", "/api/jobs/"+id+"/logs/batch", dict{"logs": lines}, nil)
	}
	if c.kaggle {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		_ = z.AddFS(os.DirFS(dir))
		_ = z.Close()
		c.form("/api/jobs/"+id+"/results", nil, "results_zip", b.Bytes(), nil)
	}
	if code == 0 {
		c.status(id, "completed", "Training completed")
	} else {
		c.status(id, "failed", fmt.Sprintf("exit code %d", code))
	}
	c.mu.Lock()
	c.done = append(c.done, id)
	c.mu.Unlock()
}

func (c *workerC) status(id, status, message string) {
	c.do("PUT", "/api/jobs/"+id+"/status", dict{"status": status, "message": message}, nil)
}
