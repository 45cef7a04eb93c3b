package agent

import "github.com/muster-dev/muster"

// Status is how a worker stands, for those who measure it.
type Status struct {
	Connected   bool             // it has a session that the server welcomed
	Constrained string           // why nothing new is taken, or ""
	Executing   int              // attempts whose executor has not returned
	Held        int              // these, and those whose report or log the server does not have yet
	Offers      muster.Resources // must not be changed
}

// Status returns how the worker stands now. It waits for nobody.
func (a *Agent) Status() Status {
	r := a.roster
	r.mu.Lock()
	defer r.mu.Unlock()
	return Status{Connected: r.connected, Constrained: r.constrained(), Executing: r.executes, Held: len(r.held), Offers: r.offer.Resources}
}
