//go:build !linux

package proctree

import (
	"log/slog"
	"os"
	"time"

	"github.com/muster-dev/muster/internal/agent/run"
)

// Tracker ends what tasks leave. Here it knows process groups only.
type Tracker struct{}

// New returns a tracker.
func New(*slog.Logger) *Tracker { return &Tracker{} }

// Start calls fork, which starts a main process with mark in its environment.
func (*Tracker) Start(envTag string, fork func() (pid int, err error)) (run.Pid, error) {
	pid, err := fork()
	return run.Pid{PID: pid, EnvTag: envTag}, err
}

// Self names this process.
func (*Tracker) Self() run.Pid { return run.Pid{PID: os.Getpid()} }

// Freeze stops p's process group, or lets it go on.
func (*Tracker) Freeze(p run.Pid, on bool) { freezeGroup(p.PID, on) }

// Kill ends p's process group.
func (*Tracker) Kill(p run.Pid) { killGroup(p.PID) }

// Cleanup kills what is left of p's process group.
func (*Tracker) Cleanup(p run.Pid, _ time.Duration) int {
	killGroup(p.PID)
	return 0
}

// CleanupLater does nothing: there are no control groups here.
func (*Tracker) CleanupLater(run.Pid) {}

// Sweep does nothing: this process is nobody's reaper here.
func (*Tracker) Sweep() {}

// KillOrphan does nothing: here a process cannot be told from another one that
// was given its number.
func KillOrphan(run.Pid) error { return nil }

// KillOrphans does nothing, either.
func KillOrphans([]run.Pid) error { return nil }

// BootID names this life of the machine; nothing does that here.
func BootID() string { return "" }

// Reap does nothing: this process is nobody's reaper here.
func (*Tracker) Reap() {}
