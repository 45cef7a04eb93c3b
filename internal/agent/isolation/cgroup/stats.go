package cgroup

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/procfs"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Stats reads the counters in the groups of c. Memory does not include the page cache that the kernel would drop first; its peak
// does.
func Stats(c *run.IsolationSpec) run.CgroupStats { return readStats(c, true) }

// CurrentStats is Stats without what is needed only at the end: peaks, OOM kills and denied forks.
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
				if us, ok := procfs.Field(filepath.Join(g.Path, "cpu.stat"), "usage_usec"); ok {
					n.CPU = new(time.Duration(us) * time.Microsecond)
				}
			case controller == "io":
				n.Read, n.Written = ioBytes(g.Path)
			}
		}
	}
	return n
}

// oomKills returns how many processes of a group were killed because memory ran out, -1 if that is unknown.
func oomKills(g *run.Cgroup) int {
	file := "memory.oom_control"
	if g.Unified {
		file = "memory.events"
	}
	if kills, ok := procfs.Field(filepath.Join(g.Path, file), "oom_kill"); ok {
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
		files, _ := procfs.Field(filepath.Join(g.Path, "memory.stat"), cached)
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
	if denied, ok := procfs.Field(filepath.Join(g.Path, "pids.events"), "max"); ok {
		n.PIDsDenied = new(int(denied))
	}
}

// inferDenied finds forks that were denied in a container. Version 1 counts them in the engine's group, which is removed with the
// container: that our group was full is taken as one (Linux 6.1 records it).
func inferDenied(g *run.Cgroup, n *run.CgroupStats) {
	limit, limited := readInt(filepath.Join(g.Path, "pids.max"))
	if peak, ok := readInt(filepath.Join(g.Path, "pids.peak")); ok && limited && peak >= limit {
		n.PIDsDenied = new(1)
	}
}

// inferOOM finds OOM kills in a container. Version 1 counts them in the engine's group as well, and engines miss one in a hundred:
// that our group was full, be it with files, and that the kernel has killed a process of this machine since the attempt
// began, is taken as one.
func inferOOM(g *run.Cgroup, n *run.CgroupStats) {
	n.OOMKills = nil
	limit, limited := readInt(filepath.Join(g.Path, "memory.limit_in_bytes"))
	if limited && n.MemoryPeak != nil && int64(*n.MemoryPeak) >= limit && hostOOMKills() > g.OOMKillsBefore {
		n.LikelyOOM = true
	}
}

// hostOOMKills returns how many processes of this machine were killed because memory ran out.
func hostOOMKills() int {
	kills, _ := procfs.Field("/proc/vmstat", "oom_kill") // 0 before Linux 4.13
	return int(kills)
}

// ioBytes adds up io.stat, whose lines are such as "259:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0".
func ioBytes(group string) (read, written *muster.Size) {
	b, err := procfs.ReadFile(filepath.Join(group, "io.stat"))
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
