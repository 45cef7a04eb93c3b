//go:build !linux

package shim

import (
	"log/slog"
	"os"
	"time"

	"github.com/muster-dev/muster/internal/agent/run"
)

// kin ends what tasks leave. Here it knows process groups only.
type kin struct{}

func newKin(*slog.Logger) *kin { return &kin{} }

// start calls fork, which starts a main process with mark in its environment.
func (*kin) start(mark string, fork func() (pid int, err error)) (run.Pid, error) {
	pid, err := fork()
	return run.Pid{PID: pid, Mark: mark}, err
}

// myself names this process.
func (*kin) myself() run.Pid { return run.Pid{PID: os.Getpid()} }

// freeze stops p's process group, or lets it go on.
func (*kin) freeze(p run.Pid, on bool) { freezeGroup(p.PID, on) }

// kill ends p's process group.
func (*kin) kill(p run.Pid) { killGroup(p.PID) }

// ended kills what is left of p's process group.
func (*kin) ended(p run.Pid, _ time.Duration) int {
	killGroup(p.PID)
	return 0
}

// killLeftover does nothing: here a process cannot be told from another one that
// was given its number.
func killLeftover(run.Pid) error { return nil }

func bootID() string { return "" }

// reap does nothing: this process is nobody's reaper here.
func (*kin) reap() {}
