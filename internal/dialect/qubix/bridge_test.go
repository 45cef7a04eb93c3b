package qubix_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/dialect/dialecttest"
	"github.com/muster-dev/muster/internal/dialect/qubix"
	"github.com/muster-dev/muster/internal/testkit"
)

// provider is the id of every bridge under test.
const provider = "00112233aabbccdd"

// config is that of a bridge of w's fleet, at a hundredth of the pace of QUBIX's worker.
func (w *env) bridgeConfig(backend, dir string) qubix.BridgeConfig {
	return qubix.BridgeConfig{
		Backend: backend, Price: 2.5, Name: "My Gaming PC", Location: "US East (Virginia)", ID: provider, Version: "test", PollInterval: 50 * time.Millisecond,
		Core: bridge.Config{Client: w.client, Dir: dir, Log: testkit.Logger(w.tb), RetryDelay: 20 * time.Millisecond},
	}
}

// startBridge runs a bridge until it is stopped, as by kill -9: nothing more is reported.
func startBridge(tb testing.TB, cfg qubix.BridgeConfig) (stop func()) {
	tb.Helper()
	b, err := qubix.NewBridge(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return dialecttest.Background(tb, func(ctx context.Context) error { return b.Run(ctx, ctx) })
}

func newBackend(tb testing.TB) *fakeBackend {
	tb.Helper()
	return &fakeBackend{tb: tb, users: map[string]bool{}, providers: map[string]map[string]any{}, broken: map[string]int{}, locked: map[string]int{}, largest: map[string]int64{}}
}

func startBackend(tb testing.TB, change func(*fakeBackend)) (*fakeBackend, string) {
	tb.Helper()
	b := newBackend(tb)
	if change != nil {
		change(b)
	}
	s := httptest.NewServer(b.handler())
	tb.Cleanup(s.Close)
	return b, s.URL
}

// The mock server of QUBIX: it registers anyone and offers every job that waits.
func TestBridgeServesTheMockServer(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	w.worker("own")
	b, url := startBackend(t, nil)
	good := b.add("", map[string]any{"id": "job-1", "jobType": "custom_script", "inputData": map[string]any{"script": "import time\nprint('hello', flush=True)\ntime.sleep(0.5)"}})
	bad := b.add("", map[string]any{"id": "job-2", "jobType": "custom_script", "inputData": map[string]any{"script": "raise ValueError('no')"}})
	echo := b.add("", map[string]any{"id": "job-3", "jobType": "echo", "inputData": map[string]any{"a": 1}})
	none := b.add("", map[string]any{"id": "job-4", "modelType": "video", "computeNeeded": 2})
	startBridge(t, w.bridgeConfig(url, t.TempDir()))

	report := b.waitReports(good)
	if len(report) != 1 || report[0]["status"] != "completed" || report[0]["workerId"] != provider || report[0]["worker_id"] != provider {
		t.Fatalf("the reports of a script are %v", report)
	}
	if result, _ := report[0]["result"].(map[string]any); fmt.Sprint(result["stdout"]) != "[hello]" || result["exitCode"] != 0.0 || result["status"] != "success" {
		t.Errorf("its result is %v", result)
	}
	if seconds := report[0]["metrics"].(map[string]any)["processingTimeSeconds"]; seconds == nil || seconds.(float64) <= 0 {
		t.Errorf("its metrics are %v", report[0]["metrics"])
	}
	b.mu.Lock()
	progress := fmt.Sprint(good.progress)
	b.mu.Unlock()
	if !strings.Contains(progress, "hello") || !strings.Contains(progress, "currentOperation:") {
		t.Errorf("its progress was %s", progress)
	}
	report = b.waitReports(bad)
	message, _ := report[0]["error"].(string)
	if report[0]["status"] != "failed" || !strings.HasPrefix(message, "Script failed with exit code 1: Traceback") || !strings.Contains(fmt.Sprint(report[0]["result"]), "errorDetails:Traceback") {
		t.Errorf("the failure is reported as %v", report[0])
	}
	if report = b.waitReports(echo); !strings.Contains(fmt.Sprint(report[0]["result"]), "a:1") {
		t.Errorf("the echo is reported as %v", report[0])
	}
	if report = b.waitReports(none); report[0]["status"] != "failed" || !strings.Contains(fmt.Sprint(report[0]["error"]), "No script content") {
		t.Errorf("a job that no worker can run is reported as %v", report[0])
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.providers[provider]
	if r["name"] != "My Gaming PC" || r["location"] != "US East (Virginia)" || r["pricePerHour"] != 2.5 || r["computePower"].(float64) <= 0 || b.beats == 0 {
		t.Errorf("it registered as %v", r)
	}
	for _, word := range []string{"heartbeat", "progress", "complete"} {
		if n := b.largest[word]; n <= 0 || n > 1000 {
			t.Errorf("a body of %s has %d bytes", word, n)
		}
	}
}

// The TS backend answers 301 to the registration of workers and requires quick-register for an existing user.
func TestBridgeServesTheTSBackend(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	w.worker("own")
	b, url := startBackend(t, func(b *fakeBackend) {
		b.typescript, b.limited = true, 2
		b.users[address] = true
	})
	j := b.add(provider, map[string]any{"id": "cuid-1", "jobType": "hash", "inputData": map[string]any{"data": "abc"}})
	cancelled := b.add(provider, map[string]any{"id": "cuid-2", "jobType": "custom_script", "inputData": map[string]any{"script": "import time\ntime.sleep(60)"}})
	cfg := w.bridgeConfig(url, t.TempDir())
	cfg.Address = address
	startBridge(t, cfg)
	if report := b.waitReports(j); len(report) != 1 || !strings.Contains(fmt.Sprint(report[0]["result"]), "ba7816bf") {
		t.Errorf("the reports are %v", report)
	}
	testkit.Await(t, "the second job runs", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(cancelled.progress) > 0
	})
	b.mu.Lock()
	cancelled.row["status"] = "CANCELLED"
	b.mu.Unlock()
	if report := b.waitReports(cancelled); report[0]["status"] != "failed" || !strings.Contains(fmt.Sprint(report[0]["error"]), "cancel") {
		t.Errorf("the job that the backend cancelled is reported as %v", report[0])
	}
}

// The error for a backend that refuses registrations says what to do.
func TestBridgeSaysWhyABackendRefuses(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	w.worker("own")
	noUser := newBackend(t)
	noUser.typescript = true
	for name, tc := range map[string]struct {
		address string
		handler http.HandlerFunc
		want    string
	}{
		"no address":  {"", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMovedPermanently) }, "start again with --address"},
		"no user":     {address, noUser.handler().ServeHTTP, "Create one"},
		"not allowed": {"", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, "HTTP 403"},
		"no QUBIX":    {"", http.NotFound, "HTTP 404"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(tc.handler)
			defer s.Close()
			cfg := w.bridgeConfig(s.URL, t.TempDir())
			cfg.Address = tc.address
			b, err := qubix.NewBridge(cfg)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			if err := b.Run(ctx, ctx); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("it ends with %v", err)
			}
		})
	}
	for _, wrong := range []qubix.BridgeConfig{{Backend: "localhost"}, {Price: -1}, {Address: "abc"}, {ID: "a b"}, {Name: strings.Repeat("x", 500)}} {
		wrong.Core = bridge.Config{Dir: t.TempDir(), Log: testkit.Logger(t)}
		if _, err := qubix.NewBridge(wrong); muster.CodeOf(err) != muster.Invalid {
			t.Errorf("%+v is refused with %v", wrong, err)
		}
	}
}

// The answer to a final report is lost: the same report is sent again. QUBIX's worker would report a failure.
func TestFinalReportIsRepeatedAsItWas(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	w.worker("own")
	b, url := startBackend(t, nil)
	b.broken["job-1"] = 2
	j := b.add("", map[string]any{"id": "job-1", "jobType": "echo", "inputData": map[string]any{"a": 1}})
	startBridge(t, w.bridgeConfig(url, t.TempDir()))
	testkit.Await(t, "the report is repeated", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(j.completed) == 3
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, report := range j.completed {
		if report["status"] != "completed" || report["error"] != nil {
			t.Errorf("a report says %v", report)
		}
	}
}

// A key that the backend refuses for a while costs no final report.
func TestFinalReportOutlastsARefusedKey(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	w.worker("own")
	b, url := startBackend(t, nil)
	b.locked["job-1"] = 3
	j := b.add("", map[string]any{"id": "job-1", "jobType": "echo", "inputData": map[string]any{"a": 1}})
	startBridge(t, w.bridgeConfig(url, t.TempDir()))
	if report := b.waitReports(j); len(report) != 1 || report[0]["status"] != "completed" {
		t.Errorf("the reports are %v", report)
	}
}

// A server that offers the same job forever gets one report of it; one that lost its providers is registered with again.
func TestBackendThatForgetsAndRepeats(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	w.worker("own")
	b, url := startBackend(t, func(b *fakeBackend) {
		b.typescript, b.forever = true, true
		b.users[address] = true
	})
	j := b.add(provider, map[string]any{"id": "cuid-1", "jobType": "echo", "inputData": map[string]any{"a": 1}})
	cfg := w.bridgeConfig(url, t.TempDir())
	cfg.Address = address
	startBridge(t, cfg)
	b.waitReports(j)
	b.mu.Lock()
	j.row["status"] = "ASSIGNED"
	clear(b.providers)
	beats := b.beats
	b.mu.Unlock()
	testkit.Await(t, "it registers again", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.providers) == 1 && b.beats > beats+3
	})
	if report := b.waitReports(j); len(report) != 1 {
		t.Errorf("the job was reported %d times", len(report))
	}
	n := 0
	for job, err := range w.client.Jobs(t.Context(), client.JobQuery{Labels: map[string]string{"qubix.job": "cuid-1"}}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		_ = job
	}
	if n != 1 {
		t.Errorf("the job was submitted %d times", n)
	}
}

// Our bridge against our gateway, with real work, while bridge and gateway stop and start: each job has one report, of one attempt.
func TestBridgeAgainstGateway(t *testing.T) {
	t.Parallel()
	front, back := newEnv(t, nil), newEnv(t, nil)
	back.worker("own")
	dir := t.TempDir()
	cfg := back.bridgeConfig(front.url, filepath.Join(dir, "bridge"))
	stop := startBridge(t, cfg)
	own := front.foreignWorker("My Gaming PC")
	if own.Labels["qubix.worker"] != "muster" || own.Price != 2.5 || own.Resources.MaxTasks != 2 || slices.Contains(own.UnsupportedFeatures, "cancel") {
		t.Errorf("the bridge is %+v", own)
	}
	counts := filepath.Join(dir, "counts")
	slow := script("import time, os\nprint('begin', flush=True)\ntime.sleep(1)\nprint('end')")
	slow.Env = map[string]string{"COUNTS": counts} // passed on by a bridge of ours only
	kinds := map[string]muster.TaskSpec{
		"echo": {Kind: "echo", Input: json.RawMessage(`{"n":1}`)},
		"hash": {Kind: "hash", Input: json.RawMessage(`{"data":"abc"}`)},
		"test": {Kind: "test", Run: &muster.Command{Shell: `printf '<testsuite><testcase name="a"/></testsuite>' > r.xml`}, Input: json.RawMessage(`{"junit":"r.xml"}`)},
		"slow": slow,
		"fail": script("import sys\nsys.exit(4)"),
	}
	ids := map[string]muster.JobID{}
	for name, t := range kinds {
		ids[name] = front.submit(t)
	}
	front.waitState(ids["slow"], muster.Running)
	stop() // the bridge is killed, and starts again
	stop = startBridge(t, cfg)
	front.stop() // then the gateway with its server
	front.start()
	if task := front.waitState(ids["echo"], muster.Succeeded); !strings.Contains(string(task.Result), `"n":1`) {
		t.Errorf("echo: %s", task.Result)
	}
	if task := front.waitState(ids["hash"], muster.Succeeded); !strings.Contains(string(task.Result), "ba7816bf") {
		t.Errorf("hash: %s", task.Result)
	}
	front.waitState(ids["test"], muster.Succeeded)
	if task := front.waitState(ids["slow"], muster.Succeeded); !strings.Contains(front.fullLog(ids["slow"]), "begin") || strings.Count(front.fullLog(ids["slow"]), "end") != 1 {
		t.Errorf("slow: %s, log %q", task.Result, front.fullLog(ids["slow"]))
	}
	if task := front.waitState(ids["fail"], muster.Failed); task.ExitCode == nil || *task.ExitCode != 4 {
		t.Errorf("fail: %v %q", task.ExitCode, task.Message)
	}
	for name, id := range ids {
		attempts, err := front.client.Attempts(t.Context(), muster.TaskID{Job: id})
		if err != nil {
			t.Fatal(err)
		}
		// An assignment sent while a registration replaces the worker's session is lost, and its attempt never starts.
		started := slices.DeleteFunc(attempts, func(a muster.Attempt) bool { return a.StartedAt == 0 })
		if len(started) != 1 {
			t.Errorf("%s: %d attempts were started, not one: %+v", name, len(started), started)
		}
	}
	jobs := 0
	for _, err := range back.client.Jobs(t.Context(), client.JobQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		jobs++
	}
	if jobs != len(kinds) {
		t.Errorf("%d jobs became %d", len(kinds), jobs)
	}
	// A task that is cancelled in front ends behind, too.
	long := front.submit(script("import time\ntime.sleep(120)"))
	front.waitState(long, muster.Running)
	if _, err := front.client.Cancel(t.Context(), long, nil); err != nil {
		t.Fatal(err)
	}
	front.waitState(long, muster.Cancelled)
	testkit.Await(t, "the job is cancelled behind", func() bool {
		for job, err := range back.client.Jobs(t.Context(), client.JobQuery{States: []muster.JobState{muster.JobCancelled}}) {
			return err == nil && job.State == muster.JobCancelled
		}
		return false
	})
	testkit.Await(t, "the bridge is free again", func() bool { return front.foreignWorker("My Gaming PC").Constrained == "" })
	stop()
}

// With --each every worker is a provider. The mock server offers each job to all of them: one accepts it.
func TestEachWorkerAsAProvider(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	w.worker("own-1")
	w.worker("own-2")
	b, url := startBackend(t, nil)
	var jobs []*backendJob
	for i := range 8 {
		jobs = append(jobs, b.add("", map[string]any{"id": fmt.Sprintf("job-%d", i), "jobType": "echo", "inputData": map[string]any{"n": i}}))
	}
	jobs = append(jobs, b.add("", map[string]any{"id": "job-9", "modelType": "video", "computeNeeded": 2}))
	shared := qubix.NewClaims()
	for i, id := range []string{"aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"} {
		cfg := w.bridgeConfig(url, t.TempDir())
		cfg.ID, cfg.Claims, cfg.Core.Worker = id, shared, fmt.Sprintf("own-%d", i+1)
		cfg.Name = cfg.Core.Worker
		startBridge(t, cfg)
	}
	providers := map[any]int{}
	for _, j := range jobs {
		providers[b.waitReports(j)[0]["workerId"]]++
	}
	if len(providers) != 2 {
		t.Errorf("the jobs were run by %v", providers)
	}
	b.mu.Lock()
	beats := b.beats
	b.mu.Unlock()
	testkit.Await(t, "both ask again", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.beats > beats+3
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, j := range jobs {
		if len(j.completed) != 1 {
			t.Errorf("%v was reported %d times", j.row["id"], len(j.completed))
		}
	}
	made := 0
	for _, err := range w.client.Jobs(t.Context(), client.JobQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		made++
	}
	if made != 8 {
		t.Errorf("8 jobs that can be run became %d", made)
	}
}

// The backend knows what the fleet has, also when that changes; a job that no worker can run is reported at once.
func TestBackendLearnsTheFleet(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	w.worker("own-1")
	b, url := startBackend(t, nil)
	startBridge(t, w.bridgeConfig(url, t.TempDir()))
	cores := func() float64 {
		b.mu.Lock()
		defer b.mu.Unlock()
		specs, _ := b.providers[provider]["specs"].(map[string]any)
		n, _ := specs["cpu_cores"].(float64)
		return n
	}
	testkit.Await(t, "the first worker is registered", func() bool { return cores() > 0 })
	one := cores()
	w.worker("own-2")
	testkit.Await(t, "both are", func() bool { return cores() == 2*one })
	b.mu.Lock()
	beats := b.beats
	b.mu.Unlock()
	testkit.Await(t, "it continues", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.beats > beats+3
	})
	if b.mu.Lock(); b.registrations > 3 {
		t.Errorf("it registered %d times", b.registrations)
	}
	b.mu.Unlock()
	none := b.add("", map[string]any{"id": "job-1", "jobType": "container", "muster": map[string]any{"kind": "container", "image": "debian"}})
	if report := b.waitReports(none); report[0]["status"] != "failed" || !strings.Contains(fmt.Sprint(report[0]["error"]), "no worker here runs jobs of kind container") {
		t.Errorf("a job that no worker runs is reported as %v", report[0])
	}
}

// A job may take long to prepare, for example to install packages. The bridge sends no report before the first line of its log, and then
// checks whether the backend cancelled the job.
func TestProgressBeforeTheStart(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	fake, url := startBackend(t, nil)
	j := fake.add("", map[string]any{"id": "job-1", "jobType": "echo"})
	b, err := qubix.NewBridge(w.bridgeConfig(url, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	waiting := []muster.Task{{State: muster.Assigned}}
	countReports := func() int {
		fake.mu.Lock()
		defer fake.mu.Unlock()
		return len(j.progress)
	}
	if err := b.Progress(t.Context(), bridge.Job{ID: "job-1"}, muster.Job{}, waiting); err != nil || countReports() != 0 {
		t.Errorf("before anything: %v, %d reports", err, countReports())
	}
	if err := b.Log(t.Context(), bridge.Job{ID: "job-1"}, []string{"installing"}); err != nil || countReports() != 1 {
		t.Errorf("its log: %v, %d reports", err, countReports())
	}
	if err := b.Progress(t.Context(), bridge.Job{ID: "job-1"}, muster.Job{}, waiting); err != nil || countReports() != 2 {
		t.Errorf("after its log: %v, %d reports", err, countReports())
	}
}
