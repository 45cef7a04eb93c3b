package meter

import (
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// process is what the system says of one.
type process struct {
	pid, parent, group, session int
	start                       uint64 // ticks since boot; 0 where the system does not tell
	cpu                         time.Duration
	threads                     int
	memory                      muster.Size // resident and not shared
	read, written               muster.Size // from and to disks; -1 where the system does not tell
}

// wanted is what is to be known of the processes in a control group, beside their numbers.
type wanted struct {
	load      bool // CPU time, memory and threads
	transfers bool
}

// table is all processes of the machine, by how they hang together.
type table struct {
	list     []process
	number   map[int]int   // index in list by pid
	children map[int][]int // indexes by the parent's pid
	circle   map[int][]int // indexes by the pid of the leader of their group or session
}

func newTable(list []process) table {
	t := table{list: list, number: make(map[int]int, len(list)), children: make(map[int][]int, len(list)), circle: make(map[int][]int, len(list))}
	for i := range list {
		p := &list[i]
		t.number[p.pid] = i
		t.children[p.parent] = append(t.children[p.parent], i)
		t.circle[p.group] = append(t.circle[p.group], i)
		if p.session != p.group {
			t.circle[p.session] = append(t.circle[p.session], i)
		}
	}
	return t
}

// tree returns the process with a number and a start (0 for any), what descends
// from it, and what is in its session or its process group.
func (t *table) tree(pid int, start uint64) []process {
	if pid == 0 {
		return nil // it runs on another machine: 0 would be the kernel's threads
	}
	queue := slices.Clone(t.circle[pid])
	if i, there := t.number[pid]; there {
		if start != 0 && t.list[i].start != start {
			return nil // the number was given to another one
		}
		queue = append(queue, i)
	}
	seen := map[int]bool{}
	var mine []process
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		if seen[i] {
			continue
		}
		seen[i] = true
		mine = append(mine, t.list[i].detail())
		queue = append(queue, t.children[t.list[i].pid]...)
	}
	return mine
}

// clock turns CPU time that grows into cores in use.
type clock struct {
	last  time.Duration
	known bool
	each  map[int]time.Duration // by process, where nobody counts them together
}

// rate returns the cores in use over the last span, in seconds, nil if they are
// unknown.
func (c *clock) rate(counted *time.Duration, mine []process, span float64) *float64 {
	var spent time.Duration
	if counted != nil {
		spent, c.last = *counted-c.last, *counted
	} else {
		now := make(map[int]time.Duration, len(mine))
		for i := range mine {
			p := &mine[i]
			spent += max(0, p.cpu-c.each[p.pid]) // a child's time counts from its start
			now[p.pid] = p.cpu
		}
		c.each = now
	}
	known := c.known
	c.known = true
	if !known || span <= 0 || counted == nil && len(mine) == 0 {
		return nil // what came before is nobody's
	}
	return new(max(0, spent.Seconds()/span))
}

// counters turn bytes that grow into rates.
type counters struct {
	read, written map[int]muster.Size // by process; 0 for what the kernel counts together
	known         bool
}

func (c *counters) rates(counted *run.Counted, mine []process, span float64) (read, written *float64) {
	reads, writes := map[int]muster.Size{}, map[int]muster.Size{}
	if counted.Read != nil && counted.Written != nil {
		reads[0], writes[0] = *counted.Read, *counted.Written
	} else {
		for i := range mine {
			if p := &mine[i]; p.read >= 0 {
				reads[p.pid], writes[p.pid] = p.read, p.written
			}
		}
	}
	known := c.known && len(reads) > 0 && span > 0
	if known {
		read, written = new(grown(reads, c.read)/span), new(grown(writes, c.written)/span)
	}
	c.read, c.written, c.known = reads, writes, true
	return read, written
}

func grown(now, before map[int]muster.Size) float64 {
	var sum muster.Size
	for pid, n := range now {
		sum += max(0, n-before[pid])
	}
	return float64(sum)
}
