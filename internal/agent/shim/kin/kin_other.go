//go:build !linux

package kin

import (
	"log/slog"
	"os"
	"time"

	"github.com/muster-dev/muster/internal/agent/run"
)

// Kin ends what tasks leave. Here it knows process groups only.
type Kin struct{}

// New returns a tracker.
func New(*slog.Logger) *Kin { return &Kin{} }

// Start calls fork, which starts a main process with mark in its environment.
func (*Kin) Start(mark string, fork func() (pid int, err error)) (run.Pid, error) {
	pid, err := fork()
	return run.Pid{PID: pid, Mark: mark}, err
}

// Myself names this process.
func (*Kin) Myself() run.Pid { return run.Pid{PID: os.Getpid()} }

// Freeze stops p's process group, or lets it go on.
func (*Kin) Freeze(p run.Pid, on bool) { freezeGroup(p.PID, on) }

// Kill ends p's process group.
func (*Kin) Kill(p run.Pid) { killGroup(p.PID) }

// Ended kills what is left of p's process group.
func (*Kin) Ended(p run.Pid, _ time.Duration) int {
	killGroup(p.PID)
	return 0
}

// Emptied does nothing: there are no control groups here.
func (*Kin) Emptied(run.Pid) {}

// Sweep does nothing: this process is nobody's reaper here.
func (*Kin) Sweep() {}

// KillLeftover does nothing: here a process cannot be told from another one that
// was given its number.
func KillLeftover(run.Pid) error { return nil }

// KillLeftovers does nothing, either.
func KillLeftovers([]run.Pid) error { return nil }

// BootID names this life of the machine; nothing does that here.
func BootID() string { return "" }

// Reap does nothing: this process is nobody's reaper here.
func (*Kin) Reap() {}
