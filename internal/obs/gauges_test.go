package obs_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/obs"
	"github.com/muster-dev/muster/internal/sched"
)

// scrapeRegistry scrapes a registry.
func scrapeRegistry(t *testing.T, r *obs.Registry) samples {
	t.Helper()
	server := httptest.NewServer(r.Handler(slog.New(slog.DiscardHandler)))
	defer server.Close()
	got, status := scrape(t, server.URL, "")
	if status != http.StatusOK {
		t.Fatalf("a scrape answers %d", status)
	}
	return got
}

// A wait is observed when it is over, not when the attempt ends days later.
func TestQueueWaitsAreObserved(t *testing.T) {
	registry := obs.NewRegistry(obs.Build{})
	metrics := obs.NewServer(registry, nil)
	b := testBatch()
	b.Effects.AttemptsEnded = nil
	metrics.ObserveBatch(&b)
	b.Effects.Commands, b.Effects.AttemptsStarted = nil, nil
	metrics.ObserveBatch(&b)
	if err := scrapeRegistry(t, registry).check(map[string]float64{
		`muster_attempt_queue_duration_seconds_count`: 1,
		`muster_attempt_queue_duration_seconds_sum`:   2,
		`muster_attempt_start_duration_seconds_count`: 1,
		`muster_attempt_start_duration_seconds_sum`:   0.001,
		`muster_attempt_run_duration_seconds_count`:   0,
	}); err != nil {
		t.Error(err)
	}
}

func TestFleetGauges(t *testing.T) {
	gpu := func(quarantined string) muster.GPU { return muster.GPU{Memory: 10, Quarantined: quarantined} }
	p := sched.FleetSnapshot{
		At: 60_000,
		Workers: []sched.WorkerSnapshot{
			{
				State: muster.WorkerActive, Offers: &muster.Resources{CPUs: 8, Memory: 100, Slots: 16, GPUs: []muster.GPU{gpu(""), gpu(""), gpu("it is hot")}},
				GPUTasks: []int{2, 0, 0}, Reserved: sched.FleetResources{CPUs: 3, Memory: 40, Slots: 1, GPUs: 1, GPUMemory: 7},
				Load: &muster.Load{GPUs: []muster.GPULoad{{Power: new(100.5)}, {}, {Power: new(20.0)}}},
			},
			{State: muster.WorkerActive, Offers: &muster.Resources{CPUs: 1}, Constrained: "its disk is full"},
			{State: muster.WorkerActive, Offers: &muster.Resources{CPUs: 1}, Avoided: "attempts fail there"},
			{State: muster.WorkerDraining, Offers: &muster.Resources{CPUs: 1}, Avoided: "is draining"},
			{State: muster.WorkerUnreachable, Offers: &muster.Resources{CPUs: 64, GPUs: []muster.GPU{gpu("")}}, Reserved: sched.FleetResources{CPUs: 2}},
			{State: muster.WorkerGone, Offers: &muster.Resources{CPUs: 64}},
		},
		Failing: make([]sched.FailingJob, 2),
		All:     sched.Workload{Oldest: &sched.OldestTask{QueuedAt: 15_000}},
	}
	p.All.Counts[muster.Running] = 5
	registry := obs.NewRegistry(obs.Build{Version: "v1", Revision: "abc"})
	obs.NewServer(registry, func(context.Context) obs.ServerSample {
		return obs.ServerSample{Inbox: 4, Sessions: 3, Disk: obs.DiskUsage{Free: 1, Size: 2}, Removals: obs.Removals{Waiting: 5, LastPass: 7000}, Ends: map[string]time.Time{"server": time.Unix(99, 0), "a.example.com": {}}, Fleet: &p}
	})
	got := scrapeRegistry(t, registry)
	if err := got.check(map[string]float64{
		`muster_tasks{state="running"}`: 5, `muster_queue_oldest_task_age_seconds`: 45, `muster_jobs_failing`: 2,
		`muster_workers{state="active"}`: 3, `muster_workers{state="draining"}`: 1, `muster_workers{state="unreachable"}`: 1, `muster_workers{state="gone"}`: 1, `muster_workers{state="paused"}`: 0,
		`muster_workers_constrained`: 1, `muster_workers_avoided`: 1,
		`muster_gpus{state="in_use"}`: 1, `muster_gpus{state="free"}`: 1, `muster_gpus{state="quarantined"}`: 1, `muster_gpus{state="unavailable"}`: 1,
		`muster_fleet_cpus`: 11, `muster_fleet_cpus_reserved`: 5, `muster_fleet_memory_bytes`: 100, `muster_fleet_memory_reserved_bytes`: 40,
		`muster_fleet_gpu_memory_bytes`: 30, `muster_fleet_gpu_memory_reserved_bytes`: 7, `muster_fleet_gpus_reserved`: 1, `muster_fleet_slots`: 16, `muster_fleet_slots_reserved`: 1,
		`muster_fleet_gpu_power_watts`: 120.5, `muster_engine_ready`: 1, `muster_engine_inbox_events`: 4, `muster_link_sessions`: 3, `muster_data_disk_free_bytes`: 1, `muster_data_disk_size_bytes`: 2,
		`muster_retention_waiting_jobs`: 5, `muster_retention_last_pass_timestamp_seconds`: 7,
		`muster_certificate_expiry_timestamp_seconds{certificate="server"}`: 99, `muster_certificate_expiry_timestamp_seconds{certificate="a.example.com"}`: 0,
	}); err != nil {
		t.Error(err)
	}
	if _, ok := got[`muster_store_size_bytes`]; ok {
		t.Error("a size that is not known is shown")
	}
}

// TestEngineDoesNotRespond checks that unknown values are omitted.
func TestEngineDoesNotRespond(t *testing.T) {
	registry := obs.NewRegistry(obs.Build{})
	obs.NewServer(registry, func(context.Context) obs.ServerSample { return obs.ServerSample{} })
	got := scrapeRegistry(t, registry)
	if err := got.check(map[string]float64{`muster_engine_ready`: 0}); err != nil {
		t.Error(err)
	}
	for _, name := range []string{`muster_tasks{state="running"}`, `muster_workers{state="active"}`, `muster_queue_oldest_task_age_seconds`, `muster_retention_last_pass_timestamp_seconds`} {
		if v, ok := got[name]; ok {
			t.Errorf("%s is %v, want no value", name, v)
		}
	}
}

func TestDeviceGauges(t *testing.T) {
	registry := obs.NewRegistry(obs.Build{})
	m := obs.NewWorker(registry, func(context.Context) obs.WorkerSample {
		return obs.WorkerSample{GPUs: []obs.Device{
			{
				GPU:  muster.GPU{UUID: "GPU-a", Index: 0, Vendor: "nvidia", Name: "H100 \"PCIe\"", Memory: 80 << 30},
				Load: muster.GPULoad{Utilization: new(0.5), Memory: new(muster.Size(40 << 30)), Temperature: new(61.0), Power: new(300.0)},
			},
			{GPU: muster.GPU{UUID: "GPU-b", Index: 1, Vendor: "amd", Name: "MI300X", Memory: 192 << 30, Quarantined: "a process holds its memory"}},
		}}
	})
	m.AttemptEnded("process", &muster.Report{Outcome: muster.AttemptSucceeded, Usage: &muster.Usage{EnergyWh: 2, CPUSeconds: 3}}, 0)
	m.CacheLookup(true)
	got := scrapeRegistry(t, registry)
	if err := got.check(map[string]float64{
		`muster_gpu_info{gpu="0",name="H100 \"PCIe\"",uuid="GPU-a",vendor="nvidia"}`: 1,
		`muster_gpu_info{gpu="1",name="MI300X",uuid="GPU-b",vendor="amd"}`:           1,
		`muster_gpu_utilization_ratio{gpu="0",uuid="GPU-a"}`:                         0.5,
		`muster_gpu_memory_used_bytes{gpu="0",uuid="GPU-a"}`:                         40 << 30,
		`muster_gpu_memory_bytes{gpu="1",uuid="GPU-b"}`:                              192 << 30,
		`muster_gpu_temperature_celsius{gpu="0",uuid="GPU-a"}`:                       61,
		`muster_gpu_power_watts{gpu="0",uuid="GPU-a"}`:                               300,
		`muster_gpu_quarantined{gpu="0",uuid="GPU-a"}`:                               0,
		`muster_gpu_quarantined{gpu="1",uuid="GPU-b"}`:                               1,
		`muster_worker_gpu_energy_joules_total`:                                      7200,
		`muster_worker_cpu_seconds_total`:                                            3,
		`muster_worker_cache_requests_total{result="hit"}`:                           1,
	}); err != nil {
		t.Error(err)
	}
	if _, ok := got[`muster_gpu_power_watts{gpu="1",uuid="GPU-b"}`]; ok {
		t.Error("a missing reading has a value")
	}
}
