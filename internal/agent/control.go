package agent

import (
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/link"
)

// Running is an attempt that is executed here.
type Running struct {
	Attempt    muster.AttemptID
	Grant      muster.Grant
	Checkpoint bool    // it can save its state and go on elsewhere
	Pid        run.Pid // zero until its process has been started
}

// Constrain has the worker take nothing new, for the reason why of one of several
// sources; "" takes that source's word back. The server is told all of them.
func (a *Agent) Constrain(source, reason string) {
	tbl := a.table
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	if tbl.constraints[source] == reason {
		return
	}
	if tbl.constraints[source] = reason; reason == "" {
		delete(tbl.constraints, source)
	}
	tbl.readyDirty = true
	trySend(tbl.wake)
}

// Offer replaces what the worker says of its machine. What runs goes on, even
// where less is offered than it uses. Kinds that have no executor here are left out.
func (a *Agent) Offer(tags, kinds []string, res muster.Resources) {
	tbl := a.table
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	supported := a.kinds()
	tbl.offer = link.Offer{
		Tags:      slices.Clone(tags),
		Kinds:     slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return !slices.Contains(supported, kind) }),
		Resources: res,
		OwnKinds:  a.cfg.OwnKinds,
		Allow:     a.cfg.Allow,
		Lacks:     a.cfg.Lacks,
		Projects:  a.cfg.Projects,
	}
	tbl.capacity.offer = res
	tbl.offerDirty = tbl.connected // or the next hello says it
	trySend(tbl.wake)
}

// Running lists the attempts that are executed, in order.
func (a *Agent) Running() []Running {
	tbl := a.table
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	ids := tbl.ids((*attempt).running)
	list := make([]Running, len(ids))
	for i, id := range ids {
		at := tbl.held[id]
		list[i] = Running{Attempt: id, Grant: at.grant, Checkpoint: at.checkpoint, Pid: at.pid}
	}
	return list
}

// Preempt asks an attempt to make room: it may save its state as its checkpoint
// or its kill setting allows, and is queued again. One that does not run is
// left alone.
func (a *Agent) Preempt(id muster.AttemptID, reason string) {
	tbl := a.table
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	if at := tbl.held[id]; at != nil && at.running() {
		at.stop(preempted(reason))
	}
}

func preempted(reason string) *run.Stopped {
	return &run.Stopped{Outcome: muster.AttemptFailed, Reason: muster.Preempted, Message: reason}
}

// Freeze stops all processes of an attempt for a while, or lets them go on. It is a
// NotFound error if the attempt does not run here.
func (a *Agent) Freeze(id muster.AttemptID, on bool) error {
	tbl := a.table
	tbl.mu.Lock()
	at := tbl.held[id]
	running := at != nil && at.running() && at.pid.PID != 0
	tbl.mu.Unlock()
	if !running {
		return muster.Errorf(muster.NotFound, "attempt %s has no process on this worker", id)
	}
	return a.cfg.Supervisor.Freeze(id, on)
}

// SetStep shows what is being done with an attempt, in place of its own step.
func (a *Agent) SetStep(id muster.AttemptID, step string) {
	a.table.mu.Lock()
	at := a.table.held[id]
	a.table.mu.Unlock()
	if at != nil {
		at.Progress(muster.Progress{Step: &step})
	}
}

// CheckpointSaved says that an attempt's checkpoint is on the server as the tree with this
// hash.
func (a *Agent) CheckpointSaved(id muster.AttemptID, sha256 string) {
	tbl := a.table
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	at := tbl.held[id]
	if at == nil || !at.running() || at.checkpointHash == sha256 {
		return
	}
	at.checkpointHash, at.checkpointDirty = sha256, true
	tbl.queue(at)
}

// currentOffer is what the worker says of its machine. What it returns is not
// changed any more.
func (tbl *attemptTable) currentOffer() *link.Offer {
	offer := tbl.offer
	return &offer
}

// preemptAll asks those that have a checkpoint to save their state and move.
func (tbl *attemptTable) preemptAll(reason string) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	for _, at := range tbl.held {
		if at.running() && at.checkpoint {
			at.stop(preempted(reason))
		}
	}
}

// detachAll leaves what has a process to the supervisor, for the worker's next
// life, and hands back what has none yet.
func (tbl *attemptTable) detachAll() {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	for _, at := range tbl.held {
		switch {
		case !at.running():
		case at.pid.PID != 0:
			at.cancelWith(run.ErrDetach)
		default:
			at.stop(preempted("the worker is upgraded, and it has not started yet"))
		}
	}
}

// onDetached takes note that an executor returned and left its process running. The
// attempt is still held.
func (tbl *attemptTable) onDetached(at *attempt) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	tbl.executing--
	at.cancel = nil
	if tbl.executing == 0 {
		trySend(tbl.idle)
	}
}

// hasUnacked reports whether an ended attempt waits for the server.
func (tbl *attemptTable) hasUnacked() bool {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	for _, at := range tbl.held {
		if at.report != nil && tbl.connected {
			return true
		}
	}
	return false
}
