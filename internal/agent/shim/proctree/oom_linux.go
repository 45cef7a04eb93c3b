package proctree

import (
	"os"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/internal/agent/procfs"
)

// oomBaselineMaxAge is the maximum age of the reading when a task starts: a later kill counts as the task's.
const oomBaselineMaxAge = time.Second

// OOMDetector detects kills because memory ran out: in the worker's control group if its memory is accounted, else on the machine.
type OOMDetector struct {
	mu    sync.Mutex
	path  string
	count int64
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

func oomKills(path string) int64 {
	kills, _ := procfs.Field(path, "oom_kill") // 0 if it is unknown
	return kills
}
