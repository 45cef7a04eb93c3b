package hostpolicy

import (
	"context"
	"math"

	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/mem"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/probe"
)

// load is what all programs on the host use, in percent; NaN if unknown. disk is the negative of the free bytes on the disk of the data
// directory, so that more is worse everywhere.
type load struct{ cpu, memory, gpu, disk float64 }

// host measures the load of the machine. One goroutine uses it.
type host struct {
	cores probe.CPUShare
}

// cpu returns the share of the cores that was used since the previous call, in percent.
func (h *host) cpu(ctx context.Context) float64 {
	first := h.cores == probe.CPUShare{}
	share, ok := h.cores.Since(ctx)
	if !ok || first {
		return math.NaN()
	}
	return 100 * share
}

// memory returns the share that is not available to a new program, in percent.
func (h *host) memory(ctx context.Context) float64 {
	m, err := mem.VirtualMemoryWithContext(ctx)
	if err != nil || m.Total == 0 {
		return math.NaN()
	}
	return 100 * (1 - float64(m.Available)/float64(m.Total))
}

// disk returns how full the disk of dir is, nil if unknown.
func (h *host) disk(ctx context.Context, dir string) *muster.DiskLoad {
	u, err := disk.UsageWithContext(ctx, dir)
	if err != nil || u.Total == 0 {
		return nil
	}
	return &muster.DiskLoad{Free: muster.Size(u.Free), Total: muster.Size(u.Total)}
}

// diskSize returns the size of the disk of dir, 0 if unknown.
func diskSize(dir string) muster.Size {
	u, err := disk.Usage(dir)
	if dir == "" || err != nil {
		return 0
	}
	return muster.Size(u.Total)
}

// meanUtilization returns the average utilization of the devices that report it.
func meanUtilization(rs *gpu.Readings) float64 {
	sum, n := 0.0, 0
	for i := range rs.Devices {
		if u := rs.Devices[i].Utilization; u != nil {
			sum += 100 * *u
			n++
		}
	}
	return sum / float64(n) // 0/0 is NaN
}
