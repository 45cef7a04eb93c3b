package cgroup

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Stats reads what the kernel counted in the groups of c. Memory is without the
// files that the kernel would drop first; its peak is with them.
func Stats(c *run.IsolationSpec) run.CgroupStats { return readStats(c, true) }

// CurrentStats is Counted without what is asked for once at the end: the peak of the memory, and what
// was killed or refused.
func CurrentStats(c *run.IsolationSpec) run.CgroupStats { return readStats(c, false) }

func readStats(c *run.IsolationSpec, all bool) run.CgroupStats {
	var n run.CgroupStats
	for i := range c.Cgroups {
		g := &c.Cgroups[i]
		for _, controller := range g.Controllers {
			switch {
			case controller == "memory":
				if !g.Shared {
					readMemory(g, &n, all)
				}
				if !all {
					continue
				}
				if kills := oomKills(g); kills >= 0 {
					n.OOMKills = new(kills - g.OOMKillsBefore)
				}
				if c.CgroupParent != "" && !g.Unified {
					inferOOM(g, &n)
				}
			case g.Shared:
			case controller == "pids":
				readPIDs(g, &n, all)
				if all && c.CgroupParent != "" && !g.Unified {
					inferDenied(g, &n)
				}
			case controller == "cpuacct":
				if ns, ok := readInt(filepath.Join(g.Path, "cpuacct.usage")); ok {
					n.CPU = new(time.Duration(ns))
				}
			case controller == "cpu" && g.Unified:
				if us, ok := readField(filepath.Join(g.Path, "cpu.stat"), "usage_usec"); ok {
					n.CPU = new(time.Duration(us) * time.Microsecond)
				}
			case controller == "io":
				n.Read, n.Written = ioBytes(g.Path)
			}
		}
	}
	return n
}

// oomKills returns how many processes were killed in a group for want of memory,
// -1 if the kernel does not tell.
func oomKills(g *run.Cgroup) int {
	file := "memory.oom_control"
	if g.Unified {
		file = "memory.events"
	}
	if kills, ok := readField(filepath.Join(g.Path, file), "oom_kill"); ok {
		return int(kills)
	}
	return -1
}

func readMemory(g *run.Cgroup, n *run.CgroupStats, all bool) {
	now, peak, cached := "memory.usage_in_bytes", "memory.max_usage_in_bytes", "total_inactive_file"
	if g.Unified {
		now, peak, cached = "memory.current", "memory.peak", "inactive_file"
	}
	if used, ok := readInt(filepath.Join(g.Path, now)); ok {
		files, _ := readField(filepath.Join(g.Path, "memory.stat"), cached)
		n.Memory = new(muster.Size(max(0, used-files)))
	}
	if !all {
		return
	}
	if maximum, ok := readInt(filepath.Join(g.Path, peak)); ok { // version 2 since Linux 5.19
		n.MemoryPeak = new(muster.Size(maximum))
	}
}

func readPIDs(g *run.Cgroup, n *run.CgroupStats, all bool) {
	if now, ok := readInt(filepath.Join(g.Path, "pids.current")); ok {
		n.PIDs = new(int(now))
	}
	if !all {
		return
	}
	if denied, ok := readField(filepath.Join(g.Path, "pids.events"), "max"); ok {
		n.PIDsDenied = new(int(denied))
	}
}

// inferDenied tells of the forks that were refused in a container. Version 1 counts them in the group of the
// engine, which is gone when the container has ended: that ours was full once has to do (Linux 6.1 tells).
func inferDenied(g *run.Cgroup, n *run.CgroupStats) {
	limit, limited := readInt(filepath.Join(g.Path, "pids.max"))
	if peak, ok := readInt(filepath.Join(g.Path, "pids.peak")); ok && limited && peak >= limit {
		n.PIDsDenied = new(1)
	}
}

// inferOOM tells of kills for want of memory in a container. Version 1 counts them, too, in the group of the
// engine, and engines miss one in a hundred: that ours was full once, be it with files, and that the kernel has killed
// something on this machine since the attempt began, has to do for one that was killed.
func inferOOM(g *run.Cgroup, n *run.CgroupStats) {
	n.OOMKills = nil
	limit, limited := readInt(filepath.Join(g.Path, "memory.limit_in_bytes"))
	if limited && n.MemoryPeak != nil && int64(*n.MemoryPeak) >= limit && hostOOMKills() > g.OOMKillsBefore {
		n.LikelyOOM = true
	}
}

// hostOOMKills is how many processes of this machine were killed for want of memory.
func hostOOMKills() int {
	kills, _ := readField("/proc/vmstat", "oom_kill") // 0 before Linux 4.13
	return int(kills)
}

// ioBytes adds up io.stat, whose lines are such as "259:0 rbytes=4096 wbytes=0
// rios=1 wios=0 dbytes=0 dios=0".
func ioBytes(group string) (read, written *muster.Size) {
	b, err := readFile(filepath.Join(group, "io.stat"))
	if err != nil {
		return nil, nil
	}
	read, written = new(muster.Size(0)), new(muster.Size(0))
	for word := range strings.FieldsSeq(string(b)) {
		name, value, _ := strings.Cut(word, "=")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			continue
		}
		switch name {
		case "rbytes":
			*read += muster.Size(n)
		case "wbytes":
			*written += muster.Size(n)
		}
	}
	return read, written
}
