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
func (a *Agent) Constrain(source, why string) {
	r := a.roster
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.limits[source] == why {
		return
	}
	if r.limits[source] = why; why == "" {
		delete(r.limits, source)
	}
	r.ready = true
	token(r.wake)
}

// Offer replaces what the worker says of its machine. What runs goes on, even
// where less is offered than it uses. Kinds that have no executor here are left out.
func (a *Agent) Offer(tags, kinds []string, res muster.Resources) {
	r := a.roster
	r.mu.Lock()
	defer r.mu.Unlock()
	mine := a.kinds()
	r.offer = link.Offer{
		Tags:      slices.Clone(tags),
		Kinds:     slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return !slices.Contains(mine, kind) }),
		Resources: res,
		OwnKinds:  a.cfg.OwnKinds,
		Allow:     a.cfg.Allow,
		Lacks:     a.cfg.Lacks,
		Projects:  a.cfg.Projects,
	}
	r.capacity.offer = res
	r.offered = r.connected // or the next hello says it
	token(r.wake)
}

// Running lists the attempts that are executed, in order.
func (a *Agent) Running() []Running {
	r := a.roster
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := r.ids((*attempt).running)
	list := make([]Running, len(ids))
	for i, id := range ids {
		at := r.held[id]
		list[i] = Running{Attempt: id, Grant: at.grant, Checkpoint: at.checkpoint, Pid: at.pid}
	}
	return list
}

// Preempt asks an attempt to make room: it may save its state as its checkpoint
// or its kill setting allows, and is queued again. One that does not run is
// left alone.
func (a *Agent) Preempt(id muster.AttemptID, why string) {
	r := a.roster
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := r.held[id]; at != nil && at.running() {
		at.stop(preempted(why))
	}
}

func preempted(why string) *run.Stopped {
	return &run.Stopped{Outcome: muster.AttemptFailed, Reason: muster.Preempted, Message: why}
}

// Freeze stops all processes of an attempt for a while, or lets them go on. It is a
// NotFound error if the attempt does not run here.
func (a *Agent) Freeze(id muster.AttemptID, on bool) error {
	r := a.roster
	r.mu.Lock()
	at := r.held[id]
	runs := at != nil && at.running() && at.pid.PID != 0
	r.mu.Unlock()
	if !runs {
		return muster.Errorf(muster.NotFound, "attempt %s has no process on this worker", id)
	}
	return a.cfg.Supervisor.Freeze(id, on)
}

// Step shows what is being done with an attempt, in place of its own step.
func (a *Agent) Step(id muster.AttemptID, step string) {
	a.roster.mu.Lock()
	at := a.roster.held[id]
	a.roster.mu.Unlock()
	if at != nil {
		at.Progress(muster.Progress{Step: &step})
	}
}

// Saved says that an attempt's checkpoint is on the server as the tree with this
// hash.
func (a *Agent) Saved(id muster.AttemptID, sha256 string) {
	r := a.roster
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.held[id]
	if at == nil || !at.running() || at.saved == sha256 {
		return
	}
	at.saved, at.saySaved = sha256, true
	r.say(at)
}

// currentOffer is what the worker says of its machine. What it returns is not
// changed any more.
func (r *roster) currentOffer() *link.Offer {
	offer := r.offer
	return &offer
}

// preemptAll asks those that have a checkpoint to save their state and move.
func (r *roster) preemptAll(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range r.held {
		if at.running() && at.checkpoint {
			at.stop(preempted(why))
		}
	}
}

// leaveAll leaves what has a process to the supervisor, for the worker's next
// life, and hands back what has none yet.
func (r *roster) leaveAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range r.held {
		switch {
		case !at.running():
		case at.pid.PID != 0:
			at.cancelWith(run.ErrLeave)
		default:
			at.stop(preempted("the worker is upgraded, and it has not started yet"))
		}
	}
}

// leave takes note that an executor returned and left its process running. The
// attempt is still held.
func (r *roster) leave(at *attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.executes--
	at.cancel = nil
	if r.executes == 0 {
		token(r.idle)
	}
}

// unsettled reports whether an ended attempt waits for the server.
func (r *roster) unsettled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range r.held {
		if at.report != nil && r.connected {
			return true
		}
	}
	return false
}
