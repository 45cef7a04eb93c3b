//go:build !linux

package run

import (
	"log/slog"
	"time"
)

// Kin ends what tasks leave. Here it knows process groups only.
type Kin struct{}

func newKin(*slog.Logger) *Kin { return &Kin{} }

// Start calls fork, which starts a main process with mark in its environment.
func (*Kin) Start(mark string, fork func() (pid int, err error)) (Pid, error) {
	pid, err := fork()
	return Pid{PID: pid, Mark: mark}, err
}

// Kill ends p's process group.
func (*Kin) Kill(p Pid) { killGroup(p.PID) }

// Ended kills what is left of p's process group.
func (*Kin) Ended(p Pid, _ time.Duration) int {
	killGroup(p.PID)
	return 0
}

// KillLeftover does nothing: here a process cannot be told from another one that
// was given its number.
func KillLeftover(Pid) error { return nil }
