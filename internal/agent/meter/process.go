package meter

import (
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/procfs"
	"github.com/muster-dev/muster/internal/agent/run"
)

// process is a process with what withDetail adds. On other systems than Linux, State is unknown and Start is 0.
type process struct {
	procfs.Stat
	memory        muster.Size // resident and not shared
	read, written muster.Size // from and to disks; -1 if unknown
}

// processFields selects what is read of a process beside its number.
type processFields struct {
	load      bool // CPU time, memory and threads
	transfers bool
}

// processTable is all processes of the machine with their relations.
type processTable struct {
	list     []process
	index    map[int]int   // index in list by pid
	children map[int][]int // indexes by the parent's pid
	byLeader map[int][]int // indexes by the pid of the leader of their group or session
}

func newProcessTable(list []process) processTable {
	t := processTable{list: list, index: make(map[int]int, len(list)), children: make(map[int][]int, len(list)), byLeader: make(map[int][]int, len(list))}
	for i := range list {
		p := &list[i]
		t.index[p.PID] = i
		t.children[p.Parent] = append(t.children[p.Parent], i)
		t.byLeader[p.Group] = append(t.byLeader[p.Group], i)
		if p.Session != p.Group {
			t.byLeader[p.Session] = append(t.byLeader[p.Session], i)
		}
	}
	return t
}

// tree returns the process with this number and start (0 for any), its descendants, and the members of its session or
// process group.
func (t *processTable) tree(pid int, start uint64) []process {
	if pid == 0 {
		return nil // it runs on another machine: 0 would be the kernel's threads
	}
	queue := slices.Clone(t.byLeader[pid])
	if i, ok := t.index[pid]; ok {
		if start != 0 && t.list[i].Start != start {
			return nil // the number was reused
		}
		queue = append(queue, i)
	}
	seen := map[int]bool{}
	var list []process
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		if seen[i] {
			continue
		}
		seen[i] = true
		list = append(list, t.list[i].withDetail())
		queue = append(queue, t.children[t.list[i].PID]...)
	}
	return list
}

// cpuCounter computes the cores in use from CPU time that grows.
type cpuCounter struct {
	last      time.Duration
	known     bool
	byProcess map[int]time.Duration // without a control group
}

// rate returns the cores in use over the last span, in seconds; nil if they are unknown.
func (c *cpuCounter) rate(counted *time.Duration, procs []process, span float64) *float64 {
	var spent time.Duration
	if counted != nil {
		spent, c.last = *counted-c.last, *counted
	} else {
		now := make(map[int]time.Duration, len(procs))
		for i := range procs {
			p := &procs[i]
			spent += max(0, p.CPU-c.byProcess[p.PID]) // a child's time counts from its start
			now[p.PID] = p.CPU
		}
		c.byProcess = now
	}
	known := c.known
	c.known = true
	if !known || span <= 0 || counted == nil && len(procs) == 0 {
		return nil // the time before the first measurement is unknown
	}
	return new(max(0, spent.Seconds()/span))
}

// ioCounters compute rates from bytes that grow.
type ioCounters struct {
	read, written map[int]muster.Size // by process; 0 for the control group
	known         bool
}

func (c *ioCounters) rates(counted *run.CgroupStats, procs []process, span float64) (read, written *float64) {
	reads, writes := map[int]muster.Size{}, map[int]muster.Size{}
	if counted.Read != nil && counted.Written != nil {
		reads[0], writes[0] = *counted.Read, *counted.Written
	} else {
		for i := range procs {
			if p := &procs[i]; p.read >= 0 {
				reads[p.PID], writes[p.PID] = p.read, p.written
			}
		}
	}
	known := c.known && len(reads) > 0 && span > 0
	if known {
		read, written = new(increase(reads, c.read)/span), new(increase(writes, c.written)/span)
	}
	c.read, c.written, c.known = reads, writes, true
	return read, written
}

func increase(now, before map[int]muster.Size) float64 {
	var sum muster.Size
	for pid, n := range now {
		sum += max(0, n-before[pid])
	}
	return float64(sum)
}
