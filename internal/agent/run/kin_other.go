//go:build !linux

package run

import (
	"log/slog"
	"time"
)

// Kin ends what tasks leave. Here it knows process groups only.
type Kin struct{}

func newKin(*slog.Logger) *Kin { return &Kin{} }

// Started takes note of a main process that has just been started.
func (*Kin) Started(pid int, mark string) Proc { return Proc{PID: pid, Mark: mark} }

// Kill ends p's process group.
func (*Kin) Kill(p Proc) { killGroup(p.PID) }

// Ended kills what is left of p's process group.
func (*Kin) Ended(p Proc, _ time.Duration) int {
	killGroup(p.PID)
	return 0
}

// KillLeftover does nothing: here a process cannot be told from another one that
// was given its number.
func KillLeftover(Proc) error { return nil }
