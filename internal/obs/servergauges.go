package obs

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

// serverGauges are the sampled metrics of a server.
type serverGauges struct {
	sources ServerSources

	ready, inbox, sessions, storeSize, diskFree, diskSize sampledMetric

	tasks, oldestAge, failing, workers, constrained, avoided   sampledMetric
	gpus, power                                                sampledMetric
	cpus, cpusReserved, memory, memoryReserved                 sampledMetric
	vram, vramReserved, slots, slotsReserved, fleetGPUReserved sampledMetric
}

func newServerGauges(s *registrar, m *Server) prometheus.Collector {
	g := &serverGauges{
		sources:   m.sources,
		ready:     s.gaugeFunc("muster_engine_ready", "Whether the engine works and its store accepts commits: 1 or 0."),
		inbox:     s.gaugeFunc("muster_engine_inbox_events", "Events and calls waiting for the engine."),
		sessions:  s.gaugeFunc("muster_link_sessions", "Connected workers."),
		storeSize: s.gaugeFunc("muster_store_size_bytes", "Size of the database's files."),
		diskFree:  s.gaugeFunc("muster_data_disk_free_bytes", "Free bytes of the file system with the server's data directory."),
		diskSize:  s.gaugeFunc("muster_data_disk_size_bytes", "Size of the file system with the server's data directory."),

		tasks:       s.gaugeFunc("muster_tasks", "Tasks of all stored jobs, by state.", "state"),
		oldestAge:   s.gaugeFunc("muster_queue_oldest_task_age_seconds", "Time since the oldest queued task was queued; 0 without queued tasks."),
		failing:     s.gaugeFunc("muster_jobs_failing", "Active jobs with at least 3 failed attempts."),
		workers:     s.gaugeFunc("muster_workers", "Workers by state.", "state"),
		constrained: s.gaugeFunc("muster_workers_constrained", "Connected workers that take no new tasks, for example for lack of disk."),
		avoided:     s.gaugeFunc("muster_workers_avoided", "Connected workers that the scheduler avoids because attempts keep failing there."),
		gpus:        s.gaugeFunc("muster_gpus", "GPUs by state: free, in_use, quarantined, or unavailable because the worker is not connected.", "state"),
		power:       s.gaugeFunc("muster_fleet_gpu_power_watts", "Power usage of the GPUs of connected workers, as far as reported."),

		cpus:             s.gaugeFunc("muster_fleet_cpus", "CPU cores offered by connected workers."),
		cpusReserved:     s.gaugeFunc("muster_fleet_cpus_reserved", "CPU cores held by tasks."),
		memory:           s.gaugeFunc("muster_fleet_memory_bytes", "Memory offered by connected workers."),
		memoryReserved:   s.gaugeFunc("muster_fleet_memory_reserved_bytes", "Memory held by tasks."),
		vram:             s.gaugeFunc("muster_fleet_gpu_memory_bytes", "GPU memory offered by connected workers."),
		vramReserved:     s.gaugeFunc("muster_fleet_gpu_memory_reserved_bytes", "GPU memory held by tasks."),
		slots:            s.gaugeFunc("muster_fleet_slots", "Slots offered by connected workers, for tasks that name no CPUs."),
		slotsReserved:    s.gaugeFunc("muster_fleet_slots_reserved", "Slots held by tasks."),
		fleetGPUReserved: s.gaugeFunc("muster_fleet_gpus_reserved", "GPUs held by tasks, whole or a share."),
	}
	return collectorFunc(g.collect)
}

func (g *serverGauges) collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), sourceTimeout)
	defer cancel()
	if g.sources.Inbox != nil {
		g.inbox.send(ch, float64(g.sources.Inbox()))
	}
	if g.sources.Sessions != nil {
		g.sessions.send(ch, float64(g.sources.Sessions()))
	}
	if g.sources.StoreSize != nil {
		if n, err := g.sources.StoreSize(); err == nil {
			g.storeSize.send(ch, float64(n))
		}
	}
	if g.sources.Disk != nil {
		if free, size, err := g.sources.Disk(ctx); err == nil {
			g.diskFree.send(ch, float64(free))
			g.diskSize.send(ch, float64(size))
		}
	}
	if g.sources.Fleet == nil {
		return
	}
	p, err := g.sources.Fleet(ctx)
	g.ready.send(ch, boolValue(err == nil && (g.sources.Health == nil || g.sources.Health() == nil)))
	if err == nil {
		g.collectFleet(ch, &p)
	}
}

// gpuState is a value of the label state of muster_gpus.
type gpuState string

const (
	gpuFree        gpuState = "free"
	gpuInUse       gpuState = "in_use"
	gpuQuarantined gpuState = "quarantined"
	gpuUnavailable gpuState = "unavailable"
)

// collectFleet sends the metrics of the fleet.
func (g *serverGauges) collectFleet(ch chan<- prometheus.Metric, p *sched.FleetSnapshot) {
	for _, state := range muster.TaskStates {
		g.tasks.send(ch, float64(p.All.Counts[state]), state.String())
	}
	var age time.Duration
	if o := p.All.Oldest; o != nil {
		age = max(0, p.At.Sub(o.QueuedAt).Std())
	}
	g.oldestAge.send(ch, age.Seconds())
	g.failing.send(ch, float64(len(p.Failing)))

	workers := map[muster.WorkerState]int{}
	gpus := map[gpuState]int{}
	var constrained, avoided int
	var reserved sched.Resources // of all workers, also those that are not connected
	for i := range p.Workers {
		w := &p.Workers[i]
		workers[w.State]++
		for d := range w.Offers.GPUs {
			gpus[gpuStateOf(w, d)]++
		}
		reserved.CPUs += w.Reserved.CPUs
		reserved.Memory += w.Reserved.Memory
		reserved.GPUMemory += w.Reserved.GPUMemory
		reserved.Slots += w.Reserved.Slots
		reserved.GPUs += w.Reserved.GPUs
		if !w.Connected() {
			continue
		}
		if w.Constrained != "" {
			constrained++
		}
		if w.Avoided != "" && w.Constrained == "" && w.State == muster.WorkerActive {
			avoided++
		}
	}
	for _, state := range []muster.WorkerState{muster.WorkerActive, muster.WorkerPaused, muster.WorkerDraining, muster.WorkerUnreachable, muster.WorkerGone} {
		g.workers.send(ch, float64(workers[state]), string(state))
	}
	for _, state := range []gpuState{gpuFree, gpuInUse, gpuQuarantined, gpuUnavailable} {
		g.gpus.send(ch, float64(gpus[state]), string(state))
	}
	g.constrained.send(ch, float64(constrained))
	g.avoided.send(ch, float64(avoided))
	sums := p.Sums()
	g.power.send(ch, sums.Used.Power)
	g.cpus.send(ch, sums.Capacity.CPUs)
	g.memory.send(ch, float64(sums.Capacity.Memory))
	g.vram.send(ch, float64(sums.Capacity.GPUMemory))
	g.slots.send(ch, float64(sums.Capacity.Slots))
	g.cpusReserved.send(ch, reserved.CPUs)
	g.memoryReserved.send(ch, float64(reserved.Memory))
	g.vramReserved.send(ch, float64(reserved.GPUMemory))
	g.slotsReserved.send(ch, float64(reserved.Slots))
	g.fleetGPUReserved.send(ch, float64(reserved.GPUs))
}

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
