package qubix_test

import (
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/qubix"
	"github.com/muster-dev/muster/internal/testkit"
)

const address = "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGH"

// A client of QUBIX: it estimates, creates, monitors and cancels.
func TestClientSession(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	enhanced := newEnhanced(w.newClient(), machine)
	enhanced.register()
	enhanced.heartbeat()
	w.waitReady("Provider-7504b437", muster.KindScript)
	p := w.newClient()
	p.transcript = &transcript{}
	want := map[string]any{
		"modelType": "custom_script", "computeNeeded": 2.0, "inputData": map[string]any{"script": "print(1)", "scriptUrl": ""}, "maxPrice": 10, "qubicAddress": address, "escrowTxHash": "tx",
	}
	p.call(http.MethodGet, "/health", nil)
	p.call(http.MethodPost, "/api/jobs/estimate", want)
	p.call(http.MethodPost, "/api/jobs/analyze", map[string]any{"script": "import torch"})
	_, made := p.call(http.MethodPost, "/api/jobs/create", want)
	id := field(made, "job", "id")
	p.call(http.MethodGet, "/api/jobs/"+id+"/logs", nil)
	job := enhanced.runJob()
	enhanced.progress(field(job, "id"), 40, "Running script")
	p.call(http.MethodPost, "/api/jobs/"+field(job, "id")+"/progress", map[string]any{
		"workerId": machine, "progress": 60, "currentOperation": "Half way", "logLines": []any{"one", map[string]any{"level": "info", "message": "two", "timestamp": "x"}},
	})
	number, _, _ := strings.Cut(id, "-")
	n, err := muster.ParseJobID(number)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the progress is seen", func() bool { task := w.task(n); return task.Progress != nil && *task.Progress == 0.6 })
	testkit.Await(t, "the log is seen", func() bool { return w.log(n) == "one\ntwo\n" })
	_, monitor := p.call(http.MethodGet, "/api/jobs/"+id+"/monitor", nil)
	if field(monitor, "status") != "RUNNING" || monitor["progress"] != 60.0 || field(monitor, "provider", "id") != machine || monitor["costSoFar"] == nil {
		t.Errorf("the monitor says %v", monitor)
	}
	p.call(http.MethodGet, "/api/jobs/"+id+"/status", nil)
	p.call(http.MethodGet, "/api/jobs/"+id+"/logs", nil)
	_, metrics := w.newClient().call(http.MethodGet, "/api/jobs/"+id+"/metrics", nil)
	if metrics["success"] != true {
		t.Errorf("metrics are %v", metrics)
	}
	p.raw(http.MethodGet, "/api/jobs/user/"+address, nil)
	p.call(http.MethodPost, "/api/jobs/"+id+"/cancel", map[string]any{})
	w.waitState(n, muster.Cancelled)
	p.call(http.MethodPost, "/api/jobs/"+id+"/cancel", map[string]any{})
	for _, wrong := range []map[string]any{
		{"modelType": "custom_script"},
		{"computeNeeded": 1},
		{"modelType": "custom_script", "computeNeeded": -1},
		{"modelType": "sft", "computeNeeded": 1, "inputData": map[string]any{"no_such_field": 1}},
		{"modelType": "x", "computeNeeded": 1, "inputData": "text"},
		{"modelType": "x", "computeNeeded": 1, "providerId": "nobody"},
		{"modelType": "x", "computeNeeded": 1, "maxPrice": -3},
	} {
		if status, answer := p.call(http.MethodPost, "/api/jobs/create", wrong); status/100 != 4 || field(answer, "error") == "" {
			t.Errorf("%v is answered %d %v", wrong, status, answer)
		}
	}
	for path, wrong := range map[string]map[string]any{
		"inputData.no_such_field": {"modelType": "hash", "computeNeeded": 1, "inputData": map[string]any{"data": "abc", "no_such_field": 1}},
		"inputData.scriptUrl":     {"modelType": "custom_script", "computeNeeded": 1, "inputData": map[string]any{"scriptUrl": "file:///etc/passwd"}},
	} {
		if _, answer := w.newClient().call(http.MethodPost, "/api/jobs/create", wrong); !strings.Contains(field(answer, "error"), path) {
			t.Errorf("%v is refused with %v", wrong, answer)
		}
	}
	for _, unknown := range []string{"1", number, number + "-", number + "-" + strings.Repeat("a", 26), "9999-x", "..", "x"} {
		if status, answer := p.call(http.MethodGet, "/api/jobs/"+unknown+"/monitor", nil); status != http.StatusNotFound {
			t.Errorf("job %q is answered %d %v", unknown, status, answer)
		}
	}
	p.transcript.golden(t, "client.golden")
}

// A job of the API that no QUBIX client created is not shown by number.
func TestJobsOfOthersAreNotShown(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	id := w.submit(script("print(1)"))
	for _, path := range []string{id.String(), id.String() + "-", id.String() + "-x"} {
		if status, answer := w.newClient().call(http.MethodGet, "/api/jobs/"+path, nil); status != http.StatusNotFound {
			t.Errorf("%s is answered %d %v", path, status, answer)
		}
	}
}

// A browser and a native client join by quick-register, after making an account.
func TestQuickRegister(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	p := w.newClient()
	p.transcript = &transcript{}
	status, answer := w.newClient().call(http.MethodPost, "/api/auth/register", map[string]any{"email": "a@example.org", "password": "secret"})
	own := field(answer, "user", "qubicAddress")
	if status != http.StatusCreated || len(own) != 60 || field(answer, "token") == "" {
		t.Fatalf("an account is answered %d %v", status, answer)
	}
	if _, again := w.newClient().call(http.MethodPost, "/api/auth/login", map[string]any{"email": "A@example.org", "password": "secret"}); field(again, "user", "qubicAddress") != own {
		t.Errorf("the login is answered %v", again)
	}
	if _, other := w.newClient().call(http.MethodPost, "/api/auth/login", map[string]any{"email": "a@example.org", "password": "guess"}); field(other, "user", "qubicAddress") == own {
		t.Error("another password is the same account")
	}
	quick := func(kind, id string, more map[string]any) map[string]any {
		body := map[string]any{"type": kind, "workerId": id, "qubicAddress": address, "gpu": map[string]any{"type": "webgpu", "model": "Apple M2", "vram": 8}}
		maps.Copy(body, more)
		return body
	}
	p.call(http.MethodPost, "/api/providers/quick-register", quick("browser", "browser-1", nil))
	p.call(http.MethodPost, "/api/providers/quick-register", quick("native", "native-1", map[string]any{
		"gpu": map[string]any{"type": "native", "model": "NVIDIA A10", "vram": 24}, "cpu": map[string]any{"model": "EPYC", "cores": 8}, "ram": map[string]any{"total": 64}, "pricePerHour": 3,
	}))
	for _, wrong := range []map[string]any{
		quick("phone", "w", nil), quick("browser", "", nil), quick("browser", "w", map[string]any{"qubicAddress": "short"}),
		quick("browser", "w", map[string]any{"gpu": map[string]any{"type": "cuda"}}), quick("browser", "w", map[string]any{"pricePerHour": 0}),
	} {
		if status, answer := p.call(http.MethodPost, "/api/providers/quick-register", wrong); status != http.StatusBadRequest || answer["success"] != false {
			t.Errorf("%v is answered %d %v", wrong, status, answer)
		}
	}
	p.call(http.MethodGet, "/api/providers", nil)
	p.call(http.MethodGet, "/api/providers/native-1", nil)
	p.call(http.MethodGet, "/api/users/"+own, nil)
	p.transcript.lines = p.transcript.lines[:len(p.transcript.lines)-1] // its address is of this server
	p.transcript.golden(t, "quick.golden")
	if b := w.foreignWorker("Provider-browser-"); len(b.Kinds) != 1 || b.Kinds[0] != "foreign" || len(b.Resources.GPUs) != 0 || b.Price != 1 {
		t.Errorf("the browser is %+v", b)
	}
	if n := w.foreignWorker("Provider-native-1"); len(n.Resources.GPUs) != 1 || n.Price != 3 || n.Resources.CPUs != 8 {
		t.Errorf("the native client is %+v", n)
	}
}

// With key=required a worker brings its key in the path of --backend.
func TestKeyRequired(t *testing.T) {
	t.Parallel()
	w := newEnv(t, func(c *dialect.Config) { c.KeyRequired = true })
	key := func(role string) string {
		made, err := w.client.CreateKey(t.Context(), client.NewKey{Name: role, Role: role})
		if err != nil {
			t.Fatal(err)
		}
		return made.Secret
	}
	open := w.newClient()
	if status, answer := open.call(http.MethodGet, "/api/providers", nil); status != http.StatusUnauthorized || answer["success"] != false {
		t.Errorf("without a key: %d %v", status, answer)
	}
	with := func(token string) *fakeClient { return &fakeClient{tb: t, base: w.url + "/k/" + token} }
	worker := newEnhanced(with(key("join")), machine)
	worker.register()
	worker.heartbeat()
	stranger := newEnhanced(with(key("join")), machine)
	if status, _ := stranger.call(http.MethodPost, "/api/providers/register", stranger.registration()); status != http.StatusForbidden {
		t.Errorf("another key takes over the id: %d", status)
	}
	if status, _ := stranger.raw(http.MethodGet, "/api/jobs/pending/"+machine, nil); status != http.StatusForbidden {
		t.Errorf("another key asks for its jobs: %d", status)
	}
	submitter := with(key("submitter"))
	if status, _ := submitter.call(http.MethodPost, "/api/providers/register", worker.registration()); status != http.StatusForbidden {
		t.Errorf("a submitter's key registers a worker: %d", status)
	}
	status, made := submitter.call(http.MethodPost, "/api/jobs/create", map[string]any{"modelType": "custom_script", "computeNeeded": 1, "inputData": map[string]any{"script": "print(1)"}})
	if status != http.StatusOK {
		t.Fatalf("create: %d %v", status, made)
	}
	job := worker.runJob()
	if status := stranger.progress(field(job, "id"), 10, ""); status != http.StatusForbidden {
		t.Errorf("another key reports: %d", status)
	}
	worker.complete(field(job, "id"), "completed", map[string]any{"status": "success", "exitCode": 0}, nil, nil)
	if _, shown := submitter.call(http.MethodGet, "/api/jobs/"+field(made, "job", "id"), nil); field(shown, "status") != "COMPLETED" {
		t.Errorf("the job is %v", shown)
	}
}

// zeros is a body that does not end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// Whatever comes is answered in QUBIX's own format and has no effect on others.
func TestBadPeers(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	p := w.newClient()
	enhanced := newEnhanced(p, machine)
	enhanced.register()
	enhanced.heartbeat()
	id := w.submit(script("print(1)"))
	job := field(enhanced.runJob(), "id")
	enhanced.progress(job, 10, "")
	paths := []string{"/api/providers/register", "/api/providers/quick-register", "/api/providers/" + machine + "/heartbeat", "/api/jobs/" + job + "/progress", "/api/jobs/" + job + "/complete", "/api/jobs/create", "/api/auth/register"}
	bodies := []string{"", "{", "null", "[]", "7", `"text"`, "{\"worker_id\": {}, \"workerId\": [], \"progress\": \"half\", \"status\": 3, \"usage\": 1, \"modelType\": 1, \"email\": 1}", "\xff\xfe", "{}{}", strings.Repeat("[", 100000)}
	for _, path := range paths {
		for _, body := range bodies {
			status, answer := p.call(http.MethodPost, path, body)
			heartbeats := strings.HasSuffix(path, "/heartbeat") && status == http.StatusOK // null is a heartbeat that says nothing
			if !heartbeats && (status != http.StatusBadRequest || answer["success"] != false || field(answer, "error") == "" || strings.Contains(field(answer, "error"), "Go ")) {
				t.Errorf("%s with %.40q is answered %d %v", path, body, status, answer)
			}
		}
		if status, _ := p.raw(http.MethodPost, path, io.LimitReader(zeros{}, 100<<20)); status != http.StatusRequestEntityTooLarge && status != 0 {
			t.Errorf("%s with 100 MB is answered %d", path, status)
		}
	}
	for _, reg := range []map[string]any{
		{"worker_id": "", "name": "x"}, {"worker_id": strings.Repeat("x", 1000)}, {"worker_id": "a/../b"}, {"worker_id": "a\u0000b"}, {"name": "nobody"},
	} {
		if status, answer := p.call(http.MethodPost, "/api/providers/register", reg); status != http.StatusBadRequest {
			t.Errorf("%v is answered %d %v", reg, status, answer)
		}
	}
	odd := map[string]any{"worker_id": "odd-worker", "name": "\u001b[31m" + strings.Repeat("é", 5000), "pricePerHour": -5, "computePower": 1e300, "specs": map[string]any{
		"cpu_cores": -4, "ram_total_gb": 1e300, "gpu_available": true, "gpu_model": "A100\n", "gpu_vram_gb": -1, "storage_free_gb": nil,
	}}
	if status, answer := p.call(http.MethodPost, "/api/providers/register", odd); status != http.StatusOK {
		t.Errorf("a machine that cannot be is answered %d %v", status, answer)
	}
	for path, want := range map[string]int{
		"/api/jobs/nothing/progress":            http.StatusNotFound,
		"/api/jobs/nothing/complete":            http.StatusNotFound,
		"/api/providers/unknown-1234/heartbeat": http.StatusNotFound,
	} {
		body := map[string]any{"workerId": machine, "progress": 5, "status": "completed", "usage": map[string]any{}}
		if status, answer := p.call(http.MethodPost, path, body); status != want || answer["success"] != false {
			t.Errorf("%s is answered %d %v", path, status, answer)
		}
	}
	if status, text := p.raw(http.MethodGet, "/api/jobs/pending/unknown-1234", nil); status != http.StatusOK || strings.TrimSpace(string(text)) != "[]" {
		t.Errorf("the jobs of an unknown worker are %d %s", status, text)
	}
	for _, body := range []map[string]any{
		{"workerId": machine}, {"workerId": machine, "progress": -1}, {"workerId": machine, "progress": 101}, {"workerId": machine, "progress": nil},
	} {
		if status, _ := p.call(http.MethodPost, "/api/jobs/"+job+"/progress", body); status != http.StatusBadRequest {
			t.Errorf("progress %v is answered %d", body, status)
		}
	}
	if status, _ := p.call(http.MethodPost, "/api/jobs/"+job+"/complete", map[string]any{"workerId": "odd-worker", "status": "completed"}); status != http.StatusForbidden {
		t.Errorf("the report of another worker is answered %d", status)
	}
	if status, _ := p.call(http.MethodPost, "/api/jobs/"+job+"/complete", map[string]any{"workerId": machine, "status": "done"}); status != http.StatusBadRequest {
		t.Errorf("an invalid status is answered %d", status)
	}
	w.waitState(id, muster.Running)
	enhanced.complete(job, "completed", map[string]any{"status": "success", "exitCode": 0}, nil, nil)
	if task := w.waitState(id, muster.Succeeded); task.Attempt != 1 {
		t.Errorf("the job of an honest worker took %d attempts", task.Attempt)
	}
	big := w.submit(script("print(2)"))
	enhanced.complete(field(enhanced.runJob(), "id"), "completed", map[string]any{"status": "success", "data": strings.Repeat("x", muster.MaxResultSize)}, nil, nil)
	if task := w.waitState(big, muster.Failed); task.Reason != muster.ResultInvalid {
		t.Errorf("a result that is too large: %s %q", task.Reason, task.Message)
	}
}

// The gateway's options apply to its workers and its clients.
func TestOptionsOfTheGateway(t *testing.T) {
	t.Parallel()
	w := newEnv(t, func(c *dialect.Config) { c.Kinds, c.Price, c.Project = []string{"script", "foreign"}, 0.7, "lab" })
	p := w.newClient()
	silent := map[string]any{"worker_id": "names-no-price", "specs": map[string]any{"cpu_cores": 2, "ram_total_gb": 8}}
	if _, answer := p.call(http.MethodPost, "/api/providers/register", silent); answer["provider"].(map[string]any)["pricePerHour"] != 0.7 {
		t.Errorf("a worker that names no price is %v", answer)
	}
	enhanced := newEnhanced(p, machine)
	enhanced.register()
	enhanced.heartbeat()
	w.waitReady("Provider-7504b437", muster.KindScript)
	if own := w.foreignWorker("Provider-7504b437"); own.Price != 5 || strings.Join(own.Kinds, " ") != "script" || strings.Join(own.Projects, " ") != "lab" {
		t.Errorf("the worker is %+v", own)
	}
	if status, answer := p.call(http.MethodPost, "/api/jobs/create", map[string]any{"modelType": "mnist_training", "computeNeeded": 1}); status != http.StatusForbidden || !strings.Contains(field(answer, "error"), "script, foreign") {
		t.Errorf("a job of another kind is answered %d %v", status, answer)
	}
	_, made := p.call(http.MethodPost, "/api/jobs/create", map[string]any{"modelType": "custom_script", "computeNeeded": 1, "inputData": map[string]any{"script": "print(1)"}})
	number, _, _ := strings.Cut(field(made, "job", "id"), "-")
	id, err := muster.ParseJobID(number)
	if err != nil {
		t.Fatalf("create: %v", made)
	}
	if job, err := w.client.Job(t.Context(), id); err != nil || job.Project != "lab" {
		t.Errorf("the job is %+v, %v", job, err)
	}
	enhanced.complete(field(enhanced.runJob(), "id"), "completed", map[string]any{"status": "success", "exitCode": 0}, nil, nil)
	w.waitState(id, muster.Succeeded)
	other := w.submit(script("print(2)")) // of project default
	if job := enhanced.poll(); job != nil || w.task(other).State != muster.Queued {
		t.Errorf("a job of another project is offered as %v", job)
	}
	for name, value := range map[string]string{"silence": "0s", "busy": "soon", "lost": "-5m"} {
		config := dialect.Config{Name: "qubix", Address: "127.0.0.1:0", Options: map[string]string{name: value}}
		if _, err := qubix.System().New(t.Context(), dialect.Deps{Config: config, Dir: t.TempDir(), Log: testkit.Logger(t)}); muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s is refused with %v", name, value, err)
		}
	}
}
