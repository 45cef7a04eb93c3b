package simtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
	"github.com/muster-dev/muster/internal/sched/inflight"
)

const (
	heartbeat = muster.Duration(2 * time.Second)
	someHash  = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
)

// simulation is the simulated server, workers, network and clock.
type simulation struct {
	rng         *rand.Rand
	cfg         sched.Config
	now         muster.Time
	st          *sched.State
	disk        *disk
	workers     []*worker
	packets     []packet // in flight, by time
	sent        int      // packets ever, to order those of one time
	joins       int      // sessions ever
	faults      bool
	extraEvents func() []sched.Event // called in every step, may be nil
	digest      hash.Hash64          // of all effects, may be nil
	retried     map[muster.TaskID]bool
	stopped     map[muster.JobID]bool // too many of their tasks have failed, and they were not retried since
	serverStart muster.Time           // last start of the server
	cacheFailed map[inflight.Key]bool // an identical task has failed
	trace       func(format string, args ...any)
	stats       stats
}

// stats counts what happened in a run, so that a test can check that everything happened.
type stats struct {
	submits, cancels, retries, crashesBefore, crashesAfter, workerCrashes, freezes, disconnects, assigns, refusals int
	quarantines, heals, preemptions, continued, gangMembers, engines, contained, retriedElsewhere                  int
	breakdowns, avoided, handbacks, edits, holds, removals, met, unmet, stopped, limited, reused, fannedOut        int
	cacheHits, cacheMisses                                                                                         int
}

// packet is one message of one session.
type packet struct {
	at       muster.Time
	order    int
	worker   int
	session  int
	toServer []sched.Event
	toWorker sched.Command
	acks     []muster.AttemptID
}

func newSimulation(seed uint64, trace func(string, ...any)) *simulation {
	w := &simulation{
		rng: rand.New(rand.NewPCG(seed, 42)), disk: newDisk(), faults: true, now: 1_700_000_000_000,
		cfg:     sched.Config{Heartbeat: heartbeat, AssignGrace: muster.Duration(5 * time.Second), CrashLimit: 5},
		retried: map[muster.TaskID]bool{}, stopped: map[muster.JobID]bool{}, cacheFailed: map[inflight.Key]bool{}, trace: trace, digest: fnv.New64a(),
	}
	w.st = sched.New(w.cfg)
	for i := range 2 + w.rng.IntN(5) {
		w.workers = append(w.workers, w.newWorker(i))
	}
	return w
}

// run injects faults for a number of steps, then heals everything and waits until all
// tasks have ended.
func (w *simulation) run(steps int) error {
	for range steps {
		if err := w.step(); err != nil {
			return err
		}
	}
	return w.heal()
}

// heal ends all faults: every job must end within a day of virtual time.
func (w *simulation) heal() error {
	w.faults = false
	for _, wk := range w.workers {
		wk.frozen, wk.dead, wk.broken = false, false, muster.NoReason
	}
	begun := w.now
	for {
		open := w.openJobs()
		if open == 0 {
			return w.checkAll()
		}
		if w.now-begun > muster.Time((24 * time.Hour).Milliseconds()) {
			return fmt.Errorf("%d jobs do not end after all faults have: %s", open, w.describeOpen())
		}
		if err := w.step(); err != nil {
			return err
		}
	}
}

func (w *simulation) openJobs() int {
	n := 0
	for _, j := range w.disk.jobs {
		if !j.State.Final() {
			n++
		}
	}
	return n
}

func (w *simulation) describeOpen() string {
	for _, t := range w.disk.sortedTasks() {
		if !t.State.Final() {
			x, err := w.st.Explain(w.now, t.ID)
			return fmt.Sprintf("task %s is %s: %s (%v)", t.ID, t.State, x.Summary, err)
		}
	}
	for _, g := range w.disk.sortedGroups() {
		if g.Materialized < g.Size && !g.UnmaterializedState.Final() && !w.disk.jobs[g.Job].State.Final() {
			x, err := w.st.Explain(w.now, muster.TaskID{Job: g.Job, Num: g.First + g.Materialized})
			return fmt.Sprintf("the rest of group %d of job %d is %s: %s (%v)", g.Index, g.Job, g.UnmaterializedState, x.Summary, err)
		}
	}
	return "but no task is open"
}

// step is one step of the simulation.
func (w *simulation) step() error {
	w.now += muster.Time(20 + w.rng.IntN(480))
	if !w.faults {
		w.now += muster.Time(w.rng.IntN(1500)) // less happens: advance faster
	}
	var events []sched.Event
	if w.faults {
		events = append(events, w.userEvents()...)
		events = append(events, w.faultEvents()...)
	} else {
		events = append(events, w.unpause()...)
	}
	if w.extraEvents != nil {
		events = append(events, w.extraEvents()...)
	}
	joined := w.connecting()
	for i, wk := range w.workers {
		if wk.awake() {
			if ev := wk.step(w.now); len(ev) > 0 {
				w.post(packet{worker: i, toServer: ev})
			}
		}
	}
	events = append(events, w.deliver()...)
	return w.serve(events, joined)
}

// deliver delivers every packet that is due: those to workers at once, those to the
// server as the events of this step.
func (w *simulation) deliver() []sched.Event {
	var events []sched.Event
	for len(w.packets) > 0 && w.packets[0].at <= w.now {
		p := w.packets[0]
		w.packets = w.packets[1:]
		wk := w.workers[p.worker]
		switch {
		case p.session != wk.session: // of an ended session
		case p.toServer != nil:
			events = append(events, p.toServer...)
			if w.faults && w.rng.IntN(20) == 0 {
				events = append(events, p.toServer...) // a repeated packet
			}
		case !wk.awake():
			p.at = w.now + 300 // it stays in the socket until the worker is not frozen
			w.insert(p)
		default:
			for _, a := range p.acks {
				delete(wk.reports, a)
			}
			if p.toWorker == nil {
				wk.lastContact = w.now
				continue
			}
			if ev := wk.receive(w.now, w.rng, p.toWorker); len(ev) > 0 {
				w.post(packet{worker: p.worker, toServer: ev})
			}
		}
	}
	return events
}

// post sends a packet over its worker's session, with a random delay and in order.
func (w *simulation) post(p packet) {
	wk := w.workers[p.worker]
	if wk.session == 0 {
		return
	}
	p.session = wk.session
	p.at = w.now + muster.Time(w.rng.IntN(200))
	for _, q := range w.packets {
		if q.worker == p.worker && (q.toServer == nil) == (p.toServer == nil) {
			p.at = max(p.at, q.at)
		}
	}
	w.insert(p)
}

func (w *simulation) insert(p packet) {
	w.sent++
	p.order = w.sent
	i, _ := slices.BinarySearchFunc(w.packets, p, func(a, b packet) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order))
	})
	w.packets = slices.Insert(w.packets, i, p)
}

// disconnect ends a worker's session and returns the event for the server.
func (w *simulation) disconnect(i int) []sched.Event {
	wk := w.workers[i]
	if wk.session == 0 {
		return nil
	}
	wk.session, wk.disconnectedAt = 0, w.now
	w.packets = slices.DeleteFunc(w.packets, func(p packet) bool { return p.worker == i })
	return []sched.Event{sched.Disconnected{Worker: wk.id}}
}

// connecting lists the workers that connect in this step.
func (w *simulation) connecting() []int {
	var joined []int
	for i, wk := range w.workers {
		if wk.awake() && wk.session == 0 && (!w.faults || w.rng.IntN(4) == 0) {
			wk.step(w.now) // it checks its leases before it connects
			joined = append(joined, i)
		}
	}
	return joined
}

// serve is one batch of the server: decide, commit, act, with random crashes in between.
func (w *simulation) serve(events []sched.Event, joined []int) error {
	acks := map[int][]muster.AttemptID{}
	var removed, retried []muster.JobID
	for _, ev := range events {
		accepted, err := w.apply(ev)
		if err != nil {
			return err
		}
		if r, ok := ev.(sched.JobRemoved); ok && accepted {
			removed = append(removed, r.Job)
		}
		if r, ok := ev.(sched.Retry); ok && accepted {
			retried = append(retried, r.Job.ID)
		}
		if f, ok := ev.(sched.Finished); ok {
			acks[w.index(f.Worker)] = append(acks[w.index(f.Worker)], f.Report.Attempt)
		}
		if r, ok := ev.(sched.Renewed); ok {
			acks[w.index(r.Worker)] = append(acks[w.index(r.Worker)], muster.AttemptID{})
		}
	}
	stops := map[int][]muster.AttemptID{}
	for _, i := range joined {
		wk := w.workers[i]
		offer := wk.offer
		if _, err := w.apply(sched.Joined{Worker: offer, Held: wk.held()}); err != nil {
			return err
		}
		_, stops[i] = w.st.Reconcile(wk.id, wk.held())
	}
	if wake := w.st.NextTick(); wake != 0 && wake <= w.now {
		if _, err := w.apply(sched.Tick{}); err != nil {
			return err
		}
	}
	if err := w.lookUp(); err != nil {
		return err
	}
	w.st.Place(w.now)
	fx := w.st.Flush()
	if err := w.st.Check(); err != nil {
		return fmt.Errorf("the state is inconsistent: %w", err)
	}
	if w.faults && w.rng.IntN(150) == 0 {
		w.stats.crashesBefore++
		return w.restart()
	}
	if err := w.checkRows(fx.Rows); err != nil {
		return err
	}
	if err := w.commit(fx.Rows, retried); err != nil {
		return err
	}
	for _, id := range removed {
		w.disk.removed[id] = true
		w.stats.removals++
	}
	w.recordEffects(fx)
	if w.faults && w.rng.IntN(150) == 0 {
		w.stats.crashesAfter++
		return w.restart()
	}
	for _, i := range joined {
		w.joins++
		w.workers[i].session = w.joins
		w.workers[i].nextRenew = w.now
		w.workers[i].welcome(w.now, stops[i])
	}
	for _, cmd := range fx.Commands {
		if err := w.checkSend(cmd); err != nil {
			return err
		}
		w.post(packet{worker: w.index(cmd.To()), toWorker: cmd})
	}
	for i := range w.workers {
		if a := acks[i]; len(a) > 0 {
			w.post(packet{worker: i, acks: a})
		}
	}
	every := 25
	if !w.faults {
		every = 100
	}
	if w.rng.IntN(every) == 0 {
		return w.checkAll()
	}
	return nil
}

// apply applies one event. Refusals are expected, but must not change anything.
func (w *simulation) apply(ev sched.Event) (accepted bool, err error) {
	var before muster.Snapshot
	compare := w.rng.IntN(60) == 0
	if compare {
		before = w.st.Snapshot()
	}
	err = w.st.Apply(w.now, ev)
	if err == nil {
		return true, nil
	}
	w.stats.refusals++
	if compare {
		if d := diff(before, w.st.Snapshot()); d != "" {
			return false, fmt.Errorf("%T was refused (%w) but changed the state:\n%s", ev, err, d)
		}
	}
	return false, nil
}

// restart crashes and restarts the server.
func (w *simulation) restart() error {
	w.serverStart = w.now
	for i := range w.workers {
		w.disconnect(i)
	}
	w.packets = nil
	st, err := sched.Rebuild(w.cfg, w.now, w.disk.load())
	if err != nil {
		return fmt.Errorf("rebuild: %w", err)
	}
	w.st = st
	if err := st.Check(); err != nil {
		return fmt.Errorf("the rebuilt state contradicts itself: %w", err)
	}
	return nil
}

// recordEffects updates the trace, the stats and the digest.
func (w *simulation) recordEffects(fx sched.Effects) {
	if w.trace != nil {
		for _, t := range fx.Rows.Tasks {
			w.trace("%s task %s %s attempt %d on %s %s", w.now, t.ID, t.State, t.Attempt, t.Worker, t.Reason)
		}
	}
	for _, ev := range fx.Events {
		if strings.HasPrefix(ev.Constrained, "is avoided until ") {
			w.stats.avoided++
		}
	}
	if w.digest == nil {
		return
	}
	if err := json.NewEncoder(w.digest).Encode([]any{fx.Rows, fx.Commands, fx.Events}); err != nil {
		panic(fmt.Sprintf("effects cannot be written as JSON: %v", err))
	}
}

func (w *simulation) index(id muster.WorkerID) int {
	return slices.IndexFunc(w.workers, func(wk *worker) bool { return wk.id == id })
}

func (s stats) add(o stats) stats {
	return stats{
		s.submits + o.submits, s.cancels + o.cancels, s.retries + o.retries, s.crashesBefore + o.crashesBefore, s.crashesAfter + o.crashesAfter,
		s.workerCrashes + o.workerCrashes, s.freezes + o.freezes, s.disconnects + o.disconnects, s.assigns + o.assigns, s.refusals + o.refusals,
		s.quarantines + o.quarantines, s.heals + o.heals, s.preemptions + o.preemptions, s.continued + o.continued, s.gangMembers + o.gangMembers,
		s.engines + o.engines, s.contained + o.contained, s.retriedElsewhere + o.retriedElsewhere,
		s.breakdowns + o.breakdowns, s.avoided + o.avoided, s.handbacks + o.handbacks, s.edits + o.edits, s.holds + o.holds, s.removals + o.removals,
		s.met + o.met, s.unmet + o.unmet, s.stopped + o.stopped, s.limited + o.limited, s.reused + o.reused, s.fannedOut + o.fannedOut, s.cacheHits + o.cacheHits, s.cacheMisses + o.cacheMisses,
	}
}

// lowest returns the smallest count.
func (s stats) lowest() int {
	return min(s.submits, s.cancels, s.retries, s.crashesBefore, s.crashesAfter, s.workerCrashes, s.freezes, s.disconnects, s.assigns, s.refusals,
		s.quarantines, s.heals, s.preemptions, s.continued, s.gangMembers, s.engines, s.contained, s.retriedElsewhere, s.breakdowns, s.avoided, s.handbacks, s.edits, s.holds, s.removals,
		s.met, s.unmet, s.stopped, s.limited, s.reused, s.fannedOut, s.cacheHits, s.cacheMisses)
}
