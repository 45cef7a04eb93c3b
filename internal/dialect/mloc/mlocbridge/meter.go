package mlocbridge

import (
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/mloc"
)

// meter measures what the heartbeats of a worker of MLOC say: how long it runs, what it cost, how busy its machines
// are, and what its GPUs draw. The draw of CPUs is not known to Muster, and absent.
type meter struct {
	startedAt time.Time
	cost      float64 // per hour, as configured

	mu        sync.Mutex
	at        time.Time  // of the last measurement
	load      [3]float64 // busy cores, averaged over 1, 5 and 15 minutes as a kernel does it
	watts     map[int]float64
	wattHours map[int]float64 // watt hours of each GPU
	hours     float64         // that were measured
	samples   int
}

func newMeter(now time.Time, cost float64) *meter {
	return &meter{startedAt: now, cost: cost, watts: map[int]float64{}, wattHours: map[int]float64{}}
}

// measure takes in what the workers' loads are now. A worker whose load is not known counts as idle.
func (m *meter) measure(now time.Time, workers []muster.Worker) {
	busy, watts, index := 0.0, map[int]float64{}, 0
	for _, w := range workers {
		power := map[string]float64{}
		if w.Load != nil {
			busy += w.Load.CPU * w.Resources.CPUs
			for _, g := range w.Load.GPUs {
				if g.Power != nil {
					power[g.UUID] = *g.Power
				}
			}
		}
		for _, g := range w.Resources.GPUs {
			if g.Quarantined != "" {
				continue // as in the hardware that is registered
			}
			if p, known := power[g.UUID]; known {
				watts[index] = p
			}
			index++
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, minutes := range []float64{1, 5, 15} {
		decay := 0.0
		if !m.at.IsZero() {
			decay = math.Exp(-max(0, now.Sub(m.at).Minutes()) / minutes)
		}
		m.load[i] = m.load[i]*decay + busy*(1-decay)
	}
	if !m.at.IsZero() && now.After(m.at) {
		h := now.Sub(m.at).Hours()
		for i, p := range m.watts {
			m.wattHours[i] += p * h
		}
		m.hours += h
	}
	m.at, m.watts = now, watts
	if len(watts) > 0 {
		m.samples++
	}
}

// power is what is drawn now.
func (m *meter) power() mloc.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.at
	if at.IsZero() {
		at = m.startedAt
	}
	list, total := []any{}, 0.0
	for _, i := range sortedInts(m.watts) {
		list = append(list, mloc.Object{"index": i, "power_w": round(m.watts[i])})
		total += m.watts[i]
	}
	gpu := mloc.Object{"total": nil, "per_gpu": list}
	if len(list) > 0 {
		gpu["total"] = round(total)
	}
	return mloc.Object{"timestamp": mloc.FormatTime(at), "cpu_watts": nil, "gpu_watts": gpu}
}

// usage is what was used since the start, at a price per hour.
func (m *meter) usage(now time.Time, cost float64) mloc.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	per, spent := mloc.Object{}, 0.0
	for _, i := range sortedInts(m.wattHours) {
		if m.hours > 0 {
			per[strconv.Itoa(i)] = round(m.wattHours[i] / m.hours)
		}
		spent += m.wattHours[i]
	}
	average, kwh := any(nil), any(nil)
	if m.samples > 0 && m.hours > 0 {
		average, kwh = round(spent/m.hours), spent/1000
	}
	uptime := now.Sub(m.startedAt)
	return mloc.Object{
		"uptime_sec": round(uptime.Seconds()), "accrued_cost_usd": math.Round(cost*max(0, uptime.Hours())*1e6) / 1e6,
		"power_summary": mloc.Object{
			"uptime_sec": round(uptime.Seconds()), "avg_cpu_watts": nil, "avg_gpu_watts": average, "per_gpu_avg_watts": per,
			"estimated_energy_kwh": kwh, "estimated_energy_breakdown": mloc.Object{"cpu_kwh": nil, "gpu_kwh": kwh},
			"samples": mloc.Object{"cpu": 0, "gpu": m.samples},
		},
	}
}

// metrics is what a heartbeat says.
func (m *meter) metrics(now time.Time, cost float64) mloc.Object {
	out := m.usage(now, cost)
	out["power"] = m.power()
	mloc.CopyFields(out, mloc.Lookup(out, "power_summary"), "estimated_energy_kwh", "estimated_energy_kwh")
	m.mu.Lock()
	defer m.mu.Unlock()
	out["loadavg"] = mloc.Object{"1m": round(m.load[0]), "5m": round(m.load[1]), "15m": round(m.load[2])}
	return out
}

// finalMetrics is what a worker says at its end.
func (m *meter) finalMetrics(now time.Time) mloc.Object {
	out := m.usage(now, m.cost)
	out["cost_per_hour"] = m.cost
	return out
}

func round(f float64) float64 { return math.Round(f*1000) / 1000 }

func sortedInts(m map[int]float64) []int { return slices.Sorted(maps.Keys(m)) }

// facts measures the active workers that serve the bridge, and returns what it registers with. It fails with Unavailable if
// there is none.
func (w *bridgeWorker) facts(ctx context.Context) (mloc.WorkerHash, error) {
	c, err := w.core.Capacity(ctx)
	if err == nil && len(c.Workers) == 0 {
		err = muster.Errorf(muster.Unavailable, "no worker of Muster takes tasks now")
	}
	if err != nil {
		return mloc.WorkerHash{}, err
	}
	w.session.meter.measure(time.Now(), c.Workers)
	h := mloc.WorkerHash{Hardware: sumHardware(c.Workers, w.cfg.Bandwidth), Tags: w.cfg.Tags, CostPerHour: w.cfg.Cost}
	if w.cfg.Core.Worker != "" && c.Workers[0].Price > 0 {
		h.CostPerHour = c.Workers[0].Price
	}
	return h, nil
}

// sumHardware is the sum of workers, as one worker of MLOC says it.
func sumHardware(workers []muster.Worker, bandwidth float64) mloc.Hardware {
	var h mloc.Hardware
	h.GPU.GPUs = []mloc.GPUDevice{}
	for _, w := range workers {
		h.CPU.LogicalCores += int(w.Resources.CPUs)
		h.Memory.TotalBytes += int64(w.Resources.Memory)
		for _, g := range w.Resources.GPUs {
			if g.Quarantined == "" {
				h.GPU.GPUs = append(h.GPU.GPUs, mloc.GPUDevice{Index: len(h.GPU.GPUs), Name: g.Name, UUID: g.UUID, Memory: int64(g.Memory)})
			}
		}
	}
	h.CPU.Model = "muster"
	h.Network.IP = mloc.LocalIP()
	if bandwidth > 0 {
		h.Network.Bandwidth = &bandwidth
	}
	return h
}
