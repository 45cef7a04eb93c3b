package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/link"
)

// saveAfter is how long a report may wait for its acknowledgement before it is
// written to the keep. It keeps the disk out of the way of tasks that take less.
const saveAfter = 50 * time.Millisecond

// defaultGrace is disconnect.grace where a spec does not say.
const defaultGrace = 10 * time.Minute

// roster holds every attempt of this worker and what the server does not know of
// each. All its methods may be called at the same time; none of them does I/O.
type roster struct {
	log   *slog.Logger
	clock func() time.Duration // goes on while the machine sleeps

	settled func(id muster.AttemptID, recorded bool) // Config.Settled

	mu       sync.Mutex
	held     map[muster.AttemptID]*attempt
	offer    link.Offer
	capacity capacity
	executes int               // attempts whose executor has not returned
	closing  string            // why nothing new is taken for good; "" if it is
	limits   map[string]string // why nothing new is taken for now, by source

	// What the session has to say: see words.go.
	wake      chan struct{} // holds one token if there may be something to say
	connected bool
	ready     bool // Ready is to be said
	offered   bool // Offer is to be said
	leaving   bool // Goodbye is to be said, and nothing after it
	left      bool // it was said
	talk      []*attempt
	later     []*attempt // whose next word waits for its turn
	rejected  []link.Rejected
	beat      time.Duration
	beatAt    time.Duration // when the next Renew is due
	beatLast  time.Duration // when the last one left

	// The lease: see lease.go.
	contact  time.Duration // the server was known to know that we live
	pinged   time.Duration // when the ping was sent that has no answer yet; 0 if there is none
	minGrace time.Duration // at most the smallest grace of a running attempt

	// Logs on their way: see logs.go.
	logs     []*attempt
	inflight int64
	logAt    time.Duration // the next log frame may leave
	logMoved time.Duration // bytes were last acknowledged

	traffic Traffic // without LogPending

	// What is to be put on disk: see saver.go.
	saving  chan struct{} // holds one token if there may be something to do
	unsaved []*attempt    // ended, oldest first; some may be acknowledged by now
	unsave  []muster.AttemptID
	trash   []muster.AttemptID // logs to remove
	over    []muster.AttemptID // that the supervisor may forget

	idle chan struct{} // holds one token if executes or held may have become 0
}

func newRoster(offer link.Offer, clock func() time.Duration, log *slog.Logger) *roster {
	return &roster{
		log:      log,
		clock:    clock,
		held:     map[muster.AttemptID]*attempt{},
		offer:    offer,
		capacity: newCapacity(offer.Resources),
		limits:   map[string]string{},
		wake:     make(chan struct{}, 1),
		saving:   make(chan struct{}, 1),
		idle:     make(chan struct{}, 1),
		minGrace: defaultGrace,
		contact:  clock(),
	}
}

// token puts one into c unless it holds one.
func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take makes room for an attempt that cancel stops, or says why it is refused. It
// returns neither for one that is held already: its acceptance is said again. One with the same number that the server gave up, before it lost its memory of
// it, is not the same attempt: until that is gone, the new one is refused. Without cancel the attempt runs inline: it
// ends before anything else is said.
func (r *roster) take(id muster.AttemptID, spec *muster.TaskSpec, g muster.Grant, cancel context.CancelCauseFunc) (at *attempt, no *link.Rejected) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := r.held[id]; at != nil {
		if at.gone || at.acked {
			return nil, &link.Rejected{Attempt: id, Message: "an earlier attempt with this number is still being cleaned up", Constrained: true}
		}
		at.told = toldNothing
		r.say(at)
		return nil, nil
	}
	if why := r.constrained(); why != "" {
		return nil, &link.Rejected{Attempt: id, Message: why, Constrained: true}
	}
	now := r.clock()
	leased, grace := r.contact, leaseOf(spec)
	switch {
	case grace < r.beat:
		leased = now // it is shorter than a contact may be old
	case now-leased > grace:
		return nil, &link.Rejected{Attempt: id, Message: fmt.Sprintf("its lease of %s ended before the worker received it: the server's last answer is %s old",
			muster.Duration(grace), muster.Duration((now - leased).Round(time.Millisecond)))}
	}
	if why := r.capacity.take(&g); why != "" {
		return nil, &link.Rejected{Attempt: id, Message: why}
	}
	at = &attempt{id: id, roster: r, grant: g, cancel: cancel, inline: cancel == nil, since: now, leased: leased}
	r.enter(at, spec)
	if !at.inline {
		r.say(at)
	}
	return at, nil
}

// leaseOf returns how long an attempt may run without contact to the server.
func leaseOf(spec *muster.TaskSpec) time.Duration {
	if d := spec.Disconnect.Grace.Std(); d > 0 {
		return d
	}
	return defaultGrace
}

// enter begins to hold an attempt that is executed.
func (r *roster) enter(at *attempt, spec *muster.TaskSpec) {
	at.checkpoint = spec.Checkpoint != nil
	at.grace = leaseOf(spec)
	r.minGrace = min(r.minGrace, at.grace)
	// The lease counts from a contact that may be almost one heartbeat old.
	r.beatAt = min(r.beatAt, max(r.clock(), r.beatLast+minBeat, r.contact+at.grace/4))
	r.held[at.id] = at
	r.executes++
}

// reject tells the server that an attempt will not run here.
func (r *roster) reject(id muster.AttemptID, why string) {
	r.refuse(&link.Rejected{Attempt: id, Message: why})
}

// refuse tells the server that an attempt will not run here.
func (r *roster) refuse(no *link.Rejected) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rejected = append(r.rejected, *no)
	token(r.wake)
}

// finish takes the report of an attempt whose executor has returned.
func (r *roster) finish(at *attempt, report *muster.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.executes--
	r.capacity.give(&at.grant)
	at.cancel = nil
	now := r.clock()
	if !at.gone && at.overdue(now, r.contact) {
		r.log.Warn("an attempt ended after its lease; its result is dropped", slog.String("attempt", at.id.String()))
		at.gone = true
		r.traffic.Expired++
	}
	if at.gone {
		r.shipRest(at, report)
		return
	}
	at.complete(report)
	at.report = report
	r.saveReport(at, now)
	if report.LogSize > at.logAcked {
		r.sayLog(at)
	}
	r.say(at)
	if r.executes == 0 {
		token(r.idle)
	}
}

// forget stops an attempt of which nothing is to be said any more but its log, which
// is kept until the server has it.
func (r *roster) forget(at *attempt, why *run.Stopped) {
	if at.report != nil {
		r.acknowledged(at, false)
		r.settle(at)
		return
	}
	if !at.gone {
		at.gone = true
		at.stop(why)
	}
}

// acknowledged takes note that the server has the report of an ended attempt, or wants nothing of it.
func (r *roster) acknowledged(at *attempt, recorded bool) {
	if !at.acked && r.settled != nil {
		r.settled(at.id, recorded)
	}
	at.acked = true
}

// settle removes an ended attempt once the server has all of it.
func (r *roster) settle(at *attempt) {
	if at.report != nil && at.acked && at.logAcked >= at.report.LogSize {
		r.remove(at)
	}
}

func (r *roster) remove(at *attempt) {
	if r.held[at.id] != at {
		return
	}
	delete(r.held, at.id)
	r.inflight -= at.logSent - at.logAcked
	at.logSent, at.logAcked = at.logSize, at.logSize
	at.gone = true
	if !at.inline && !at.kept {
		r.over = append(r.over, at.id)
		token(r.saving)
	}
	if at.kept {
		r.unsave = append(r.unsave, at.id)
		token(r.saving)
	}
	if !at.inline { // which has none; that of a process may be there and empty
		r.trash = append(r.trash, at.id)
		token(r.saving)
	}
	if r.executes == 0 || len(r.held) == 0 {
		token(r.idle)
	}
}

// constrained says why nothing new is taken; "" if it is.
func (r *roster) constrained() string {
	if r.closing != "" {
		return r.closing
	}
	var all []string
	for _, source := range slices.Sorted(maps.Keys(r.limits)) {
		all = append(all, r.limits[source])
	}
	return strings.Join(all, "; ")
}

// close takes nothing new from now on.
func (r *roster) close(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing == "" {
		r.closing = why
		r.ready = true
		token(r.wake)
	}
}

// stopAll stops everything that runs.
func (r *roster) stopAll(why *run.Stopped) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range r.held {
		if at.running() {
			at.stop(why)
		}
	}
}

// count returns how many attempts are executed, and how many are held in all.
func (r *roster) count() (executes, held int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.executes, len(r.held)
}

// ids returns the attempts that fulfil want, in order.
func (r *roster) ids(want func(*attempt) bool) []muster.AttemptID {
	var ids []muster.AttemptID
	for at := range maps.Values(r.held) {
		if want(at) {
			ids = append(ids, at.id)
		}
	}
	slices.SortFunc(ids, func(a, b muster.AttemptID) int {
		return cmp.Or(cmp.Compare(a.Task.Job, b.Task.Job), cmp.Compare(a.Task.Num, b.Task.Num), cmp.Compare(a.N, b.N))
	})
	return ids
}
