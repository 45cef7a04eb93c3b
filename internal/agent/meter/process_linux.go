package meter

import (
	"context"

	"github.com/muster-dev/muster/internal/agent/procfs"
)

// readProcesses returns all processes that this user can see, except zombies.
func readProcesses(context.Context) []process {
	stats := procfs.ReadStats()
	list := make([]process, 0, len(stats))
	for i := range stats {
		if stats[i].State != 'Z' {
			list = append(list, process{Stat: stats[i]})
		}
	}
	return list
}

// readProcess reads the selected fields of one process. It reports false if it has ended.
func readProcess(_ context.Context, pid int, fields processFields) (process, bool) {
	p := process{Stat: procfs.Stat{PID: pid}, read: -1, written: -1}
	if !fields.load {
		if fields.transfers {
			p.read, p.written = procfs.IO(pid)
		}
		return p, true
	}
	st, ok := procfs.ReadStat(pid)
	if !ok || st.State == 'Z' {
		return process{}, false
	}
	return process{Stat: st}.withDetail(), true
}

// withDetail adds what is read only of processes that are measured.
func (p process) withDetail() process {
	p.memory = procfs.Resident(p.PID)
	p.read, p.written = procfs.IO(p.PID)
	return p
}
