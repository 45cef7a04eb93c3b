package proctree

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// oomBaselineMaxAge is the maximum age of the reading when a task starts: a later kill counts as the task's.
const oomBaselineMaxAge = time.Second

// OOMDetector detects kills because memory ran out: in the worker's control group if its memory is accounted, else on the machine.
type OOMDetector struct {
	mu    sync.Mutex
	path  string
	count uint64
	read  time.Time
}

// Refresh reads the number of kills, before a task starts.
func (o *OOMDetector) Refresh(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.path == "" {
		o.path = oomPath()
	}
	if now.Sub(o.read) >= oomBaselineMaxAge {
		o.count, o.read = oomKills(o.path), now
	}
}

// Detected reports whether there were kills since the last reading.
func (o *OOMDetector) Detected() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.count
	o.count = oomKills(o.path)
	return o.count > before
}

func oomPath() string {
	if b, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		for line := range strings.Lines(string(b)) {
			if group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
				p := "/sys/fs/cgroup" + group + "/memory.events"
				if _, err := os.Stat(p); err == nil {
					return p
				}
			}
		}
	}
	return "/proc/vmstat"
}

func oomKills(path string) uint64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		if v, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			n, _ := strconv.ParseUint(string(bytes.TrimSpace(v)), 10, 64) // 0 if it cannot be parsed
			return n
		}
	}
	return 0
}
