package history

import (
	"math"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

// The series of the fleet and of one worker, in the order of storage. A change of them changes the file's format.
var (
	fleetSeries = [...]string{
		"cpu_used", "cpu_reserved", "cpu_capacity", "memory_used", "memory_reserved", "memory_capacity", "gpu_used", "gpu_reserved", "gpu_capacity",
		"gpu_memory_used", "gpu_memory_capacity", "power", "cost_per_hour", "waiting", "queued", "running", "finished", "failed", "workers",
	}
	workerSeries = [...]string{"cpu", "memory", "gpu", "gpu_memory", "power", "running"}
)

var noValue = math.NaN()

// fleetFigures returns the values of a snapshot. since is the age of prev in seconds, or 0.
func fleetFigures(p *sched.FleetSnapshot, prev sched.Total, since float64) [len(fleetSeries)]float64 {
	s, c := p.Sums(), &p.All.Counts
	finished, failed := noValue, noValue
	if since > 0 && p.All.Total.Finished >= prev.Finished && p.All.Total.Failed >= prev.Failed {
		finished = float64(p.All.Total.Finished-prev.Finished) / since
		failed = float64(p.All.Total.Failed-prev.Failed) / since
	}
	return [...]float64{
		s.Used.CPUs, s.Reserved.CPUs, s.Capacity.CPUs, float64(s.Used.Memory), float64(s.Reserved.Memory), float64(s.Capacity.Memory),
		s.Used.GPUs, float64(s.Reserved.GPUs), float64(s.Capacity.GPUs), float64(s.Used.GPUMemory), float64(s.Capacity.GPUMemory), s.Used.Power, s.Cost,
		float64(c[muster.Waiting]), float64(c[muster.Queued]), float64(c[muster.Assigned] + c[muster.Running] + c[muster.Cancelling]), finished, failed,
		float64(s.Workers),
	}
}

// workerFigures returns the values of a connected worker: noValue for what its machine does not report.
func workerFigures(w *sched.WorkerSnapshot) [len(workerSeries)]float64 {
	f := [...]float64{noValue, noValue, noValue, noValue, noValue, float64(w.Running)}
	if w.Load == nil {
		return f
	}
	u := w.Used()
	f[0], f[1] = w.Load.CPU, float64(u.Memory)
	if n := len(w.Offers.GPUs); n > 0 && len(w.Load.GPUs) > 0 {
		f[2], f[3], f[4] = u.GPUs/float64(n), float64(u.GPUMemory), u.Power
	}
	return f
}

// A 16-bit float has 6 bits of exponent and 10 of fraction, so its error is at most one part in 2,048. Its range is
// from 2^-13 to maxFloat16; smaller numbers become 0. All bits set means no value.
const (
	float16None = math.MaxUint16
	float16Bias = 14
	maxFloat16  = (1 + 1022.0/1024) * (1 << (63 - float16Bias))
)

func encodeFloat16(v float64) uint16 {
	switch {
	case math.IsNaN(v):
		return float16None
	case v >= maxFloat16:
		return float16None - 1
	}
	fraction, exp := math.Frexp(v) // in [0.5, 1)
	code := int(math.Round((2*fraction-1)*1024)) + (exp-1+float16Bias)<<10
	if v <= 0 || code < 1<<10 {
		return 0
	}
	return uint16(code)
}

func decodeFloat16(c uint16) float64 {
	switch c {
	case 0:
		return 0
	case float16None:
		return noValue
	default:
		return math.Ldexp(1+float64(c&1023)/1024, int(c>>10)-float16Bias)
	}
}
