package engine

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// OpenExec asks a connected worker to open the connection of a command. It neither waits for the engine nor for the worker, which refuses an
// attempt that it does not run.
func (e *Engine) OpenExec(w muster.WorkerID, x link.Exec) error {
	s := e.session(w)
	if s == nil || s.ended.Load() {
		return muster.Errorf(muster.Unavailable, "worker %s is not connected: try again when it is", w)
	}
	s.post(&link.ToWorker{Exec: []link.Exec{x}})
	return nil
}
