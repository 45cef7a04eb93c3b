//go:build !linux

package proctree

import (
	"log/slog"
	"os"
	"time"

	"github.com/muster-dev/muster/internal/agent/run"
)

// Tracker ends leftover processes of tasks. On this system it only knows process groups.
type Tracker struct{}

// New returns a tracker.
func New(*slog.Logger) *Tracker { return &Tracker{} }

// Start calls fork, which starts a main process with envTag in its environment.
func (*Tracker) Start(envTag string, fork func() (pid int, err error)) (run.Pid, error) {
	pid, err := fork()
	return run.Pid{PID: pid, EnvTag: envTag}, err
}

// Self returns the identity of this process.
func (*Tracker) Self() run.Pid { return run.Pid{PID: os.Getpid()} }

// Freeze stops p's process group, or continues it.
func (*Tracker) Freeze(p run.Pid, on bool) { freezeGroup(p.PID, on) }

// Release does nothing: this system does not track processes.
func (*Tracker) Release(run.Pid) {}

// Kill kills p's process group.
func (*Tracker) Kill(p run.Pid) { killGroup(p.PID) }

// Cleanup kills what is left of p's process group.
func (*Tracker) Cleanup(p run.Pid, _ time.Duration) int {
	killGroup(p.PID)
	return 0
}

// CleanupLater does nothing: this system has no control groups.
func (*Tracker) CleanupLater(run.Pid) {}

// Sweep does nothing: this system has no subreapers.
func (*Tracker) Sweep() {}

// KillOrphans does nothing: on this system a process cannot be distinguished from another one that reused its PID.
func KillOrphans(...run.Pid) error { return nil }

// BootID returns "": this system has no boot ID.
func BootID() string { return "" }

// Alive returns false: here no process outlives the worker.
func Alive(run.Pid) bool { return false }

// Identify identifies a process by its PID only.
func Identify(pid int) run.Pid { return run.Pid{PID: pid} }

// OOMDetector detects nothing on this system.
type OOMDetector struct{}

func (*OOMDetector) Refresh(time.Time) {}

func (*OOMDetector) Detected() bool { return false }
