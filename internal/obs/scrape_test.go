//go:build unix

package obs_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/obs"
)

// family is the name of a series' family.
func family(series string, known map[string]bool) string {
	name, _, _ := strings.Cut(series, "{")
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base := strings.TrimSuffix(name, suffix); base != name && known[base] {
			return base
		}
	}
	return name
}

// TestScrape runs tasks on a server and a worker and reads both their metrics.
func TestScrape(t *testing.T) {
	serverAddr, workerAddr := mustertest.ReservePort(t), mustertest.ReservePort(t)
	c := mustertest.NewWith(t, t.TempDir(), mustertest.Options{TLS: true, Flags: []string{"--metrics", serverAddr}})
	c.StartWorker("w", t.TempDir(), "--metrics", workerAddr)
	good := c.Submit(mustertest.ShellSpec("good", `echo hello; printf %1000s > "$MUSTER_OUT/file.txt"; sleep 2.2`)) // two heartbeats
	bad := c.Submit(mustertest.ShellSpec("bad", "exit 3"))
	c.Wait(good.ID, time.Minute)
	c.Wait(bad.ID, time.Minute)
	stuck := mustertest.ShellSpec("stuck", "true")
	stuck.Tasks[0].Where = muster.Where{Tags: []string{"nowhere"}}
	c.Submit(stuck)

	var server, worker samples
	c.Await("the metrics say what happened", 30*time.Second, func() error {
		server, _ = scrape(t, "http://"+serverAddr+"/metrics", "")
		worker, _ = scrape(t, "http://"+workerAddr+"/metrics", "")
		if server["muster_retention_last_pass_timestamp_seconds"] == 0 {
			return errors.New("the first retention pass has not ended")
		}
		return errors.Join(server.check(map[string]float64{
			`muster_jobs_submitted_total`:                                                3,
			`muster_tasks{state="succeeded"}`:                                            1,
			`muster_tasks{state="failed"}`:                                               1,
			`muster_tasks{state="queued"}`:                                               1,
			`muster_tasks{state="running"}`:                                              0,
			`muster_task_transitions_total{state="queued"}`:                              3,
			`muster_task_transitions_total{state="assigned"}`:                            2,
			`muster_task_transitions_total{state="succeeded"}`:                           1,
			`muster_task_transitions_total{state="failed"}`:                              1,
			`muster_attempts_ended_total{outcome="succeeded",reason="none"}`:             1,
			`muster_attempts_ended_total{outcome="failed",reason="exit_code"}`:           1,
			`muster_attempt_run_duration_seconds_count`:                                  2,
			`muster_attempt_queue_duration_seconds_count`:                                2,
			`muster_lease_expirations_total`:                                             0,
			`muster_workers{state="active"}`:                                             1,
			`muster_link_sessions`:                                                       1,
			`muster_link_sessions_opened_total`:                                          1,
			`muster_engine_ready`:                                                        1,
			`muster_engine_commit_failures_total`:                                        0,
			`muster_blob_bytes_total{direction="in"}`:                                    1000,
			`muster_http_requests_total{code="201",method="POST",route="/api/v1/jobs"}`:  3,
			`muster_http_requests_total{code="200",method="POST",route="/link/v1/join"}`: 1,
			`muster_http_request_duration_seconds_count{route="/api/v1/jobs"}`:           3,
		}), worker.check(map[string]float64{
			`muster_worker_connected`:                                                          1,
			`muster_worker_link_sessions_opened_total`:                                         1,
			`muster_worker_lease_expirations_total`:                                            0,
			`muster_worker_log_pending_bytes`:                                                  0,
			`muster_worker_constrained`:                                                        0,
			`muster_worker_attempts_total{kind="process",outcome="succeeded",reason="none"}`:   1,
			`muster_worker_attempts_total{kind="process",outcome="failed",reason="exit_code"}`: 1,
			`muster_worker_attempt_duration_seconds_count{kind="process"}`:                     2,
			`muster_worker_running_attempts{kind="process"}`:                                   0,
			`muster_worker_attempts_executing`:                                                 0,
			`muster_worker_attempts_held`:                                                      0,
			`muster_worker_reports_total{result="recorded"}`:                                   2,
			`muster_worker_transfer_bytes_total{direction="out"}`:                              1000,
		}))
	})
	for series, minimum := range map[string]float64{
		`muster_lease_renewals_total`:                 1,
		`muster_log_received_bytes_total`:             6,
		`muster_engine_events_total`:                  5,
		`muster_engine_commit_duration_seconds_count`: 5,
		`muster_engine_batch_size_count`:              5,
		`muster_events_published_total{type="task"}`:  4,
		`muster_link_frames_total{direction="in"}`:    5,
		`muster_link_frames_total{direction="out"}`:   3,
		`muster_attempt_run_duration_seconds_sum`:     2.2,
		`muster_queue_oldest_task_age_seconds`:        0.001,
		`muster_store_size_bytes`:                     4096,
		`muster_data_disk_free_bytes`:                 1,
		`muster_fleet_cpus`:                           1,
		`go_goroutines`:                               1,
		`process_start_time_seconds`:                  1,
	} {
		if server[series] < minimum {
			t.Errorf("server: %s is %v, want %v at least", series, server[series], minimum)
		}
	}
	for series, minimum := range map[string]float64{
		`muster_worker_memory_used_bytes`: 1 << 20, `muster_worker_cpus`: 1, `muster_worker_disk_free_bytes`: 1, `muster_worker_cache_budget_bytes`: 1 << 20,
		`go_goroutines`: 1, `muster_worker_log_sent_bytes_total`: 6,
	} {
		if worker[series] < minimum {
			t.Errorf("worker: %s is %v, want %v at least", series, worker[series], minimum)
		}
	}
	checkFamilies(t, server, worker)
	checkAccess(t, c.URL+"/metrics", server)
}

// checkFamilies checks that exactly the documented metrics are scraped, except those of GPUs and bridges.
func checkFamilies(t *testing.T, server, worker samples) {
	t.Helper()
	known, seen := map[string]bool{}, map[string]bool{}
	for _, f := range obs.Families() {
		known[f.Name] = true
	}
	for _, scraped := range []samples{server, worker} {
		for series := range scraped {
			if name := family(series, known); strings.HasPrefix(name, "muster_") {
				seen[name] = true
				if !known[name] {
					t.Errorf("%s is not in docs/metrics.md", name)
				}
			}
			for _, id := range []string{"good", "stuck", "w-"} { // of jobs and workers
				if strings.Contains(series, `"`+id) {
					t.Errorf("%s has a label that is not bounded", series)
				}
			}
		}
	}
	for name := range known {
		if !seen[name] && !strings.HasPrefix(name, "muster_gpu_") && !strings.HasPrefix(name, "muster_bridge_") {
			t.Errorf("%s is in docs/metrics.md, but in no scrape", name)
		}
	}
}

// checkAccess checks who may read the metrics on the port of the API.
func checkAccess(t *testing.T, url string, want samples) {
	t.Helper()
	if _, status := scrape(t, url, ""); status != http.StatusUnauthorized {
		t.Errorf("without a key: %d, want 401", status)
	}
	if _, status := scrape(t, url, mustertest.JoinToken); status != http.StatusForbidden {
		t.Errorf("with a join token: %d, want 403", status)
	}
	got, status := scrape(t, url, mustertest.AdminToken)
	if status != http.StatusOK || got[`muster_jobs_submitted_total`] != want[`muster_jobs_submitted_total`] {
		t.Errorf("with the admin token: %d, %v", status, got[`muster_jobs_submitted_total`])
	}
}

// TestScrapeBridges runs a job of a foreign server by muster worker NAME and one by muster bridge NAME, and reads the metrics of both. The worker also
// sends traces.
func TestScrapeBridges(t *testing.T) {
	foreign, workerAddr, bridgeAddr := mustertest.ReservePort(t), mustertest.ReservePort(t), mustertest.ReservePort(t)
	outer := mustertest.NewWith(t, t.TempDir(), mustertest.Options{Flags: []string{"--dialect", "qubix=" + foreign}})
	var spans atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/traces" {
			spans.Add(r.ContentLength)
		}
	}))
	t.Cleanup(collector.Close)
	env := []string{"MUSTER_DATA=" + t.TempDir(), "MUSTER_METRICS=" + workerAddr, "MUSTER_OTLP=" + collector.URL}
	run := func(worker string) {
		t.Helper()
		outer.Await(worker+" is a worker", time.Minute, func() error {
			_, err := outer.Client.Worker(t.Context(), worker)
			return err
		})
		spec := muster.TaskSpec{Script: &muster.Script{Text: "print(40 + 2)", Interpreter: []string{"python3"}}, Where: muster.Where{Workers: []string{worker}}}
		if end := outer.Wait(outer.Submit(&muster.Spec{Tasks: []muster.TaskSpec{spec}}).ID, time.Minute); end.State != muster.JobSucceeded {
			t.Errorf("the job on %s ended as %s: %+v", worker, end.State, outer.Tasks(end.ID))
		}
	}
	counted := map[string]float64{
		`muster_bridge_jobs_accepted_total`:              1,
		`muster_bridge_jobs_pending`:                     0,
		`muster_bridge_reports_total{result="accepted"}`: 1,
		`muster_bridge_reports_total{result="refused"}`:  0,
	}
	dropIn := mustertest.StartMuster(t, "dropin", env, "worker", "qubix", "--backend", "http://"+foreign, "--name", "desk")
	run("desk")
	outer.Await("the worker's metrics say so", 30*time.Second, func() error {
		got, _ := scrape(t, "http://"+workerAddr+"/metrics", "")
		return errors.Join(got.check(counted), got.check(map[string]float64{`muster_tasks{state="succeeded"}`: 1, `muster_worker_connected`: 1}))
	})
	dropIn.Signal(os.Interrupt)
	if code := dropIn.WaitExit(time.Minute); code != 0 || spans.Load() == 0 {
		t.Errorf("the worker ended with exit code %d and sent %d bytes of traces", code, spans.Load())
	}
	inner := mustertest.New(t, t.TempDir())
	inner.StartWorker("w", t.TempDir())
	mustertest.StartMuster(t, "bridge", []string{"MUSTER_TOKEN=" + mustertest.AdminToken}, "bridge", "qubix", "--server", "http://"+inner.Addr, "--data", t.TempDir(),
		"--backend", "http://"+foreign, "--name", "fleet", "--metrics", bridgeAddr)
	run("fleet")
	outer.Await("the bridge's metrics say so", 30*time.Second, func() error {
		got, _ := scrape(t, "http://"+bridgeAddr+"/metrics", "")
		return got.check(counted)
	})
}
