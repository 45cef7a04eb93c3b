package obs

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

// fleetSample is a sample of the fleet with the sums over its workers.
type fleetSample struct {
	*sched.FleetSnapshot

	sums     sched.Sums           // over connected workers
	reserved sched.FleetResources // of all workers, also those that are not connected
}

func newFleetSample(p *sched.FleetSnapshot) *fleetSample {
	f := &fleetSample{FleetSnapshot: p, sums: p.Sums()}
	for i := range p.Workers {
		f.reserved.Add(p.Workers[i].Reserved)
	}
	return f
}

// countWorkers counts the workers with a property.
func (f *fleetSample) countWorkers(has func(*sched.WorkerSnapshot) bool) float64 {
	n := 0
	for i := range f.Workers {
		if has(&f.Workers[i]) {
			n++
		}
	}
	return float64(n)
}

// defineServerGauges adds the gauges of a server.
func defineServerGauges(m *sampledMetrics[ServerSample]) {
	m.gauge("muster_engine_ready", "Whether the engine works and its store accepts commits: 1 or 0.", func(s *ServerSample) float64 { return boolValue(s.Fleet != nil) })
	m.gauge("muster_engine_inbox_events", "Events and calls waiting for the engine.", func(s *ServerSample) float64 { return float64(s.Inbox) })
	m.gauge("muster_link_sessions", "Connected workers.", func(s *ServerSample) float64 { return float64(s.Sessions) })
	m.gauge("muster_store_size_bytes", "Size of the database's files.", func(s *ServerSample) float64 { return nonZero(s.StoreSize) })
	m.gauge("muster_data_disk_free_bytes", "Free bytes of the file system with the server's data directory.", func(s *ServerSample) float64 { return s.Disk.free() })
	m.gauge("muster_data_disk_size_bytes", "Size of the file system with the server's data directory.", func(s *ServerSample) float64 { return s.Disk.size() })
	m.gaugeVec("muster_certificate_expiry_timestamp_seconds", "End of a certificate of the server (server), of its own authority (authority), or of a name of --acme, as seconds since the Unix epoch; 0 if it was not obtained yet. Absent without TLS.", []string{"certificate"},
		func(s *ServerSample, emit emitFunc) {
			for name, end := range s.Ends {
				emit(float64(max(0, end.Unix())), name)
			}
		})
	m.gauge("muster_retention_waiting_jobs", "Removed jobs whose logs and rows are still to be deleted, at most 1,000.", func(s *ServerSample) float64 { return float64(s.Removals.Waiting) })
	m.gauge("muster_retention_last_pass_timestamp_seconds", "Time of the last retention pass, as seconds since the Unix epoch; absent if there was none, or while deleting by age is delayed.", func(s *ServerSample) float64 { return nonZero(int64(s.Removals.LastPass) / 1000) })
}

// defineFleetGauges adds the gauges of tasks, workers and devices.
func defineFleetGauges(m *sampledMetrics[fleetSample]) {
	m.gaugeVec("muster_tasks", "Tasks of all stored jobs, by state.", []string{"state"}, func(f *fleetSample, emit emitFunc) {
		for _, state := range muster.TaskStates {
			emit(float64(f.All.Counts[state]), state.String())
		}
	})
	m.gauge("muster_queue_oldest_task_age_seconds", "Time since the oldest queued task was queued; 0 without queued tasks.", func(f *fleetSample) float64 {
		if f.All.Oldest == nil {
			return 0
		}
		return max(0, f.At.Sub(f.All.Oldest.QueuedAt).Std()).Seconds()
	})
	m.gauge("muster_jobs_failing", "Active jobs with at least 3 failed attempts.", func(f *fleetSample) float64 { return float64(len(f.Failing)) })
	m.gaugeVec("muster_workers", "Workers by state.", []string{"state"}, func(f *fleetSample, emit emitFunc) {
		for _, state := range []muster.WorkerState{muster.WorkerPending, muster.WorkerActive, muster.WorkerPaused, muster.WorkerDraining, muster.WorkerUnreachable, muster.WorkerGone} {
			emit(f.countWorkers(func(w *sched.WorkerSnapshot) bool { return w.State == state }), string(state))
		}
	})
	m.gauge("muster_workers_constrained", "Connected workers that take no new tasks, for example for lack of disk.", func(f *fleetSample) float64 {
		return f.countWorkers(func(w *sched.WorkerSnapshot) bool { return w.Connected() && w.Constrained != "" })
	})
	m.gauge("muster_workers_avoided", "Connected workers that the scheduler avoids because attempts keep failing there.", func(f *fleetSample) float64 {
		return f.countWorkers(func(w *sched.WorkerSnapshot) bool {
			return w.Avoided != "" && w.Constrained == "" && w.State == muster.WorkerActive
		})
	})
	m.gaugeVec("muster_gpus", "GPUs by state: free, in_use, quarantined, or unavailable because the worker is not connected.", []string{"state"}, func(f *fleetSample, emit emitFunc) {
		gpus := map[gpuState]int{}
		for i := range f.Workers {
			for d := range f.Workers[i].Offers.GPUs {
				gpus[gpuStateOf(&f.Workers[i], d)]++
			}
		}
		for _, state := range []gpuState{gpuFree, gpuInUse, gpuQuarantined, gpuUnavailable} {
			emit(float64(gpus[state]), string(state))
		}
	})
	m.gauge("muster_fleet_gpu_power_watts", "Power usage of the GPUs of connected workers, as far as reported.", func(f *fleetSample) float64 { return f.sums.Used.Power })

	m.gauge("muster_fleet_cpus", "CPU cores offered by connected workers.", func(f *fleetSample) float64 { return f.sums.Capacity.CPUs })
	m.gauge("muster_fleet_cpus_reserved", "CPU cores held by tasks.", func(f *fleetSample) float64 { return f.reserved.CPUs })
	m.gauge("muster_fleet_memory_bytes", "Memory offered by connected workers.", func(f *fleetSample) float64 { return float64(f.sums.Capacity.Memory) })
	m.gauge("muster_fleet_memory_reserved_bytes", "Memory held by tasks.", func(f *fleetSample) float64 { return float64(f.reserved.Memory) })
	m.gauge("muster_fleet_gpu_memory_bytes", "GPU memory offered by connected workers.", func(f *fleetSample) float64 { return float64(f.sums.Capacity.GPUMemory) })
	m.gauge("muster_fleet_gpu_memory_reserved_bytes", "GPU memory held by tasks.", func(f *fleetSample) float64 { return float64(f.reserved.GPUMemory) })
	m.gauge("muster_fleet_slots", "Slots offered by connected workers, for tasks that name no CPUs.", func(f *fleetSample) float64 { return float64(f.sums.Capacity.Slots) })
	m.gauge("muster_fleet_slots_reserved", "Slots held by tasks.", func(f *fleetSample) float64 { return float64(f.reserved.Slots) })
	m.gauge("muster_fleet_gpus_reserved", "GPUs held by tasks, whole or a share.", func(f *fleetSample) float64 { return float64(f.reserved.GPUs) })
}

// gpuState is a value of the label state of muster_gpus.
type gpuState string

const (
	gpuFree        gpuState = "free"
	gpuInUse       gpuState = "in_use"
	gpuQuarantined gpuState = "quarantined"
	gpuUnavailable gpuState = "unavailable"
)

// gpuStateOf returns the state of a worker's device.
func gpuStateOf(w *sched.WorkerSnapshot, device int) gpuState {
	switch {
	case !w.Connected():
		return gpuUnavailable
	case w.Offers.GPUs[device].Quarantined != "":
		return gpuQuarantined
	case device < len(w.GPUTasks) && w.GPUTasks[device] > 0:
		return gpuInUse
	default:
		return gpuFree
	}
}
