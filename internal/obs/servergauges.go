package obs

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

// serverGauges are read when the server is scraped.
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
		ready:     s.gaugeFunc("muster_engine_ready", "Whether the engine decides and its store takes commits: 1 or 0."),
		inbox:     s.gaugeFunc("muster_engine_inbox_events", "Events and calls that wait for the engine."),
		sessions:  s.gaugeFunc("muster_link_sessions", "Workers that are connected."),
		storeSize: s.gaugeFunc("muster_store_size_bytes", "Size of the database's files."),
		diskFree:  s.gaugeFunc("muster_data_disk_free_bytes", "Free bytes of the file system with the server's data folder."),
		diskSize:  s.gaugeFunc("muster_data_disk_size_bytes", "Size of the file system with the server's data folder."),

		tasks:       s.gaugeFunc("muster_tasks", "Tasks that the server knows, by state.", "state"),
		oldestAge:   s.gaugeFunc("muster_queue_oldest_task_age_seconds", "How long the oldest queued task has been queued; 0 if none is."),
		failing:     s.gaugeFunc("muster_jobs_failing", "Active jobs with at least 3 failed attempts."),
		workers:     s.gaugeFunc("muster_workers", "Workers by state.", "state"),
		constrained: s.gaugeFunc("muster_workers_constrained", "Connected workers that take no tasks of their own accord, such as for lack of disk."),
		avoided:     s.gaugeFunc("muster_workers_avoided", "Connected workers that the scheduler avoids because attempts keep failing there."),
		gpus:        s.gaugeFunc("muster_gpus", "GPUs by state: free, in_use, quarantined, or unavailable because the worker is not connected.", "state"),
		power:       s.gaugeFunc("muster_fleet_gpu_power_watts", "Power that the GPUs of connected workers take, as far as they tell."),

		cpus:             s.gaugeFunc("muster_fleet_cpus", "CPU cores that connected workers offer."),
		cpusReserved:     s.gaugeFunc("muster_fleet_cpus_reserved", "CPU cores that tasks hold."),
		memory:           s.gaugeFunc("muster_fleet_memory_bytes", "Memory that connected workers offer."),
		memoryReserved:   s.gaugeFunc("muster_fleet_memory_reserved_bytes", "Memory that tasks hold."),
		vram:             s.gaugeFunc("muster_fleet_gpu_memory_bytes", "GPU memory that connected workers offer."),
		vramReserved:     s.gaugeFunc("muster_fleet_gpu_memory_reserved_bytes", "GPU memory that tasks hold."),
		slots:            s.gaugeFunc("muster_fleet_slots", "Slots that connected workers offer, for tasks that name no CPUs."),
		slotsReserved:    s.gaugeFunc("muster_fleet_slots_reserved", "Slots that tasks hold."),
		fleetGPUReserved: s.gaugeFunc("muster_fleet_gpus_reserved", "GPUs that tasks hold, whole or a share."),
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

// gpuState is where a device stands.
type gpuState string

const (
	gpuFree        gpuState = "free"
	gpuInUse       gpuState = "in_use"
	gpuQuarantined gpuState = "quarantined"
	gpuUnavailable gpuState = "unavailable"
)

// amounts is what is offered and reserved of something.
type amounts struct{ cpus, memory, vram, slots, gpus float64 }

// collectFleet sends what is known of the fleet.
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
	var power float64
	var offered, reserved amounts
	for i := range p.Workers {
		w := &p.Workers[i]
		workers[w.State]++
		for d := range w.Offers.GPUs {
			gpus[gpuStateOf(w, d)]++
		}
		reserved.add(&w.Reserved)
		if !w.Connected() {
			continue
		}
		if w.Constrained != "" {
			constrained++
		}
		if w.Avoided != "" && w.Constrained == "" && w.State == muster.WorkerActive {
			avoided++
		}
		offered.cpus += w.Offers.CPUs
		offered.memory += float64(w.Offers.Memory)
		offered.slots += float64(w.Offers.Slots)
		for d := range w.Offers.GPUs {
			offered.vram += float64(w.Offers.GPUs[d].Memory)
		}
		if w.Load != nil {
			for d := range w.Load.GPUs {
				if watts := w.Load.GPUs[d].Power; watts != nil {
					power += *watts
				}
			}
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
	g.power.send(ch, power)
	g.cpus.send(ch, offered.cpus)
	g.memory.send(ch, offered.memory)
	g.vram.send(ch, offered.vram)
	g.slots.send(ch, offered.slots)
	g.cpusReserved.send(ch, reserved.cpus)
	g.memoryReserved.send(ch, reserved.memory)
	g.vramReserved.send(ch, reserved.vram)
	g.slotsReserved.send(ch, reserved.slots)
	g.fleetGPUReserved.send(ch, reserved.gpus)
}

func (a *amounts) add(r *sched.Resources) {
	a.cpus += r.CPUs
	a.memory += float64(r.Memory)
	a.vram += float64(r.GPUMemory)
	a.slots += float64(r.Slots)
	a.gpus += float64(r.GPUs)
}

// gpuStateOf returns where a device of a worker stands.
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
