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
	"github.com/muster-dev/muster/internal/wake"
)

// saveDelay is how long a report may wait for its acknowledgement before it is written to disk. Short tasks cause no disk writes.
const saveDelay = 50 * time.Millisecond

// attemptTable holds all attempts of this worker, and what the server does not know of each. Its methods may be called concurrently;
// none of them does I/O.
type attemptTable struct {
	log   *slog.Logger
	clock func() time.Duration // includes the time that the machine sleeps

	onAcked func(id muster.AttemptID, recorded bool) // Config.OnReportAcked

	mu          sync.Mutex
	held        map[muster.AttemptID]*attempt
	offer       muster.Offer
	machine     machine // see offer.go
	capacity    capacity
	executing   int               // attempts whose executor has not returned
	closeReason string            // why no new tasks are accepted, permanently; "" if they are
	constraints map[string]string // why no new tasks are accepted for now, by source

	// What the session has to send: see outgoing.go.
	wake          chan struct{} // holds one token if there may be something to send
	connected     bool
	readyDirty    bool // Ready is to be sent
	offerDirty    bool // Offer is to be sent
	goodbyeQueued bool // Goodbye is to be sent as the last message
	goodbyeSent   bool
	dirty         []*attempt
	deferred      []*attempt    // whose next message is not due yet
	deferredDue   time.Duration // when the first of them is due
	rejected      []link.Rejected
	heartbeat     time.Duration
	nextHeartbeat time.Duration // when the next Renew is due
	lastHeartbeat time.Duration // when the last one was sent

	// The lease: see lease.go.
	lastContact time.Duration // the last time at which the server knew that this worker was alive
	pongDue     bool
	pingSentAt  time.Duration // when the unanswered ping was sent; 0 if there is none
	minGrace    time.Duration // at most the smallest grace of a running attempt

	// Logs: see logs.go.
	logQueue     []*attempt
	growing      growingLogs
	inflight     int64
	nextLogFrame time.Duration // when the next log frame may be sent
	lastLogAck   time.Duration // when bytes were last acknowledged

	traffic Traffic // without LogPending

	// What is to be written to disk: see pendingio.go.
	ioWake          chan struct{} // holds one token if there may be something to do
	reportsToSave   []*attempt    // ended, oldest first; some may be acknowledged by now
	reportsToDelete []muster.AttemptID
	logsToDelete    []muster.AttemptID
	toForget        []muster.AttemptID // by the supervisor

	idle chan struct{} // holds one token if executing or len(held) may have become 0
}

func newAttemptTable(offer muster.Offer, clock func() time.Duration, log *slog.Logger) *attemptTable {
	return &attemptTable{
		log:         log,
		clock:       clock,
		held:        map[muster.AttemptID]*attempt{},
		offer:       offer,
		machine:     machine{resources: offer.Resources, disabled: map[string]bool{}, withheld: map[string]map[string]string{}},
		capacity:    newCapacity(offer.Resources),
		constraints: map[string]string{},
		wake:        make(chan struct{}, 1),
		ioWake:      make(chan struct{}, 1),
		idle:        make(chan struct{}, 1),
		minGrace:    muster.DefaultDisconnectGrace.Std(),
		lastContact: clock(),
	}
}

// rejection is why an attempt is rejected.
type rejection struct {
	link.Rejected

	reason string // one of the Refused constants; "" if the server may not have known
}

// admit reserves the resources of an attempt, or returns why it is rejected. It returns neither for an attempt that is held already: its
// acceptance is sent again. An attempt that the server dropped, and then assigned again after it lost its data, is rejected until the old
// one is removed. An attempt without cancel runs inline: it ends before the next frame is made.
func (tbl *attemptTable) admit(t *run.Task, cancel context.CancelCauseFunc) (at *attempt, rejected *rejection) {
	id, g := t.Attempt, t.Grant
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	if at := tbl.held[id]; at != nil {
		if at.dropped || at.acked {
			return nil, &rejection{link.Rejected{Attempt: id, Message: "an earlier attempt with this number is still being cleaned up", Constrained: true}, ""}
		}
		at.reportedState = reportedNone
		tbl.queue(at)
		return nil, nil
	}
	if why := tbl.constrained(); why != "" {
		return nil, &rejection{link.Rejected{Attempt: id, Message: why, Constrained: true}, ""}
	}
	if kind := t.Spec.Kind; tbl.machine.disabled[kind] {
		return nil, &rejection{link.Rejected{Attempt: id, Message: "this worker does not offer kind " + kind + " at present"}, RefusedKind}
	}
	now := t.Assigned
	leaseStart, grace := tbl.lastContact, leaseGrace(t.Spec)
	switch {
	case grace < tbl.heartbeat:
		leaseStart = now // the grace is shorter than a heartbeat: the last contact may be older
	case now-leaseStart > grace:
		return nil, &rejection{link.Rejected{Attempt: id, Message: fmt.Sprintf("the lease of %s ended before the worker received the attempt: last contact with the server was %s ago",
			muster.Duration(grace), muster.Duration((now - leaseStart).Round(time.Millisecond)))}, ""}
	}
	if why := tbl.capacity.reserve(&g); why != "" {
		return nil, &rejection{link.Rejected{Attempt: id, Message: why}, RefusedResources}
	}
	at = &attempt{id: id, table: tbl, grant: g, cancel: cancel, inline: cancel == nil, assignedAt: now, leaseStart: leaseStart}
	tbl.track(at, t.Spec)
	if !at.inline {
		tbl.queue(at)
	}
	return at, nil
}

// leaseGrace returns how long an attempt may run without contact to the server.
func leaseGrace(spec *muster.TaskSpec) time.Duration {
	return spec.Disconnect.Grace.Or(muster.DefaultDisconnectGrace).Std()
}

// track holds an attempt that is executed.
func (tbl *attemptTable) track(at *attempt, spec *muster.TaskSpec) {
	at.checkpoint = spec.Checkpoint != nil
	at.grace = leaseGrace(spec)
	tbl.minGrace = min(tbl.minGrace, at.grace)
	// The lease counts from a contact that may be almost one heartbeat old.
	tbl.nextHeartbeat = min(tbl.nextHeartbeat, max(at.assignedAt, tbl.lastHeartbeat+minHeartbeat, tbl.lastContact+at.grace/4))
	tbl.held[at.id] = at
	tbl.executing++
}

// reject reports that an attempt will not run here.
func (tbl *attemptTable) reject(rejection *link.Rejected) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	tbl.rejected = append(tbl.rejected, *rejection)
	wake.Set(tbl.wake)
}

// finish records the report of an attempt whose executor has returned.
func (tbl *attemptTable) finish(at *attempt, report *muster.Report) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	tbl.executing--
	tbl.capacity.release(&at.grant)
	at.cancel = nil
	now := tbl.clock()
	if !at.dropped && at.leaseExpired(now, tbl.lastContact) {
		tbl.log.Warn("attempt ended after its lease, dropping its result", slog.String("attempt", at.id.String()))
		at.dropped = true
		tbl.traffic.Expired++
	}
	if at.dropped {
		tbl.shipRemainingLog(at, report)
		return
	}
	if report.Outcome == muster.AttemptFailed && needsAttention(report.Reason) {
		tbl.log.Warn("attempt failed", slog.String("attempt", at.id.String()), slog.String("reason", string(report.Reason)),
			slog.String("message", report.Message))
	}
	at.complete(report)
	at.report = report
	tbl.queueSave(at, now)
	if report.LogSize > at.logAcked {
		tbl.queueLog(at)
	}
	tbl.queue(at)
	if tbl.executing == 0 {
		wake.Set(tbl.idle)
	}
}

// needsAttention reports whether the owner of the worker may have to act upon a failure: neither the task nor an order caused it.
func needsAttention(r muster.Reason) bool {
	return r.FleetFault() && r != muster.WorkerShutdown && r != muster.Preempted && r != muster.GangMember
}

// drop stops an attempt that the server no longer wants. Its log is kept until the server has it.
func (tbl *attemptTable) drop(at *attempt, why *run.Stopped) {
	if at.report != nil {
		tbl.markAcked(at, false)
		tbl.removeIfDone(at)
		return
	}
	if !at.dropped {
		at.dropped = true
		at.stop(why)
	}
}

// markAcked records that the server has the report of an ended attempt, or does not want it.
func (tbl *attemptTable) markAcked(at *attempt, recorded bool) {
	if !at.acked && tbl.onAcked != nil {
		tbl.onAcked(at.id, recorded)
	}
	at.acked = true
}

// removeIfDone removes an ended attempt once the server has its report and its log.
func (tbl *attemptTable) removeIfDone(at *attempt) {
	if at.report != nil && at.acked && at.logAcked >= at.report.LogSize {
		tbl.remove(at)
	}
}

func (tbl *attemptTable) remove(at *attempt) {
	if tbl.held[at.id] != at {
		return
	}
	delete(tbl.held, at.id)
	tbl.inflight -= at.logSent - at.logAcked
	at.logSent, at.logAcked = at.logSize, at.logSize
	at.dropped = true
	switch {
	case at.persisted:
		tbl.reportsToDelete = append(tbl.reportsToDelete, at.id)
		wake.Set(tbl.ioWake)
	case !at.inline:
		tbl.toForget = append(tbl.toForget, at.id)
	}
	if !at.inline { // an inline attempt has no log; the log of a process may exist and be empty
		tbl.logsToDelete = append(tbl.logsToDelete, at.id)
		wake.Set(tbl.ioWake)
	}
	if tbl.executing == 0 || len(tbl.held) == 0 {
		wake.Set(tbl.idle)
	}
}

// constrained returns why no new tasks are accepted; "" if they are.
func (tbl *attemptTable) constrained() string {
	if tbl.closeReason != "" {
		return tbl.closeReason
	}
	var all []string
	for _, source := range slices.Sorted(maps.Keys(tbl.constraints)) {
		all = append(all, tbl.constraints[source])
	}
	return strings.Join(all, "; ")
}

// stopAccepting permanently stops accepting tasks.
func (tbl *attemptTable) stopAccepting(why string) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	if tbl.closeReason == "" {
		tbl.closeReason = why
		tbl.readyDirty = true
		wake.Set(tbl.wake)
	}
}

// stopEach stops the running attempts for which cause is not nil.
func (tbl *attemptTable) stopEach(cause func(at *attempt) error) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	for _, at := range tbl.held {
		if !at.running() {
			continue
		}
		if err := cause(at); err != nil {
			at.stop(err)
		}
	}
}

// count returns the number of attempts that are executed, and that are held.
func (tbl *attemptTable) count() (executing, held int) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	return tbl.executing, len(tbl.held)
}

// ids returns the sorted attempts that match.
func (tbl *attemptTable) ids(match func(*attempt) bool) []muster.AttemptID {
	var ids []muster.AttemptID
	for at := range maps.Values(tbl.held) {
		if match(at) {
			ids = append(ids, at.id)
		}
	}
	slices.SortFunc(ids, func(a, b muster.AttemptID) int {
		return cmp.Or(cmp.Compare(a.Task.Job, b.Task.Job), cmp.Compare(a.Task.Num, b.Task.Num), cmp.Compare(a.N, b.N))
	})
	return ids
}
