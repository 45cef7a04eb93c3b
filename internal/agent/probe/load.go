package probe

import (
	"context"
	"math"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/mem"

	"github.com/muster-dev/muster"
)

// Load measures the load of the host. One goroutine uses it.
type Load struct{ cpu CPUShare }

// Sample returns the load since the previous call, or nil if it is unknown.
func (l *Load) Sample(ctx context.Context) *muster.Load {
	m, err := mem.VirtualMemoryWithContext(ctx)
	if err != nil {
		return nil
	}
	share, ok := l.cpu.Since(ctx)
	if !ok {
		return nil
	}
	if math.IsNaN(share) {
		share = 0
	}
	return &muster.Load{CPU: share, Memory: muster.Size(m.Used)}
}

// CPUShare measures the share of the cores that is used. One goroutine uses it.
type CPUShare struct{ busy, total float64 }

// Since returns the share since the previous call, or since the machine was started, 0 to 1; NaN if the clock of the processors has not
// advanced since. It reports false if it is unknown.
func (c *CPUShare) Since(ctx context.Context) (share float64, ok bool) {
	times, err := cpu.TimesWithContext(ctx, false)
	if err != nil || len(times) == 0 {
		return 0, false
	}
	t := &times[0]
	idle := t.Idle + t.Iowait
	// Guest time is part of user time, and nice guest time of nice time.
	total := t.User + t.Nice + t.System + t.Irq + t.Softirq + t.Steal + idle
	busy, span := total-idle-c.busy, total-c.total
	c.busy, c.total = total-idle, total
	if span <= 0 {
		return math.NaN(), true
	}
	return min(1, max(0, busy/span)), true
}
