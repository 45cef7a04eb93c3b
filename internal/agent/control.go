package agent

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/wake"
)

// Running is an attempt that is executed on this worker.
type Running struct {
	Attempt    muster.AttemptID
	Grant      muster.Grant
	Checkpoint bool    // it can save its state and continue elsewhere
	Pid        run.Pid // zero until its process has started
}

// Constrain stops the worker from accepting tasks, for the given reason of one of several sources; "" removes the constraint of that
// source. The server receives all reasons.
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
	wake.Set(tbl.wake)
}

// Running lists the attempts that are executed, sorted.
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

// Preempt stops an attempt to make room for other work. It may save its state as its checkpoint and kill settings allow, and is queued
// again. It does nothing if the attempt does not run.
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

// Freeze stops all processes of an attempt, or continues them. It returns a NotFound error if the attempt does not run here.
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

// SetStep replaces the step of an attempt in its progress.
func (a *Agent) SetStep(id muster.AttemptID, step string) {
	a.table.mu.Lock()
	at := a.table.held[id]
	a.table.mu.Unlock()
	if at != nil {
		at.Progress(muster.Progress{Step: &step})
	}
}

// CheckpointSaved reports that the server has the attempt's checkpoint, as the tree with this hash.
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

// onDetached records that an executor returned and left its process running. The attempt is still held.
func (tbl *attemptTable) onDetached(at *attempt) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	tbl.executing--
	at.cancel = nil
	if tbl.executing == 0 {
		wake.Set(tbl.idle)
	}
}

// hasUnacked reports whether an ended attempt waits for the connected server.
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

// Status is the state of a worker, for its metrics.
type Status struct {
	Connected   bool             // a session is open
	Constrained string           // why no new tasks are accepted, or ""
	Executing   int              // attempts that are executed
	Held        int              // these, and attempts whose report or log the server does not have yet
	Offers      muster.Resources // must not be changed
	Traffic
}

// Traffic counts what a worker exchanged with its server since the process started.
type Traffic struct {
	Sessions   int64 // that the server welcomed
	Expired    int64 // attempts that were killed, or whose result was dropped, because their leases had ended
	LogSent    int64 // bytes of logs, including bytes that were sent again
	LogPending int64 // bytes of logs that are not acknowledged
}

// Status returns the current state. It does not block.
func (a *Agent) Status() Status {
	tbl := a.table
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	traffic := tbl.traffic
	for _, at := range tbl.held {
		traffic.LogPending += at.logSize - at.logAcked
	}
	return Status{
		Connected: tbl.connected, Constrained: tbl.constrained(), Executing: tbl.executing, Held: len(tbl.held), Offers: tbl.offer.Resources, Traffic: traffic,
	}
}
