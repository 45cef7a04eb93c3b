package sched

import (
	"reflect"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
	"github.com/muster-dev/muster/internal/sched/health"
	"github.com/muster-dev/muster/internal/sched/retry"
)

// worker returns a known worker, or a NotFound error.
func (s *State) worker(id muster.WorkerID) (*worker, error) {
	if i, ok := s.find(id); ok {
		return s.workers[i], nil
	}
	return nil, muster.Errorf(muster.NotFound, "there is no worker %q", id)
}

// Pending reports whether a worker waits for approval.
func (s *State) Pending(id muster.WorkerID) bool {
	w, err := s.worker(id)
	return err == nil && w.row.Pending
}

// connectedWorker returns a worker that has a session, or a NotFound or Conflict error.
func (s *State) connectedWorker(id muster.WorkerID) (*worker, error) {
	w, err := s.worker(id)
	if err == nil && !w.connected {
		return nil, notConnected(w)
	}
	return w, err
}

// find returns the position of id among the workers, and whether it is known.
func (s *State) find(id muster.WorkerID) (int, bool) {
	return slices.BinarySearchFunc(s.workers, id, func(w *worker, id muster.WorkerID) int {
		return strings.Compare(string(w.row.ID), string(id))
	})
}

func (s *State) join(now muster.Time, ev Joined) error {
	if err := placement.Validate(&ev.Worker); err != nil {
		return err
	}
	if named, err := s.worker(muster.WorkerID(ev.Worker.Name)); err == nil && named.row.ID != ev.Worker.ID {
		return muster.Errorf(muster.Invalid, "the name %q is the id of another worker, whose tasks it would get: choose another name (--name)", ev.Worker.Name)
	}
	i, known := s.find(ev.Worker.ID)
	if !known {
		for _, other := range s.workers {
			if other.row.Name == string(ev.Worker.ID) {
				return muster.Errorf(muster.Invalid, "the id %q is the name of another worker, whose tasks it would get: delete identity.json and choose another --worker-id", ev.Worker.ID)
			}
		}
		w := newWorker(muster.Worker{ID: ev.Worker.ID, JoinedAt: now, Pending: ev.Worker.Pending})
		s.workers = slices.Insert(s.workers, i, w)
		s.out.removed = slices.DeleteFunc(s.out.removed, func(id muster.WorkerID) bool { return id == ev.Worker.ID })
	}
	w := s.workers[i]
	if w.gone {
		w.health = health.Record{} // it was restarted on purpose
		s.onHealthChange(now, w)
	}
	s.applyDescription(w, ev.Worker)
	w.connected, w.responsive, w.drainSent, w.cleanShutdown, w.constrained, w.load = true, true, false, false, ev.Constrained, nil
	w.seen, w.sessionStart = now, now
	s.changedWorker(w)
	s.deriveState(now, w)
	s.armWorker(now, w)

	held := make(map[muster.AttemptID]bool, len(ev.Held))
	for _, a := range ev.Held {
		held[a] = true
	}
	for _, t := range w.sortedTasks() {
		switch {
		case !held[t.attempt()]:
			s.loseAttempt(now, t, muster.WorkerRestarted)
		case t.row.State == muster.Cancelling || t.preemptReason != muster.NoReason:
			t.accepted = true
			s.stop(now, t)
		default:
			t.accepted = true
		}
	}
	for _, t := range w.held {
		s.armTask(t)
	}
	if len(w.held) == 0 {
		s.onIdle(now, w)
	}
	s.recordUsedAttempts(w, ev.Held, ev.Stale)
	return nil
}

// maxJobSkip limits how many job numbers one hello can make the server skip, so that a false one cannot exhaust them.
const maxJobSkip = 1_000_000

// recordUsedAttempts records the attempts that a worker knows and that are not current here. After a restored backup the
// server could reuse their numbers. It does not assign them to this worker while it still has data of them, and it
// skips the numbers of unknown jobs.
func (s *State) recordUsedAttempts(w *worker, lists ...[]muster.AttemptID) {
	w.usedAttempts = nil
	next := s.nextJob
	for _, list := range lists {
		for _, a := range list {
			if _, err := s.current(w.row.ID, a); err == nil {
				continue
			}
			if w.usedAttempts == nil {
				w.usedAttempts = map[muster.AttemptID]struct{}{}
			}
			w.usedAttempts[a] = struct{}{}
			if job := a.Task.Job; job >= next && job < s.nextJob+maxJobSkip {
				next = job + 1
			}
		}
	}
	if next > s.nextJob {
		s.nextJob, s.out.nextJob = next, next
	}
}

// applyDescription replaces the worker's description, and recomputes its usage from the
// tasks that it holds.
func (s *State) applyDescription(w *worker, row muster.Worker) {
	s.countCapacity(w, -1)
	for _, t := range w.held {
		t.group.job.project.Usage.AddGrant(t.row.Grant, &w.row.Resources, -1)
	}
	row.Paused, row.Draining, row.Deadline, row.JoinedAt, row.State = w.row.Paused, w.row.Draining, w.row.Deadline, w.row.JoinedAt, w.row.State
	row.Pending = row.Pending && w.row.Pending // an approval stays
	row.Free, row.Load, row.Running, row.LastSeenAt = nil, nil, 0, 0
	if s.limits.Count(&row, 1) {
		s.reshape()
	}
	s.limits.Count(&w.row, -1)
	w.row = row
	w.Usage = placement.NewWorkerUsage(&w.row)
	for _, t := range w.held {
		w.Usage.Reserve(t.row.Grant)
		t.group.job.project.Usage.AddGrant(t.row.Grant, &w.row.Resources, 1)
	}
	w.gone, w.shrunk = false, w.Usage.Overcommitted()
	s.countCapacity(w, 1)
	s.queue.SpecChanged(&w.Worker)
}

// updateOffer replaces the description of a connected worker. Its tasks keep running,
// also on a GPU that is quarantined now.
func (s *State) updateOffer(now muster.Time, ev Offered) error {
	w, err := s.connectedWorker(ev.Worker)
	if err != nil {
		return err
	}
	row := w.row
	row.Tags, row.Kinds, row.CustomKinds, row.Resources, row.Allow, row.UnsupportedFeatures, row.Projects = ev.Tags, ev.Kinds, ev.OwnKinds, ev.Resources, ev.Allow, ev.Lacks, ev.Projects
	if err := placement.Validate(&row); err != nil {
		return err
	}
	s.touch(now, w)
	if reflect.DeepEqual(&row, &w.row) {
		return nil // unchanged since an earlier session
	}
	s.applyDescription(w, row)
	s.republish(now, w)
	return nil
}

// deriveState recomputes the worker's state, and reports whether it changed.
func (s *State) deriveState(now muster.Time, w *worker) bool {
	state, closed := muster.WorkerActive, w.health.AvoidReason(now)
	switch {
	case w.gone:
		state, closed = muster.WorkerGone, "has left"
	case !w.reachable():
		state, closed = muster.WorkerUnreachable, "is unreachable"
	case w.row.Pending:
		state, closed = muster.WorkerPending, "waits for approval (muster workers approve "+w.row.Name+")"
	case w.row.Draining:
		state, closed = muster.WorkerDraining, "is draining"
	case w.row.Paused:
		state, closed = muster.WorkerPaused, "is paused"
	case w.constrained != "":
		closed = "takes no tasks now: " + w.constrained
	}
	if w.row.Quarantined != "" {
		closed = "is quarantined: " + w.row.Quarantined + " (muster workers reset " + w.row.Name + ")"
	}
	w.Usage.WillReopen = state == muster.WorkerActive && closed != ""
	if closed != w.Usage.ClosedReason {
		w.Usage.ClosedReason = closed
		s.queue.SpecChanged(&w.Worker)
	}
	if state == w.row.State {
		return false
	}
	w.row.State = state
	s.changedWorker(w)
	s.publishWorker(now, w)
	return true
}

// republish stores a worker's row, and publishes it also if its state stays.
func (s *State) republish(now muster.Time, w *worker) {
	if s.changedWorker(w); !s.deriveState(now, w) {
		s.publishWorker(now, w)
	}
}

// touch records that the worker sent something.
func (s *State) touch(now muster.Time, w *worker) {
	if !w.connected {
		return
	}
	w.seen = now
	if w.responsive {
		return
	}
	w.responsive = true
	s.reachabilityChanged(now, w)
}

// markUnreachable starts the leases of the worker's tasks, from the time when it was last seen.
func (s *State) markUnreachable(now muster.Time, w *worker) {
	w.responsive = false
	s.reachabilityChanged(now, w)
}

func (s *State) reachabilityChanged(now muster.Time, w *worker) {
	s.deriveState(now, w)
	for _, t := range w.held {
		s.armTask(t)
	}
	s.armWorker(now, w)
}

// markGone removes a worker's capacity from the fleet.
func (s *State) markGone(now muster.Time, w *worker) {
	s.countCapacity(w, -1)
	w.gone = true
	s.deriveState(now, w)
}

// countCapacity adds sign times what the worker offers to the capacity of the fleet, unless it is gone or pending.
func (s *State) countCapacity(w *worker, sign int64) {
	if !w.gone && !w.row.Pending {
		s.capacity.AddCapacity(&w.row.Resources, sign)
	}
}

// onIdle handles a worker that holds no task: a draining one receives Drained.
func (s *State) onIdle(now muster.Time, w *worker) {
	switch {
	case w.gone:
	case !w.reachable():
		s.armWorker(now, w)
	case w.row.Draining && !w.drainSent:
		w.drainSent = true
		s.send(w, Drained{Worker: w.row.ID})
	}
}

func (s *State) ready(now muster.Time, ev Ready) error {
	w, err := s.connectedWorker(ev.Worker)
	if err != nil {
		return err
	}
	s.touch(now, w)
	if w.constrained == ev.Constrained {
		return nil
	}
	w.constrained = ev.Constrained
	if !s.deriveState(now, w) {
		s.publishWorker(now, w)
	}
	return nil
}

func notConnected(w *worker) error {
	return muster.Errorf(muster.Conflict, "worker %s has no session: it must join first", w.row.ID)
}

func (s *State) disconnected(now muster.Time, ev Disconnected) error {
	w, err := s.connectedWorker(ev.Worker)
	if err != nil {
		return err
	}
	w.connected = false
	s.markUnreachable(now, w)
	return nil
}

func (s *State) shutDown(now muster.Time, ev ShutDown) error {
	w, err := s.worker(ev.Worker)
	if err != nil {
		return err
	}
	if w.gone {
		return notConnected(w)
	}
	w.connected, w.responsive, w.cleanShutdown, w.seen = false, false, true, now
	if w.row.Draining { // the drain is complete: a worker that reconnects is meant to work
		w.row.Draining, w.row.Deadline, w.evicting = false, 0, false
	}
	s.changedWorker(w)
	s.markGone(now, w)
	for _, t := range w.sortedTasks() {
		s.end(now, t, retry.End{
			Outcome: muster.AttemptLost, Reason: muster.WorkerShutdown, At: now, Message: "worker " + w.row.Name + " was shut down",
		})
	}
	s.armWorker(now, w)
	return nil
}

func (s *State) renew(now muster.Time, ev Renewed) error {
	w, err := s.connectedWorker(ev.Worker)
	if err != nil {
		return err
	}
	s.touch(now, w)
	w.load = ev.Load
	w.renewals++
	found := 0
	for _, a := range ev.Held {
		if t, err := s.current(w.row.ID, a); err == nil && t.lastRenewal != w.renewals {
			t.lastRenewal, t.accepted = w.renewals, true
			found++
		}
	}
	if found == len(w.held) && found == len(ev.Held) {
		return nil // the usual case
	}
	for _, t := range w.sortedTasks() {
		if t.lastRenewal != w.renewals && max(t.row.AssignedAt, w.sessionStart).Add(s.cfg.AssignGrace) < now {
			s.loseAttempt(now, t, muster.WorkerLost)
		}
	}
	_, stop := s.Reconcile(w.row.ID, ev.Held)
	for _, a := range stop {
		s.send(w, Stop{Worker: w.row.ID, Attempt: a, Outcome: muster.AttemptLost, Reason: muster.WorkerLost})
	}
	return nil
}

// Reconcile splits the attempts that a worker holds into the current ones, which it keeps,
// and those that it must stop and forget. Call it right after Joined.
func (s *State) Reconcile(w muster.WorkerID, held []muster.AttemptID) (keep, stop []muster.AttemptID) {
	for _, a := range held {
		if _, err := s.current(w, a); err != nil {
			stop = append(stop, a)
		} else {
			keep = append(keep, a)
		}
	}
	return keep, stop
}

// BlobRefs lists the stored blobs that an attempt reads.
type BlobRefs struct {
	Attempt muster.AttemptID
	Trees   []string           // hashes of trees; the attempt needs their files, too
	Stdin   string             // hash of the standard input; "" if it is empty
	Inputs  []muster.InputFile // of a stage: shared, not to be changed
}

// ResultInput returns a result with this hash that an attempt of a worker has as an input, or nil.
func (s *State) ResultInput(id muster.WorkerID, sha256 string) []byte {
	w, err := s.worker(id)
	if err != nil {
		return nil
	}
	for _, t := range w.held {
		if g := t.group; len(g.inputs) > 0 {
			if b := g.job.stageGraph().ResultInput(g.row.Index, g.inputs, sha256, g.job.result); b != nil {
				return b
			}
		}
	}
	return nil
}

// BlobRefs returns what the attempts of a worker need, including those just assigned.
func (s *State) BlobRefs(id muster.WorkerID) []BlobRefs {
	w, err := s.worker(id)
	if err != nil {
		return nil
	}
	refs := make([]BlobRefs, 0, len(w.held))
	for _, t := range w.held {
		n := BlobRefs{Attempt: t.attempt(), Inputs: t.group.inputs}
		if tree, ok := strings.CutPrefix(t.group.spec().Files, "sha256:"); ok {
			n.Trees = append(n.Trees, tree)
		}
		n.Stdin = strings.TrimPrefix(t.group.spec().Stdin, "sha256:")
		if t.row.Checkpoint != "" {
			n.Trees = append(n.Trees, t.row.Checkpoint)
		}
		refs = append(refs, n)
	}
	return refs
}
