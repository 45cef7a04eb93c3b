//go:build !linux

package meter

import (
	"context"
	"time"

	psutil "github.com/shirou/gopsutil/v4/process"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/procfs"
)

// readProcesses returns all processes. Groups and sessions are unknown here, so that a task's processes are the
// descendants of its first one.
func readProcesses(ctx context.Context) []process {
	all, err := psutil.ProcessesWithContext(ctx)
	if err != nil {
		return nil
	}
	list := make([]process, 0, len(all))
	for _, p := range all {
		if parent, err := p.PpidWithContext(ctx); err == nil {
			list = append(list, newProcess(int(p.Pid), int(parent)))
		}
	}
	return list
}

func newProcess(pid, parent int) process {
	return process{Stat: procfs.Stat{PID: pid, Parent: parent, Group: -1, Session: -1}}
}

// readProcess reads one process. It reports false if it has ended.
func readProcess(ctx context.Context, pid int, _ processFields) (process, bool) {
	one, err := psutil.NewProcessWithContext(ctx, int32(pid)) //nolint:gosec // it is the number of a process
	if err != nil {
		return process{}, false
	}
	parent, err := one.PpidWithContext(ctx)
	if err != nil {
		return process{}, false
	}
	return newProcess(pid, int(parent)).withDetail(), true
}

// withDetail adds what is read only of processes that are measured.
func (p process) withDetail() process {
	p.read, p.written, p.Threads = -1, -1, 1
	one, err := psutil.NewProcess(int32(p.PID)) //nolint:gosec // it came from an int32
	if err != nil {
		return p
	}
	if t, err := one.Times(); err == nil {
		p.CPU = time.Duration((t.User + t.System) * float64(time.Second))
	}
	if m, err := one.MemoryInfo(); err == nil {
		p.memory = muster.Size(m.RSS)
	}
	if n, err := one.NumThreads(); err == nil {
		p.Threads = int(n)
	}
	if io, err := one.IOCounters(); err == nil {
		p.read, p.written = muster.Size(io.ReadBytes), muster.Size(io.WriteBytes)
	}
	return p
}
