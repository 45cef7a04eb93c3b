package agent

import "github.com/muster-dev/muster"

// Status is how a worker stands, for those who measure it.
type Status struct {
	Connected   bool             // it has a session that the server welcomed
	Constrained string           // why nothing new is taken, or ""
	Executing   int              // attempts whose executor has not returned
	Held        int              // these, and those whose report or log the server does not have yet
	Offers      muster.Resources // must not be changed
	Traffic
}

// Traffic is what a worker exchanged with its server in this life.
type Traffic struct {
	Sessions   int64 // that the server welcomed
	Expired    int64 // attempts that were killed, or whose result was dropped, because their leases had ended
	LogSent    int64 // bytes of logs, those that were sent again included
	LogPending int64 // bytes of logs that the server has not acknowledged
}

// Status returns how the worker stands now. It waits for nobody.
func (a *Agent) Status() Status {
	r := a.roster
	r.mu.Lock()
	defer r.mu.Unlock()
	traffic := r.traffic
	for _, at := range r.held {
		traffic.LogPending += at.logSize - at.logAcked
	}
	return Status{
		Connected: r.connected, Constrained: r.constrained(), Executing: r.executes, Held: len(r.held), Offers: r.offer.Resources, Traffic: traffic,
	}
}
