package proctree

import (
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Child is a started main process. Its methods may be called concurrently.
type Child struct {
	PID    int
	Handle int // pidfd, -1 for none

	mu     sync.Mutex
	reaped bool
}

// IfUnreaped calls f, unless Wait has reaped the process: then its PID, and that of its group, may be reused. Wait does not reap it while f
// runs.
func (c *Child) IfUnreaped(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reaped {
		f()
	}
}

// Kill kills the process and its group.
func (c *Child) Kill() { c.IfUnreaped(func() { killGroup(c.PID) }) }

// ExitStatus is how a main process ended.
type ExitStatus struct {
	Code   int    // 128+n for signal n
	Signal string // its name, "" for none
	Killed bool   // by SIGKILL
	CPU    time.Duration
	MaxRSS muster.Size // of the largest process; 0 if unknown

	// Only for containers.
	OOM     bool         // it was killed because memory ran out
	Stopped *run.Stopped // by its engine, or lost with it; nil if it ended by itself
}
