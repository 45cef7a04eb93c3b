package obs

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/fleet"
)

// serverGauges are read when the server is scraped.
type serverGauges struct {
	from ServerSources

	ready, inbox, sessions, storeSize, diskFree, diskSize reading

	tasks, oldest, failing, workers, constrained, avoided      reading
	gpus, power                                                reading
	cpus, cpusReserved, memory, memoryReserved                 reading
	vram, vramReserved, slots, slotsReserved, fleetGPUReserved reading
}

func newServerGauges(s *set, m *Server) prometheus.Collector {
	g := &serverGauges{
		from:      m.sources,
		ready:     s.reading("muster_engine_ready", "Whether the engine decides and its store takes commits: 1 or 0."),
		inbox:     s.reading("muster_engine_inbox_events", "Events and calls that wait for the engine."),
		sessions:  s.reading("muster_link_sessions", "Workers that are connected."),
		storeSize: s.reading("muster_store_size_bytes", "Size of the database's files."),
		diskFree:  s.reading("muster_data_disk_free_bytes", "Free bytes of the file system with the server's data folder."),
		diskSize:  s.reading("muster_data_disk_size_bytes", "Size of the file system with the server's data folder."),

		tasks:       s.reading("muster_tasks", "Tasks that the server knows, by state.", "state"),
		oldest:      s.reading("muster_queue_oldest_task_age_seconds", "How long the oldest queued task has been queued; 0 if none is."),
		failing:     s.reading("muster_jobs_failing", "Active jobs with at least 3 failed attempts."),
		workers:     s.reading("muster_workers", "Workers by state.", "state"),
		constrained: s.reading("muster_workers_constrained", "Connected workers that take no tasks of their own accord, such as for lack of disk."),
		avoided:     s.reading("muster_workers_avoided", "Connected workers that the scheduler avoids because attempts keep failing there."),
		gpus:        s.reading("muster_gpus", "GPUs by state: free, in_use, quarantined, or unavailable because the worker is not connected.", "state"),
		power:       s.reading("muster_fleet_gpu_power_watts", "Power that the GPUs of connected workers take, as far as they tell."),

		cpus:             s.reading("muster_fleet_cpus", "CPU cores that connected workers offer."),
		cpusReserved:     s.reading("muster_fleet_cpus_reserved", "CPU cores that tasks hold."),
		memory:           s.reading("muster_fleet_memory_bytes", "Memory that connected workers offer."),
		memoryReserved:   s.reading("muster_fleet_memory_reserved_bytes", "Memory that tasks hold."),
		vram:             s.reading("muster_fleet_gpu_memory_bytes", "GPU memory that connected workers offer."),
		vramReserved:     s.reading("muster_fleet_gpu_memory_reserved_bytes", "GPU memory that tasks hold."),
		slots:            s.reading("muster_fleet_slots", "Slots that connected workers offer, for tasks that name no CPUs."),
		slotsReserved:    s.reading("muster_fleet_slots_reserved", "Slots that tasks hold."),
		fleetGPUReserved: s.reading("muster_fleet_gpus_reserved", "GPUs that tasks hold, whole or a share."),
	}
	return collector(g.collect)
}

func (g *serverGauges) collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), sourceTimeout)
	defer cancel()
	if g.from.Inbox != nil {
		g.inbox.to(ch, float64(g.from.Inbox()))
	}
	if g.from.Sessions != nil {
		g.sessions.to(ch, float64(g.from.Sessions()))
	}
	if g.from.StoreSize != nil {
		if n, err := g.from.StoreSize(); err == nil {
			g.storeSize.to(ch, float64(n))
		}
	}
	if g.from.Disk != nil {
		if free, size, err := g.from.Disk(ctx); err == nil {
			g.diskFree.to(ch, float64(free))
			g.diskSize.to(ch, float64(size))
		}
	}
	if g.from.Picture == nil {
		return
	}
	p, err := g.from.Picture(ctx)
	g.ready.to(ch, flag(err == nil && (g.from.Health == nil || g.from.Health() == nil)))
	if err == nil {
		g.picture(ch, &p)
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

// picture sends what is known of the fleet.
func (g *serverGauges) picture(ch chan<- prometheus.Metric, p *fleet.Picture) {
	for _, state := range muster.TaskStates {
		g.tasks.to(ch, float64(p.All.Counts[state]), state.String())
	}
	var age time.Duration
	if o := p.All.Oldest; o != nil {
		age = max(0, p.At.Sub(o.QueuedAt).Std())
	}
	g.oldest.to(ch, age.Seconds())
	g.failing.to(ch, float64(len(p.Failing)))

	workers := map[muster.WorkerState]int{}
	gpus := map[gpuState]int{}
	var constrained, avoided int
	var power float64
	var offered, reserved amounts
	for i := range p.Workers {
		w := &p.Workers[i]
		workers[w.State]++
		for d := range w.Offers.GPUs {
			gpus[stateOf(w, d)]++
		}
		reserved.add(&w.Reserved)
		if !w.Present() {
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
		g.workers.to(ch, float64(workers[state]), string(state))
	}
	for _, state := range []gpuState{gpuFree, gpuInUse, gpuQuarantined, gpuUnavailable} {
		g.gpus.to(ch, float64(gpus[state]), string(state))
	}
	g.constrained.to(ch, float64(constrained))
	g.avoided.to(ch, float64(avoided))
	g.power.to(ch, power)
	g.cpus.to(ch, offered.cpus)
	g.memory.to(ch, offered.memory)
	g.vram.to(ch, offered.vram)
	g.slots.to(ch, offered.slots)
	g.cpusReserved.to(ch, reserved.cpus)
	g.memoryReserved.to(ch, reserved.memory)
	g.vramReserved.to(ch, reserved.vram)
	g.slotsReserved.to(ch, reserved.slots)
	g.fleetGPUReserved.to(ch, reserved.gpus)
}

func (a *amounts) add(r *fleet.Amounts) {
	a.cpus += r.CPUs
	a.memory += float64(r.Memory)
	a.vram += float64(r.GPUMemory)
	a.slots += float64(r.Slots)
	a.gpus += float64(r.GPUs)
}

// stateOf returns where a device of a worker stands.
func stateOf(w *fleet.Worker, device int) gpuState {
	switch {
	case !w.Present():
		return gpuUnavailable
	case w.Offers.GPUs[device].Quarantined != "":
		return gpuQuarantined
	case device < len(w.GPUTasks) && w.GPUTasks[device] > 0:
		return gpuInUse
	default:
		return gpuFree
	}
}
