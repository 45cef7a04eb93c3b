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

// saveDelay is how long a report may wait for its acknowledgement before it is
// written to the keep. It keeps the disk out of the way of tasks that take less.
const saveDelay = 50 * time.Millisecond

// defaultGrace is disconnect.grace where a spec does not say.
const defaultGrace = 10 * time.Minute

// attemptTable holds every attempt of this worker and what the server does not know of
// each. All its methods may be called at the same time; none of them does I/O.
type attemptTable struct {
	log   *slog.Logger
	clock func() time.Duration // goes on while the machine sleeps

	onAcked func(id muster.AttemptID, recorded bool) // Config.Settled

	mu          sync.Mutex
	held        map[muster.AttemptID]*attempt
	offer       link.Offer
	capacity    capacity
	executing   int               // attempts whose executor has not returned
	closeReason string            // why nothing new is taken for good; "" if it is
	constraints map[string]string // why nothing new is taken for now, by source

	// What the session has to say: see words.go.
	wake          chan struct{} // holds one token if there may be something to say
	connected     bool
	readyDirty    bool // Ready is to be said
	offerDirty    bool // Offer is to be said
	goodbyeQueued bool // Goodbye is to be said, and nothing after it
	goodbyeSent   bool // it was said
	dirty         []*attempt
	deferred      []*attempt // whose next word waits for its turn
	rejected      []link.Rejected
	heartbeat     time.Duration
	nextHeartbeat time.Duration // when the next Renew is due
	lastHeartbeat time.Duration // when the last one left

	// The lease: see lease.go.
	lastContact time.Duration // the server was known to know that we live
	pingSentAt  time.Duration // when the ping was sent that has no answer yet; 0 if there is none
	minGrace    time.Duration // at most the smallest grace of a running attempt

	// Logs on their way: see logs.go.
	logQueue     []*attempt
	inflight     int64
	nextLogFrame time.Duration // the next log frame may leave
	lastLogAck   time.Duration // bytes were last acknowledged

	traffic Traffic // without LogPending

	// What is to be put on disk: see saver.go.
	ioWake          chan struct{} // holds one token if there may be something to do
	reportsToSave   []*attempt    // ended, oldest first; some may be acknowledged by now
	reportsToDelete []muster.AttemptID
	logsToDelete    []muster.AttemptID // logs to remove
	toForget        []muster.AttemptID // that the supervisor may forget

	idle chan struct{} // holds one token if executes or held may have become 0
}

func newAttemptTable(offer link.Offer, clock func() time.Duration, log *slog.Logger) *attemptTable {
	return &attemptTable{
		log:         log,
		clock:       clock,
		held:        map[muster.AttemptID]*attempt{},
		offer:       offer,
		capacity:    newCapacity(offer.Resources),
		constraints: map[string]string{},
		wake:        make(chan struct{}, 1),
		ioWake:      make(chan struct{}, 1),
		idle:        make(chan struct{}, 1),
		minGrace:    defaultGrace,
		lastContact: clock(),
	}
}

// trySend puts one into c unless it holds one.
func trySend(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// admit makes room for an attempt that cancel stops, or says why it is refused. It
// returns neither for one that is held already: its acceptance is said again. One with the same number that the server gave up, before it lost its memory of
// it, is not the same attempt: until that is gone, the new one is refused. Without cancel the attempt runs inline: it
// ends before anything else is said.
func (tbl *attemptTable) admit(id muster.AttemptID, spec *muster.TaskSpec, g muster.Grant, cancel context.CancelCauseFunc) (at *attempt, rejection *link.Rejected) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	if at := tbl.held[id]; at != nil {
		if at.dropped || at.acked {
			return nil, &link.Rejected{Attempt: id, Message: "an earlier attempt with this number is still being cleaned up", Constrained: true}
		}
		at.reportedState = reportedNone
		tbl.queue(at)
		return nil, nil
	}
	if why := tbl.constrained(); why != "" {
		return nil, &link.Rejected{Attempt: id, Message: why, Constrained: true}
	}
	now := tbl.clock()
	leaseStart, grace := tbl.lastContact, leaseGrace(spec)
	switch {
	case grace < tbl.heartbeat:
		leaseStart = now // it is shorter than a contact may be old
	case now-leaseStart > grace:
		return nil, &link.Rejected{Attempt: id, Message: fmt.Sprintf("its lease of %s ended before the worker received it: the server's last answer is %s old",
			muster.Duration(grace), muster.Duration((now - leaseStart).Round(time.Millisecond)))}
	}
	if why := tbl.capacity.reserve(&g); why != "" {
		return nil, &link.Rejected{Attempt: id, Message: why}
	}
	at = &attempt{id: id, table: tbl, grant: g, cancel: cancel, inline: cancel == nil, assignedAt: now, leaseStart: leaseStart}
	tbl.track(at, spec)
	if !at.inline {
		tbl.queue(at)
	}
	return at, nil
}

// leaseGrace returns how long an attempt may run without contact to the server.
func leaseGrace(spec *muster.TaskSpec) time.Duration {
	if d := spec.Disconnect.Grace.Std(); d > 0 {
		return d
	}
	return defaultGrace
}

// track begins to hold an attempt that is executed.
func (tbl *attemptTable) track(at *attempt, spec *muster.TaskSpec) {
	at.checkpoint = spec.Checkpoint != nil
	at.grace = leaseGrace(spec)
	tbl.minGrace = min(tbl.minGrace, at.grace)
	// The lease counts from a contact that may be almost one heartbeat old.
	tbl.nextHeartbeat = min(tbl.nextHeartbeat, max(tbl.clock(), tbl.lastHeartbeat+minHeartbeat, tbl.lastContact+at.grace/4))
	tbl.held[at.id] = at
	tbl.executing++
}

// rejectAttempt tells the server that an attempt will not run here.
func (tbl *attemptTable) rejectAttempt(id muster.AttemptID, why string) {
	tbl.reject(&link.Rejected{Attempt: id, Message: why})
}

// reject tells the server that an attempt will not run here.
func (tbl *attemptTable) reject(rejection *link.Rejected) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	tbl.rejected = append(tbl.rejected, *rejection)
	trySend(tbl.wake)
}

// finish takes the report of an attempt whose executor has returned.
func (tbl *attemptTable) finish(at *attempt, report *muster.Report) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	tbl.executing--
	tbl.capacity.release(&at.grant)
	at.cancel = nil
	now := tbl.clock()
	if !at.dropped && at.leaseExpired(now, tbl.lastContact) {
		tbl.log.Warn("an attempt ended after its lease; its result is dropped", slog.String("attempt", at.id.String()))
		at.dropped = true
		tbl.traffic.Expired++
	}
	if at.dropped {
		tbl.shipRemainingLog(at, report)
		return
	}
	at.complete(report)
	at.report = report
	tbl.queueSave(at, now)
	if report.LogSize > at.logAcked {
		tbl.queueLog(at)
	}
	tbl.queue(at)
	if tbl.executing == 0 {
		trySend(tbl.idle)
	}
}

// drop stops an attempt of which nothing is to be said any more but its log, which
// is kept until the server has it.
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

// markAcked takes note that the server has the report of an ended attempt, or wants nothing of it.
func (tbl *attemptTable) markAcked(at *attempt, recorded bool) {
	if !at.acked && tbl.onAcked != nil {
		tbl.onAcked(at.id, recorded)
	}
	at.acked = true
}

// removeIfDone removes an ended attempt once the server has all of it.
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
	if !at.inline && !at.persisted {
		tbl.toForget = append(tbl.toForget, at.id)
		trySend(tbl.ioWake)
	}
	if at.persisted {
		tbl.reportsToDelete = append(tbl.reportsToDelete, at.id)
		trySend(tbl.ioWake)
	}
	if !at.inline { // which has none; that of a process may be there and empty
		tbl.logsToDelete = append(tbl.logsToDelete, at.id)
		trySend(tbl.ioWake)
	}
	if tbl.executing == 0 || len(tbl.held) == 0 {
		trySend(tbl.idle)
	}
}

// constrained says why nothing new is taken; "" if it is.
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

// stopAccepting takes nothing new from now on.
func (tbl *attemptTable) stopAccepting(why string) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	if tbl.closeReason == "" {
		tbl.closeReason = why
		tbl.readyDirty = true
		trySend(tbl.wake)
	}
}

// stopAll stops everything that runs.
func (tbl *attemptTable) stopAll(why *run.Stopped) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	for _, at := range tbl.held {
		if at.running() {
			at.stop(why)
		}
	}
}

// count returns how many attempts are executed, and how many are held in all.
func (tbl *attemptTable) count() (executing, held int) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	return tbl.executing, len(tbl.held)
}

// ids returns the attempts that fulfil want, in order.
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
