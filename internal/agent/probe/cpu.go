package probe

import (
	"context"
	"math"
	"runtime"
	"strings"

	"github.com/shirou/gopsutil/v4/cpu"
)

// CPU is the processors that processes here may use.
type CPU struct {
	Count float64 `json:"count"` // cores; less than the machine has in a limited container
	Model string  `json:"model,omitempty"`
}

func cpus(ctx context.Context) CPU {
	c := CPU{Count: float64(runtime.NumCPU())} // heeds the affinity mask
	if quota, ok := cgroupCPUs(); ok {
		c.Count = math.Min(c.Count, math.Max(0.1, math.Floor(quota*1000)/1000))
	}
	if infos, err := cpu.InfoWithContext(ctx); err == nil && len(infos) > 0 {
		c.Model = strings.TrimSpace(infos[0].ModelName)
	}
	return c
}
