//go:build !linux

package meter

import (
	"context"
	"time"

	psutil "github.com/shirou/gopsutil/v4/process"

	"github.com/muster-dev/muster"
)

// processes asks the system for all processes. Groups and sessions are unknown
// here, so that a task's processes are those that descend from its first one.
func processes(ctx context.Context) []process {
	all, err := psutil.ProcessesWithContext(ctx)
	if err != nil {
		return nil
	}
	t := make([]process, 0, len(all))
	for _, p := range all {
		parent, err := p.PpidWithContext(ctx)
		if err == nil {
			t = append(t, process{pid: int(p.Pid), parent: int(parent), group: -1, session: -1})
		}
	}
	return t
}

// processOf asks the system for one process. It reports false if it has ended.
func processOf(ctx context.Context, pid int, _ processFields) (process, bool) {
	one, err := psutil.NewProcessWithContext(ctx, int32(pid)) //nolint:gosec // it is the number of a process
	if err != nil {
		return process{}, false
	}
	parent, err := one.PpidWithContext(ctx)
	if err != nil {
		return process{}, false
	}
	return process{pid: pid, parent: int(parent), group: -1, session: -1}.withDetail(), true
}

// withDetail adds what only those are asked for that are measured.
func (p process) withDetail() process {
	p.read, p.written, p.threads = -1, -1, 1
	one, err := psutil.NewProcess(int32(p.pid)) //nolint:gosec // it came from an int32
	if err != nil {
		return p
	}
	if t, err := one.Times(); err == nil {
		p.cpu = time.Duration((t.User + t.System) * float64(time.Second))
	}
	if m, err := one.MemoryInfo(); err == nil {
		p.memory = muster.Size(m.RSS)
	}
	if n, err := one.NumThreads(); err == nil {
		p.threads = int(n)
	}
	if io, err := one.IOCounters(); err == nil {
		p.read, p.written = muster.Size(io.ReadBytes), muster.Size(io.WriteBytes)
	}
	return p
}
