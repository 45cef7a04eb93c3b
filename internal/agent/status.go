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
