package qubix_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/testkit"
)

// What follows plays QUBIX's own programs, by the observations of their wire only: nothing of this package is used.

// transcript records what a peer sends and is answered.
type transcript struct {
	mu    sync.Mutex
	lines []string
}

func (t *transcript) add(format string, args ...any) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, fmt.Sprintf(format, args...))
}

var (
	uuids   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	jobIDs  = regexp.MustCompile(`\b[0-9]+-[a-z2-7]{26}\b`)
	times   = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]+Z?`)
	varying = regexp.MustCompile(`("(?:costSoFar|actualCost|actualDuration|timeRemaining|uptime|wall_seconds|cost|memoryMb)":)[0-9.e+-]+`)
	workers = regexp.MustCompile(`\b[0-9A-HJKMNP-TV-Z]{26}\b|\bw-[0-9a-z]+\b`)
	ports   = regexp.MustCompile(`127\.0\.0\.1:[0-9]+`)
)

// golden compares the tape with a file of testdata, or writes that with UPDATE=1 in the environment.
func (t *transcript) golden(tb testing.TB, name string) {
	tb.Helper()
	t.mu.Lock()
	text := strings.Join(t.lines, "\n") + "\n"
	t.mu.Unlock()
	for i, found := range withPlaceholders(uuids.FindAllString(text, -1)) {
		text = strings.ReplaceAll(text, found, fmt.Sprintf("OFFER-%d", i+1))
	}
	for i, found := range withPlaceholders(jobIDs.FindAllString(text, -1)) {
		text = strings.ReplaceAll(text, found, fmt.Sprintf("JOB-%d", i+1))
	}
	text = times.ReplaceAllString(text, "TIME")
	text = varying.ReplaceAllString(text, "${1}0")
	text = workers.ReplaceAllString(text, "WORKER")
	text = ports.ReplaceAllString(text, "HOST")
	path := filepath.Join("testdata", name)
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	if string(want) != text {
		tb.Errorf("%s differs; UPDATE=1 writes it. It is now:\n%s", path, text)
	}
}

func withPlaceholders(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// fakeClient sends requests as python-requests does.
type fakeClient struct {
	tb         testing.TB
	base       string
	transcript *transcript
}

// call sends one request. body is a value, or a string that is sent as it is; nil for none.
func (p *fakeClient) call(method, path string, body any) (int, map[string]any) {
	p.tb.Helper()
	status, text := p.raw(method, path, body)
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil && status != 0 {
		p.tb.Fatalf("%s %s answers no JSON object: %d %s", method, path, status, text)
	}
	return status, fields
}

// raw is call for any answer. Status 0 means no answer.
func (p *fakeClient) raw(method, path string, body any) (int, []byte) {
	p.tb.Helper()
	var r io.Reader
	sent := ""
	switch b := body.(type) {
	case nil:
	case string:
		sent = b
		r = strings.NewReader(b)
	case io.Reader:
		sent = "(a stream)"
		r = b
	default:
		j, err := json.Marshal(b)
		if err != nil {
			p.tb.Fatal(err)
		}
		sent = string(j)
		r = bytes.NewReader(j)
	}
	req, err := http.NewRequestWithContext(p.tb.Context(), method, p.base+path, r)
	if err != nil {
		p.tb.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "python-requests/2.31.0")
	req.Close = true // requests without a session opens a connection each time
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, []byte(err.Error())
	}
	p.transcript.add("> %s %s %s\n< %d %s", method, path, sent, resp.StatusCode, strings.TrimSpace(string(text)))
	return resp.StatusCode, text
}

// fakeWorker is one of QUBIX's two workers.
type fakeWorker struct {
	*fakeClient

	id       string
	enhanced bool
	gpu      map[string]any // of its GPU as nvidia-smi tells; nil for a machine without
	model    string
	vram     float64
	drop     bool // the next heartbeat is that after a job, whose jobs it throws away
}

// newSimple and newEnhanced are workers of a machine without nvidia-smi, which claim an invented GPU.
func newSimple(p *fakeClient, id string) *fakeWorker {
	return &fakeWorker{fakeClient: &fakeClient{tb: p.tb, base: p.base, transcript: p.transcript}, id: id, model: "NVIDIA GeForce MX150", vram: 4}
}

func newEnhanced(p *fakeClient, id string) *fakeWorker {
	w := newSimple(p, id)
	w.enhanced = true
	return w
}

const stamped = "2026-11-20T16:44:14.735270" // without a zone; of a clock that is wrong by days

func (w *fakeWorker) registration() map[string]any {
	return map[string]any{
		"worker_id": w.id, "name": "Provider-" + w.id[:8], "address": "QUBIC_" + strings.ToUpper(w.id),
		"specs": map[string]any{
			"worker_id": w.id, "hostname": "vm", "os": "Linux 6.18", "cpu_model": "Intel Core i7-8550U", "cpu_cores": 2, "cpu_freq_ghz": 0.0,
			"ram_total_gb": 23.54, "ram_available_gb": 22.89, "gpu_available": true, "gpu_model": w.model, "gpu_vram_gb": w.vram,
			"storage_total_gb": 251.97, "storage_free_gb": 70.96,
		},
		"location": "Local Network", "computePower": 20 + w.vram*50, "pricePerHour": 5.0, "isActive": true,
	}
}

// register ends the program at any status but 200.
func (w *fakeWorker) register() {
	w.tb.Helper()
	status, answer := w.call(http.MethodPost, "/api/providers/register", w.registration())
	if status != http.StatusOK {
		w.tb.Fatalf("the worker exits: registration answered %d %v", status, answer)
	}
	if provider, ok := answer["provider"].(map[string]any); !w.enhanced && (!ok || provider["id"] == nil) {
		w.tb.Fatalf("the simple worker cannot print provider.id of %v", answer)
	}
}

func (w *fakeWorker) usage() map[string]any {
	u := map[string]any{"cpuPercent": 12.5, "ramPercent": 40.0, "timestamp": stamped}
	if !w.enhanced {
		u["ramUsedGb"], u["ramTotalGb"] = 9.4, 23.54
	}
	for name, v := range w.gpu {
		if w.enhanced && name != "gpuPercent" && name != "gpuTemp" {
			continue
		}
		u[name] = v
	}
	return u
}

// heartbeat returns the first job of the answer, nil for none. It ignores errors.
func (w *fakeWorker) heartbeat() map[string]any {
	w.tb.Helper()
	status, text := w.raw(http.MethodPost, "/api/providers/"+w.id+"/heartbeat", map[string]any{"workerId": w.id, "usage": w.usage(), "status": "online", "currentJob": nil})
	var answer struct {
		PendingJobs []map[string]any `json:"pendingJobs"`
	}
	if status != http.StatusOK || json.Unmarshal(text, &answer) != nil || len(answer.PendingJobs) == 0 {
		return nil
	}
	if w.drop {
		w.drop = false
		return nil
	}
	return answer.PendingJobs[0]
}

// poll is what the enhanced worker asks every 5 seconds.
func (w *fakeWorker) poll() map[string]any {
	w.tb.Helper()
	status, text := w.raw(http.MethodGet, "/api/jobs/pending/"+w.id, nil)
	var list []map[string]any
	if status != http.StatusOK || json.Unmarshal(text, &list) != nil || len(list) == 0 {
		return nil
	}
	return list[0]
}

// progress ignores the answer.
func (w *fakeWorker) progress(job string, percent int, operation string) int {
	w.tb.Helper()
	body := map[string]any{"workerId": w.id, "progress": percent, "timestamp": stamped}
	if w.enhanced {
		body["currentOperation"] = operation
		body["metrics"] = map[string]any{}
		if w.gpu != nil {
			body["metrics"] = map[string]any{"gpuUtilization": 88.0, "gpuMemoryUsed": 2048.0, "gpuMemoryTotal": 8192.0, "gpuTemperature": 65.0, "powerUsage": 120.5}
		}
	} else {
		body["metrics"] = map[string]any{"cpuPercent": 0, "ramPercent": 0, "gpuPercent": nil, "gpuTemp": nil}
	}
	status, _ := w.raw(http.MethodPost, "/api/jobs/"+job+"/progress", body)
	return status
}

// complete sends the final report.
func (w *fakeWorker) complete(job, status string, result, failure any, metrics map[string]any) (int, map[string]any) {
	w.tb.Helper()
	w.drop = true
	if metrics == nil {
		metrics = map[string]any{}
	}
	return w.call(http.MethodPost, "/api/jobs/"+job+"/complete", map[string]any{
		"workerId": w.id, "status": status, "result": result, "error": failure, "metrics": metrics, "timestamp": stamped,
	})
}

// retry is the one report that a worker sends 2 s after its completion met a broken connection.
func (w *fakeWorker) retry(job string) (int, map[string]any) {
	w.tb.Helper()
	return w.call(http.MethodPost, "/api/jobs/"+job+"/complete", map[string]any{
		"workerId": w.id, "status": "failed", "error": "Failed to report completion: ('Connection aborted.', RemoteDisconnected('Remote end closed connection without response'))", "timestamp": stamped,
	})
}

// runJob asks for work until a job comes, as an idle worker does.
func (w *fakeWorker) runJob() map[string]any {
	w.tb.Helper()
	var job map[string]any
	kept := w.transcript
	testkit.Await(w.tb, "worker "+w.id+" is offered a job", func() bool {
		w.transcript = &transcript{}
		if w.enhanced {
			job = w.poll()
		} else {
			job = w.heartbeat()
		}
		return job != nil
	})
	if kept != nil {
		kept.lines = append(kept.lines, w.transcript.lines[len(w.transcript.lines)-1])
	}
	w.transcript = kept
	return job
}

// field is a text in a job or an answer.
func field(m map[string]any, path ...string) string {
	for _, name := range path[:len(path)-1] {
		m, _ = m[name].(map[string]any)
	}
	s, _ := m[path[len(path)-1]].(string)
	return s
}

// simpleResult is what the simple worker makes up for a job.
func simpleResult(job map[string]any) (result, metrics map[string]any) {
	result = map[string]any{"jobType": field(job, "modelType"), "status": "success", "timestamp": stamped}
	switch field(job, "modelType") {
	case "training":
		result["computationData"] = map[string]any{"epoch": 10, "loss": 0.1, "accuracy": 0.95, "learning_rate": 0.001}
		result["modelUrl"] = "ipfs://Qm0123456789abcdef0123456789abcdef"
		result["finalMetrics"] = map[string]any{"finalLoss": 0.1, "finalAccuracy": 0.95}
	case "inference":
		data := map[string]any{"prediction": "class_7", "confidence": 0.91, "latency_ms": 44.1}
		result["computationData"], result["predictions"] = data, []any{data}
	default:
		result["computationData"] = map[string]any{"iterations": 2000000, "result": 123.4}
	}
	return result, map[string]any{"processingTimeSeconds": 0.01, "cpuUsageAvg": 50.0, "ramUsageAvg": 40.0}
}

// fakeBackend is a QUBIX backend for our bridge: the mock server, or the one in TypeScript.
type fakeBackend struct {
	tb         testing.TB
	typescript bool

	mu            sync.Mutex
	users         map[string]bool // addresses; of ts
	providers     map[string]map[string]any
	beats         int
	largest       map[string]int64 // bytes of a body, by the last word of its path
	registrations int
	jobs          []*backendJob
	broken        map[string]int // how many completions of a job are taken without an answer
	locked        map[string]int // how many completions of a job are answered with 401
	limited       int            // how many requests are answered with 429
	forever       bool           // every job is offered again, whatever was reported
}

type backendJob struct {
	row       map[string]any
	provider  string
	progress  []map[string]any
	completed []map[string]any
}

func (b *fakeBackend) handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	refused := func(w http.ResponseWriter, status int, reason string) {
		answer(w, status, map[string]any{"success": false, "error": reason})
	}
	handle := func(pattern string, h func(w http.ResponseWriter, r *http.Request, body map[string]any)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			var body map[string]any
			if r.Method == http.MethodPost {
				if err := json.NewDecoder(io.LimitReader(r.Body, 50<<20)).Decode(&body); err != nil {
					refused(w, 400, err.Error())
					return
				}
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			word := path.Base(r.URL.Path)
			b.largest[word] = max(b.largest[word], r.ContentLength)
			if b.limited > 0 {
				b.limited--
				w.Header().Set("Retry-After", "1")
				refused(w, 429, "Too many requests")
				return
			}
			h(w, r, body)
		})
	}
	handle("POST /api/providers/register", func(w http.ResponseWriter, _ *http.Request, body map[string]any) {
		if b.typescript {
			answer(w, 301, map[string]any{"success": false, "error": "Use /api/providers/quick-register"}) // no Location
			return
		}
		id, _ := body["worker_id"].(string)
		b.providers[id] = body
		b.registrations++
		answer(w, 200, map[string]any{"success": true, "provider": map[string]any{"id": id}})
	})
	handle("POST /api/providers/quick-register", func(w http.ResponseWriter, _ *http.Request, body map[string]any) {
		address, _ := body["qubicAddress"].(string)
		switch {
		case !b.typescript:
			refused(w, 404, "Not found")
		case !regexp.MustCompile(`^[A-Z]{60}$`).MatchString(address) || body["workerId"] == "":
			refused(w, 400, "Validation failed")
		case !b.users[address]:
			refused(w, 500, "Failed to register provider")
		default:
			id, _ := body["workerId"].(string)
			b.providers[id] = body
			answer(w, 200, map[string]any{"success": true, "isNew": true, "provider": map[string]any{"id": "cuid-" + id, "workerId": id}})
		}
	})
	handle("POST /api/providers/{worker}/heartbeat", func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
		b.beats++
		id := r.PathValue("worker")
		if b.providers[id] == nil {
			answer(w, 404, map[string]any{"success": false, "pendingJobs": []any{}, "error": "Provider not found"})
			return
		}
		if !b.typescript {
			answer(w, 200, map[string]any{"success": true})
			return
		}
		answer(w, 200, map[string]any{"success": true, "pendingJobs": b.rows(id, "ASSIGNED", "PENDING")})
	})
	handle("GET /api/jobs/pending/{worker}", func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
		if b.typescript {
			answer(w, 200, b.rows(r.PathValue("worker"), "ASSIGNED", "RUNNING"))
			return
		}
		answer(w, 200, b.rows("", "PENDING"))
	})
	handle("POST /api/jobs/{job}/progress", func(w http.ResponseWriter, r *http.Request, body map[string]any) {
		j := b.find(r.PathValue("job"))
		percent, whole := body["progress"].(float64)
		switch {
		case j == nil:
			refused(w, 404, "Job not found")
		case !b.typescript && body["worker_id"] == nil:
			refused(w, 500, "Internal server error")
		case b.typescript && (!whole || percent != float64(int(percent))):
			refused(w, 500, "Invalid value for argument `progress`: Int")
		default:
			j.progress = append(j.progress, body)
			if percent > 0 && percent < 100 && j.row["status"] != "CANCELLED" {
				j.row["status"] = "RUNNING"
			}
			answer(w, 200, map[string]any{"success": true})
		}
	})
	handle("POST /api/jobs/{job}/complete", func(w http.ResponseWriter, r *http.Request, body map[string]any) {
		j := b.find(r.PathValue("job"))
		switch {
		case j == nil:
			refused(w, 404, "Job not found")
		case b.typescript && body["workerId"] != j.provider:
			refused(w, 403, "Job is assigned to another provider")
		case b.locked[r.PathValue("job")] > 0:
			b.locked[r.PathValue("job")]--
			refused(w, 401, "Invalid key")
		default:
			j.completed = append(j.completed, body)
			j.row["status"] = "COMPLETED"
			if body["status"] == "failed" {
				j.row["status"] = "FAILED"
			}
			if b.broken[r.PathValue("job")] > 0 {
				b.broken[r.PathValue("job")]--
				panic(http.ErrAbortHandler)
			}
			answer(w, 200, map[string]any{"success": true, "job": map[string]any{"id": r.PathValue("job"), "status": j.row["status"]}})
		}
	})
	if b.typescript {
		handle("GET /api/jobs/{job}", func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
			if j := b.find(r.PathValue("job")); j != nil {
				answer(w, 200, map[string]any{"success": true, "job": j.row})
				return
			}
			refused(w, 404, "Job not found")
		})
	}
	return mux
}

func (b *fakeBackend) find(id string) *backendJob {
	for _, j := range b.jobs {
		if j.row["id"] == id {
			return j
		}
	}
	return nil
}

// rows are up to 5 jobs of a provider, "" for anyone's.
func (b *fakeBackend) rows(provider string, states ...string) []map[string]any {
	list := []map[string]any{}
	for _, j := range b.jobs {
		if (provider == "" || j.provider == provider) && (b.forever || slices.Contains(states, j.row["status"].(string))) && len(list) < 5 {
			list = append(list, j.row)
		}
	}
	return list
}

// add creates a job for a provider.
func (b *fakeBackend) add(provider string, row map[string]any) *backendJob {
	b.mu.Lock()
	defer b.mu.Unlock()
	row["status"] = "PENDING"
	if b.typescript {
		row["status"] = "ASSIGNED"
	}
	j := &backendJob{row: row, provider: provider}
	b.jobs = append(b.jobs, j)
	return j
}

// waitReports waits until a job was reported finally and returns all reports of it.
func (b *fakeBackend) waitReports(j *backendJob) []map[string]any {
	b.tb.Helper()
	var list []map[string]any
	testkit.Await(b.tb, fmt.Sprintf("job %v is reported", j.row["id"]), func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		list = slices.Clone(j.completed)
		return len(list) > 0
	})
	return list
}

// testTimeout bounds each wait of these tests.
const testTimeout = time.Minute
