package simtest

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

// worker is a model of the real one: it respects leases, repeats reports until they are
// acknowledged, and can crash and freeze.
type worker struct {
	id             muster.WorkerID
	offer          muster.Worker
	session        int // 0: not connected; else the number of its session
	frozen         bool
	dead           bool          // its process has exited, until it is restarted
	alwaysSucceeds bool          // every attempt succeeds after two minutes, unless it is broken
	broken         muster.Reason // every attempt fails at once with it; NoReason while it is healthy
	lastContact    muster.Time
	disconnectedAt muster.Time // when its last session ended
	runs           map[muster.AttemptID]*execution
	reports        map[muster.AttemptID]muster.Report
	nextRenew      muster.Time
	steps          int
}

// execution is one attempt on a worker.
type execution struct {
	attempt muster.AttemptID
	grace   muster.Duration // how long it may run without contact to the server
	grant   muster.Grant
	endAt   muster.Time
	started muster.Time
	report  muster.Report
}

// approve approves the worker for all its sessions.
func (w *worker) approve() sched.Event {
	w.offer.Pending = false
	return sched.Approve{Worker: w.id}
}

func (w *worker) awake() bool { return !w.dead && !w.frozen }

// held lists what the worker runs or has not been able to report, sorted.
func (w *worker) held() []muster.AttemptID {
	ids := slices.Collect(maps.Keys(w.runs))
	ids = slices.AppendSeq(ids, maps.Keys(w.reports))
	slices.SortFunc(ids, func(a, b muster.AttemptID) int {
		if c := compareTasks(a.Task, b.Task); c != 0 {
			return c
		}
		return a.N - b.N
	})
	return ids
}

// receive handles a command from the server and returns the resulting events.
func (w *worker) receive(now muster.Time, rng *rand.Rand, cmd sched.Command) []sched.Event {
	w.lastContact = now
	switch m := cmd.(type) {
	case sched.Assign:
		if !w.alwaysSucceeds && rng.IntN(40) == 0 {
			return []sched.Event{sched.Rejected{Worker: w.id, Attempt: m.Attempt, Message: "not now"}}
		}
		ex := newExecution(now, rng, m)
		switch {
		case w.broken != muster.NoReason:
			ex.fail(w.broken)
		case w.alwaysSucceeds:
			ex.succeed(2 * time.Minute)
		}
		w.runs[m.Attempt] = ex
		return []sched.Event{
			sched.Accepted{Worker: w.id, Attempt: m.Attempt},
			sched.Started{Worker: w.id, Attempt: m.Attempt, At: now},
		}
	case sched.Stop:
		delete(w.reports, m.Attempt)
		ex := w.runs[m.Attempt]
		if ex == nil {
			return nil
		}
		if m.Outcome == muster.AttemptLost {
			delete(w.runs, m.Attempt)
			return nil
		}
		if m.Reason.FleetFault() && rng.IntN(8) == 0 {
			return nil // it does not stop in time
		}
		ex.endAt = now + muster.Time(rng.IntN(4000))
		ex.report.Outcome, ex.report.Reason, ex.report.ExitCode = muster.AttemptCancelled, m.Reason, nil
		if m.Reason.FleetFault() {
			ex.report.Outcome = muster.AttemptFailed
		}
	case sched.HealGPUs:
		for _, uuid := range m.GPUs {
			w.quarantine(uuid, "")
		}
		return []sched.Event{w.offered()}
	case sched.Drained:
	}
	return nil
}

// quarantine sets or clears the quarantine of a device.
func (w *worker) quarantine(uuid, why string) {
	gpus := slices.Clone(w.offer.Resources.GPUs) // events share the old ones
	for i := range gpus {
		if gpus[i].UUID == uuid {
			gpus[i].Quarantined = why
		}
	}
	w.offer.Resources.GPUs = gpus
}

// toggleEngine stops or starts the worker's container engine.
func (w *worker) toggleEngine() {
	kinds := slices.DeleteFunc(slices.Clone(w.offer.Kinds), func(kind string) bool { return kind == muster.KindContainer })
	if len(kinds) == len(w.offer.Kinds) {
		kinds = append(kinds, muster.KindContainer)
	}
	w.offer.Kinds = kinds
}

func (w *worker) offered() sched.Event {
	o := &w.offer
	return sched.Offered{Worker: w.id, Offer: muster.Offer{Tags: o.Tags, Kinds: o.Kinds, Resources: o.Resources, Allow: o.Allow, Lacks: o.UnsupportedFeatures, Projects: o.Projects}}
}

func newExecution(now muster.Time, rng *rand.Rand, m sched.Assign) *execution {
	grace := m.Spec.Disconnect.Grace.Or(muster.DefaultDisconnectGrace)
	ex := &execution{attempt: m.Attempt, grace: grace, grant: m.Grant, started: now}
	ex.report = muster.Report{Attempt: m.Attempt, StartedAt: now}
	length := muster.Time(rng.IntN(20_000))
	code := 0
	switch rng.IntN(12) {
	case 0, 1:
		code = 1 + rng.IntN(3)
		ex.report.Outcome, ex.report.Reason = muster.AttemptFailed, muster.ExitCode
	case 2:
		ex.report.Outcome, ex.report.Reason = muster.AttemptTimedOut, muster.Timeout
	case 3:
		ex.report.Outcome, ex.report.Reason = muster.AttemptFailed, muster.FetchFailed
	case 5:
		ex.report.Outcome, ex.report.Result = muster.AttemptSucceeded, []byte(resultOf(m.Attempt.N))
		if m.Spec.Isolation == muster.IsolationContainer {
			ex.report.Outcome, ex.report.Reason = muster.AttemptFailed, []muster.Reason{muster.EngineFailed, muster.ImagePull, muster.ImageMissing}[rng.IntN(3)]
		}
	case 4:
		length *= 20
		fallthrough
	default:
		ex.report.Outcome = muster.AttemptSucceeded
		ex.report.Result = []byte(resultOf(m.Attempt.N))
		ex.report.Artifacts = []muster.Artifact{{Name: "out.bin", Size: 1, SHA256: someHash}}
	}
	ex.report.ExitCode = &code
	ex.endAt = now + length
	return ex
}

// fail makes an execution fail at once by the fleet's fault.
func (ex *execution) fail(reason muster.Reason) {
	ex.endAt = ex.started
	ex.report = muster.Report{Attempt: ex.attempt, StartedAt: ex.started, Outcome: muster.AttemptFailed, Reason: reason}
}

// handBack ends all executions and reports them as lost.
func (w *worker) handBack(now muster.Time, why muster.Reason) {
	for _, ex := range w.runs {
		ex.endAt = now
		ex.report = muster.Report{Attempt: ex.attempt, StartedAt: ex.started, Outcome: muster.AttemptLost, Reason: why}
	}
}

// succeed makes an execution succeed after a time.
func (ex *execution) succeed(after time.Duration) {
	ex.endAt = ex.started.Add(muster.Duration(after))
	ex.report = muster.Report{Attempt: ex.attempt, StartedAt: ex.started, Outcome: muster.AttemptSucceeded, Result: []byte(resultOf(ex.attempt.N))}
}

// step ends what is due and returns reports. It first kills what outlived its lease, as
// the real worker does after it was frozen.
func (w *worker) step(now muster.Time) []sched.Event {
	w.steps++
	for _, id := range slices.SortedFunc(maps.Keys(w.runs), func(a, b muster.AttemptID) int { return compareTasks(a.Task, b.Task) }) {
		ex := w.runs[id]
		switch {
		case now-w.lastContact > muster.Time(ex.grace.Std().Milliseconds()):
			delete(w.runs, id)
		case ex.endAt <= now:
			ex.report.FinishedAt = now
			delete(w.runs, id)
			w.reports[id] = ex.report
		}
	}
	if w.session == 0 {
		return nil
	}
	var events []sched.Event
	for _, id := range w.held() {
		if w.runs[id] != nil && (w.steps+id.Task.Num)%16 == 0 {
			events = append(events, sched.CheckpointSaved{Worker: w.id, Attempt: id, SHA256: treeOf(id.N, w.steps)})
		}
		if r, ok := w.reports[id]; ok {
			events = append(events, sched.Finished{Worker: w.id, Report: r})
		}
	}
	if w.nextRenew <= now {
		w.nextRenew = now + muster.Time(w.offer.Heartbeat.Or(heartbeat).Std().Milliseconds())
		events = append(events, sched.Renewed{Worker: w.id, Held: w.held(), Load: &muster.Load{CPU: 0.5}})
	}
	return events
}

// crash ends all executions; unacknowledged reports are on the worker's disk.
func (w *worker) crash() {
	w.dead, w.session = true, 0
	clear(w.runs)
}

// welcome handles the stop list of a new session.
func (w *worker) welcome(now muster.Time, stop []muster.AttemptID) {
	w.lastContact = now
	for _, id := range stop {
		delete(w.runs, id)
		delete(w.reports, id)
	}
}
