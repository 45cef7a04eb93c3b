package probe

import (
	"context"
	"math"
	"path"
	"runtime"
	"strings"

	gopscpu "github.com/shirou/gopsutil/v4/cpu"
	gopsload "github.com/shirou/gopsutil/v4/load"
)

// CPU describes the processors of the machine.
type CPU struct {
	Count    float64   `json:"count"` // cores that processes here may use; less than the machine has in a limited container
	Model    string    `json:"model,omitempty"`
	Sockets  int       `json:"sockets,omitempty"`
	Cores    int       `json:"cores,omitempty"`   // in all sockets
	Threads  int       `json:"threads,omitempty"` // of all cores
	Features []string  `json:"features"`          // instruction sets that jobs ask for, such as avx2
	Load     []float64 `json:"load,omitempty"`    // load averages of 1, 5 and 15 minutes
}

func (h *host) cpus(ctx context.Context) CPU {
	c := CPU{Count: float64(runtime.NumCPU())} // respects the affinity mask
	if quota, ok := h.cgroupCPUs(); ok {
		c.Count = math.Min(c.Count, math.Max(0.1, math.Floor(quota*1000)/1000))
	}
	if avg, err := gopsload.AvgWithContext(ctx); err == nil && h.os != "windows" {
		c.Load = []float64{hundredths(avg.Load1), hundredths(avg.Load5), hundredths(avg.Load15)}
	}
	if h.os == "linux" {
		info := parseCPUInfo(h.readText("/proc/cpuinfo"))
		c.Model, c.Features = info.model, info.features
		if c.Sockets, c.Cores, c.Threads = h.topology(); c.Threads == 0 {
			c.Sockets, c.Cores, c.Threads = len(info.sockets), len(info.cores), info.threads
		}
		if c.Model == "" {
			c.Model = h.readText("/proc/device-tree/model") // of the board
		}
		c.Model = strings.Trim(c.Model, "\x00 ")
		return c
	}
	c.Features = cpuidFeatures()
	if n, err := gopscpu.CountsWithContext(ctx, false); err == nil {
		c.Cores = n
	}
	if n, err := gopscpu.CountsWithContext(ctx, true); err == nil {
		c.Threads = n
	}
	if infos, err := gopscpu.InfoWithContext(ctx); err == nil && len(infos) > 0 {
		c.Model = strings.TrimSpace(infos[0].ModelName)
	}
	return c
}

func hundredths(f float64) float64 { return math.Round(f*100) / 100 }

// topology counts the processors that are online.
func (h *host) topology() (sockets, cores, threads int) {
	const dir = "/sys/devices/system/cpu"
	packages, both := map[string]bool{}, map[[2]string]bool{}
	for _, name := range h.readDir(dir) {
		if digits, ok := strings.CutPrefix(name, "cpu"); !ok || strings.Trim(digits, "0123456789") != "" || digits == "" {
			continue
		}
		socket := h.readText(path.Join(dir, name, "topology", "physical_package_id"))
		core := h.readText(path.Join(dir, name, "topology", "core_id"))
		if socket == "" || core == "" {
			continue // it is offline
		}
		packages[socket], both[[2]string{socket, core}] = true, true
		threads++
	}
	return len(packages), len(both), threads
}
