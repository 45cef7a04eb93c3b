package trainforge_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// scheduler is a TrainForge API server: the one of HEAD, or the older one without keys.
type scheduler struct {
	t          *testing.T
	server     *httptest.Server
	old        bool
	transcript *transcript

	mu       sync.Mutex
	jobs     []*foreignJob
	workers  map[string]dict
	forever  bool // it lists its jobs as pending whatever became of them
	down     bool // every request is answered with 503
	noZip    bool // every upload of results is answered with 408
	lost     bool // reports are answered as for a job that is not there
	cutZip   int  // so many uploads of results are cut off
	swallow  int  // so many final reports are done and not answered
	rateHits int  // so many requests are answered with 429
}

type foreignJob struct {
	ID, Project, Script, Status, Message, Worker string
	Config                                       string
	Dist                                         dict
	Files                                        []byte
	Logs                                         []string
	Finals                                       []string
	Refused                                      []string // reports, while lost
	Results                                      []byte
	Claims                                       int
}

func newScheduler(t *testing.T, old bool) *scheduler {
	t.Helper()
	s := &scheduler{t: t, old: old, workers: map[string]dict{}}
	s.server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.server.Close)
	return s
}

func (s *scheduler) add(id string, files map[string]string) *foreignJob {
	j := &foreignJob{ID: id, Project: "project-" + id, Script: "train.py", Status: "pending", Files: projectZip(files)}
	s.mu.Lock()
	s.jobs = append(s.jobs, j)
	s.mu.Unlock()
	return j
}

// get returns a copy of a job.
func (s *scheduler) get(j *foreignJob) foreignJob {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := *j
	c.Logs, c.Finals, c.Refused = slices.Clone(j.Logs), slices.Clone(j.Finals), slices.Clone(j.Refused)
	return c
}

func (s *scheduler) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	if s.down || s.rateHits > 0 {
		status := http.StatusServiceUnavailable
		if !s.down {
			s.rateHits--
			status = http.StatusTooManyRequests
		}
		s.mu.Unlock()
		http.Error(w, `{"error":"no"}`, status)
		return
	}
	status, answer := s.answer(r, body)
	s.mu.Unlock()
	if status == 0 { // not answered
		panic(http.ErrAbortHandler)
	}
	raw, isRaw := answer.([]byte)
	if !isRaw {
		raw, _ = json.Marshal(answer)
		w.Header().Set("Content-Type", "application/json")
	}
	s.transcript.add(r.Method, strings.TrimPrefix(r.URL.RequestURI(), "/"), body, status, raw)
	w.WriteHeader(status)
	_, _ = w.Write(raw)
}

func (j *foreignJob) object() dict {
	d := dict{
		"job_id": j.ID, "project_name": j.Project, "training_script": j.Script, "status": j.Status, "progress": 0, "created_at": "2026-11-20T16:44:14.735270",
		"resources": dict{"gpu": 1, "cpu": 2, "memory": "4Gi"}, "worker_node": j.Worker,
	}
	if j.Config != "" {
		d["config"] = json.RawMessage(j.Config)
	}
	return d
}

func missing(r *http.Request) (int, any) {
	return 404, dict{"error": "Endpoint not found", "path": r.URL.Path, "method": r.Method, "requestId": "r"}
}

func (s *scheduler) answer(r *http.Request, body []byte) (int, any) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var answer dict
	_ = json.Unmarshal(body, &answer)
	switch {
	case r.URL.Path == "/health":
		return 200, dict{"status": "healthy", "version": "0.1.0"}
	case len(parts) < 2:
		return missing(r)
	case parts[1] == "workers":
		return s.worker(r, parts[2:], answer)
	case parts[1] != "jobs":
		return missing(r)
	case len(parts) == 2:
		if !s.old {
			return 401, dict{"error": "Unauthorized", "message": "No token provided"}
		}
		list := []dict{}
		for _, j := range slices.Backward(s.jobs) { // newest first
			list = append(list, j.object())
		}
		return 200, dict{"success": true, "jobs": list, "count": len(list)}
	case parts[2] == "pending" && !s.old:
		list := []dict{}
		for _, j := range slices.Backward(s.jobs) {
			if j.Status == "pending" || s.forever {
				o := j.object()
				o["status"] = "pending"
				list = append(list, o)
			}
		}
		return 200, list
	}
	i := slices.IndexFunc(s.jobs, func(j *foreignJob) bool { return j.ID == parts[2] })
	if i < 0 {
		return 404, dict{"error": "Job not found"}
	}
	if s.old {
		return s.oldJob(r, s.jobs[i], strings.Join(parts[3:], "/"), answer)
	}
	return s.job(r, s.jobs[i], strings.Join(parts[3:], "/"), answer, body)
}

func (s *scheduler) worker(r *http.Request, rest []string, answer dict) (int, any) {
	switch {
	case s.old:
		return missing(r)
	case r.Method == http.MethodPost && len(rest) == 1 && rest[0] == "register":
		id, _ := answer["worker_id"].(string)
		if id == "" {
			return 400, dict{"error": "worker_id is required"}
		}
		s.workers[id] = answer
		return 201, dict{"success": true, "message": "Worker registered", "worker_id": id, "platform": "unknown"}
	case len(rest) == 2 && rest[1] == "heartbeat":
		return 200, dict{"success": true, "message": "Heartbeat received", "worker_id": rest[0], "timestamp": 1}
	case len(rest) == 2 && (rest[1] == "progress" || rest[1] == "status"):
		return 200, dict{"success": true}
	case r.Method == http.MethodDelete && len(rest) == 1:
		delete(s.workers, rest[0])
		return 200, dict{"message": "Worker deleted", "worker_id": rest[0]}
	}
	return missing(r)
}

func (s *scheduler) end(j *foreignJob, status, message string) int {
	j.Status, j.Message = status, message
	if status == "completed" || status == "failed" || status == "cancelled" {
		j.Finals = append(j.Finals, status)
		if s.swallow > 0 {
			s.swallow--
			return 0
		}
	}
	return 200
}

func (s *scheduler) job(r *http.Request, j *foreignJob, rest string, answer dict, body []byte) (int, any) {
	switch r.Method + " " + rest {
	case "POST claim":
		id, _ := answer["worker_id"].(string)
		if id == "" {
			return 400, dict{"error": "worker_id is required"}
		}
		j.Claims++ // neither atomic nor a check of the state
		j.Worker, j.Status = id, "running"
		answer := dict{"success": true, "message": "Job claimed", "job_id": j.ID, "worker_id": id}
		if j.Dist != nil {
			answer["is_distributed"], answer["dist_config"] = true, j.Dist
		}
		return 200, answer
	case "PUT status":
		if s.lost {
			j.Refused = append(j.Refused, fmt.Sprint(answer["status"]))
			return 500, dict{"error": "Failed to update job status", "message": "Failed to update job: Job not found"}
		}
		status, _ := answer["status"].(string)
		message, _ := answer["message"].(string)
		return s.end(j, status, message), dict{"success": true, "job_id": j.ID, "status": status}
	case "GET files":
		if j.Files == nil {
			return 404, dict{"error": "Project files not found"}
		}
		return 200, j.Files
	case "POST logs/batch":
		lines, _ := answer["logs"].([]any)
		if len(lines) == 0 {
			return 400, dict{"error": "logs array is required"}
		}
		for _, l := range lines {
			one, _ := l.(map[string]any)
			text, _ := one["message"].(string)
			j.Logs = append(j.Logs, text)
		}
		return 200, dict{"success": true, "message": "ok"}
	case "POST results":
		if s.noZip {
			return 408, dict{"error": "Request timeout"}
		}
		if s.cutZip > 0 {
			s.cutZip--
			return 0, nil
		}
		j.Results = body
		return 200, dict{"success": true, "message": "ok", "job_id": j.ID, "size": len(body), "path": "x"}
	case "GET ", "PUT ", "DELETE ":
		return 401, dict{"error": "Unauthorized", "message": "No token provided"}
	}
	return missing(r)
}

func (s *scheduler) oldJob(r *http.Request, j *foreignJob, rest string, answer dict) (int, any) {
	switch r.Method + " " + rest {
	case "GET ":
		o := j.object()
		o["success"] = true
		return 200, o
	case "PUT ":
		status, given := answer["status"].(string)
		if given && !slices.Contains([]string{"pending", "running", "completed", "failed", "cancelled"}, status) {
			return 400, dict{"error": "Invalid status"}
		}
		if node, ok := answer["worker_node"].(string); ok {
			j.Worker = node
		}
		message, _ := answer["error_message"].(string)
		answer := j.object()
		answer["success"] = true
		if !given {
			return 200, answer
		}
		if status == "running" && j.Status == "pending" {
			j.Claims++
		}
		return s.end(j, status, message), answer
	case "POST logs":
		text, _ := answer["message"].(string)
		if text == "" {
			return 400, dict{"error": "Message is required"}
		}
		j.Logs = append(j.Logs, strings.Split(text, "\n")...)
		return 200, dict{"success": true, "message": "ok"}
	case "DELETE ":
		j.Status = "cancelled"
		return 200, dict{"success": true}
	}
	return missing(r)
}

// shareProject puts a job's project where worker B looks for it.
func (s *scheduler) shareProject(dir string, j *foreignJob) {
	s.t.Helper()
	if err := os.MkdirAll(dir+"/"+j.ID, 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/"+j.ID+"/project.zip", j.Files, 0o644); err != nil {
		s.t.Fatal(err)
	}
}
