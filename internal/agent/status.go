package agent

import "github.com/muster-dev/muster"

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
