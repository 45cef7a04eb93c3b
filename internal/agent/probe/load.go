package probe

import (
	"context"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/mem"

	"github.com/muster-dev/muster"
)

// Load measures the load of the host. One goroutine uses it.
type Load struct{ busy, total float64 }

// Sample returns the load since the previous call, or nil if it is unknown.
func (l *Load) Sample(ctx context.Context) *muster.Load {
	times, err := cpu.TimesWithContext(ctx, false)
	if err != nil || len(times) == 0 {
		return nil
	}
	m, err := mem.VirtualMemoryWithContext(ctx)
	if err != nil {
		return nil
	}
	t := &times[0]
	idle := t.Idle + t.Iowait
	// Guest time is part of user time, and nice guest time of nice time.
	total := t.User + t.Nice + t.System + t.Irq + t.Softirq + t.Steal + idle
	busy, span := total-idle-l.busy, total-l.total
	l.busy, l.total = total-idle, total
	load := &muster.Load{Memory: muster.Size(m.Used)}
	if span > 0 {
		load.CPU = min(1, max(0, busy/span))
	}
	return load
}
