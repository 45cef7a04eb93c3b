package dtf

import (
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster/internal/dialect/fleet"
)

// remoteWorker is one worker as its connections come and go. A task belongs to it and not to a connection: the worker connects again with every
// heartbeat, and a result comes on another connection than the task went.
type remoteWorker struct {
	id string

	mu             sync.Mutex
	worker         *fleet.Worker
	session        *session // the newest one; nil while there is none
	awaitFirstBeat bool     // its first connection since the server started, and no heartbeat on it yet: it drops what is sent
	slots          int      // tasks that it may have at once; 1 for every worker but ours
	canCancel      bool     // it heeds cancel_task
	sent           map[string]*sentTask

	conns          int       // sessions so far
	execs          int       // execute_* on this session
	noHash         bool      // it is of a version without that type
	lastRegister   time.Time // when it last registered while it was drained
	oneTaskPerConn bool      // it has lost a second execute_* on one connection: it gets one on each
	reliable       bool      // the result of a second one came on the same connection: what is lost is lost by chance
	beats          int       // heartbeats on this session
	lastExec       time.Time
	silentBeats    int  // heartbeats in a row that spoke of no task
	batched        bool // the last thing that it was sent is a batch
}

// sentTask is one task that was put to a worker and has not ended.
type sentTask struct {
	lastHeard time.Time // when it was sent, or last heard of
	conn      int       // on which session
	execIndex int       // execute_* of it
	beats     int       // heartbeats since then that did not speak of it
	batch     bool      // in a batch, of which heartbeats never speak
}

// sendPlan is what is to be said to a worker next.
type sendPlan struct {
	tasks   []*fleet.Task
	cancels []string
	retryAt time.Time // when to look again, if nothing happens before; zero: not by itself
}

// plan decides what to send now. It is the one place where the rules of the wire are kept:
// nothing before the first heartbeat of a worker's first connection, one task at a time and the next one only after its result, and again
// after a while in which heartbeats did not speak of it.
func (p *remoteWorker) plan(now time.Time, held []*fleet.Task, set *settings) sendPlan {
	p.mu.Lock()
	defer p.mu.Unlock()
	var o sendPlan
	ids := map[string]*fleet.Task{}
	for _, t := range held {
		ids[t.ID()] = t
	}
	for id := range p.sent {
		if ids[id] != nil {
			continue
		}
		if p.canCancel {
			o.cancels = append(o.cancels, id)
		}
		delete(p.sent, id)
	}
	if p.awaitFirstBeat || p.session == nil {
		return o
	}
	var unsent, overdue []*fleet.Task
	for _, t := range held {
		s := p.sent[t.ID()]
		switch {
		case s == nil && t.Started(): // in an earlier life of the server: it may be running
			p.sent[t.ID()] = &sentTask{lastHeard: now, conn: p.conns}
			o.retryAt = earlier(o.retryAt, now.Add(set.resendAfter))
		case s == nil:
			unsent = append(unsent, t)
		default:
			wait := set.resendAfter
			if s.batch {
				wait *= 5
			}
			if due := s.lastHeard.Add(wait); now.Before(due) {
				o.retryAt = earlier(o.retryAt, due)
			} else if s.beats >= set.resendBeats {
				overdue = append(overdue, t)
			} else {
				o.retryAt = earlier(o.retryAt, now.Add(set.resendAfter/5))
			}
		}
	}
	if len(overdue) > 0 {
		if s := p.sent[overdue[0].ID()]; s.execIndex > 1 && !p.reliable {
			p.oneTaskPerConn = true
		}
		o.tasks = overdue[:1] // one by one, whether it was a batch or not
		return o
	}
	free := p.slots - len(p.sent)
	if free <= 0 || len(unsent) == 0 {
		return o
	}
	if due := p.lastExec.Add(set.resendAfter); p.oneTaskPerConn && p.execs > 0 && now.Before(due) { // the next connection may never come
		o.retryAt = earlier(o.retryAt, due)
		return o
	}
	if p.slots > 1 && p.canCancel { // ours takes each on its own
		o.tasks = unsent[:min(free, len(unsent))]
		return o
	}
	if len(p.sent) > 0 {
		return o // what was sent as a batch is to come back first
	}
	o.tasks = unsent[:1]
	if set.batch > 1 {
		o.tasks = batchWith(unsent, set.batch)
	}
	return o
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// batchWith takes the first task and those that may be in a batch with it.
func batchWith(unsent []*fleet.Task, limit int) []*fleet.Task {
	first, err := toWireTask(unsent[0])
	if err != nil {
		return unsent[:1]
	}
	out := unsent[:1:1]
	for _, t := range unsent[1:] {
		if len(out) == limit {
			break
		}
		if w, err := toWireTask(t); err == nil && canBatch(first, w) {
			out = append(out, t)
		}
	}
	return out
}

// toWireTask is a task as DTF workers are told of it.
func toWireTask(t *fleet.Task) (wireTask, error) {
	taskType, config, err := fromMuster(t.Run().Spec)
	return wireTask{TaskID: t.ID(), TaskType: taskType, Config: config}, err
}

// markSent remembers that tasks were sent on the session.
func (p *remoteWorker) markSent(tasks []*fleet.Task, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.execs++
	p.lastExec = now
	p.silentBeats, p.batched = 0, len(tasks) > 1
	for _, t := range tasks {
		p.sent[t.ID()] = &sentTask{lastHeard: now, conn: p.conns, execIndex: p.execs, batch: len(tasks) > 1}
	}
}

// recordHeartbeat remembers a heartbeat, which speaks of one task or of none. It reports whether the worker runs nothing: after two heartbeats of
// none, since what was sent to it just now has not begun; after many where it may have a batch, of which it never speaks.
func (p *remoteWorker) recordHeartbeat(now time.Time, task string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awaitFirstBeat = false
	if p.beats++; p.beats >= 3 { // its connections last: it is none that gets one task on each
		p.oneTaskPerConn = false
	}
	p.silentBeats++
	threshold := 2
	if task != "" {
		p.silentBeats = 0
	}
	if p.batched {
		threshold = 30
	}
	for id, s := range p.sent {
		if id == task {
			s.lastHeard, s.beats = now, 0
		} else if p.slots == 1 || s.lastHeard.Add(time.Minute).Before(now) { // ours speaks of its tasks in turn
			s.beats++
		}
	}
	return p.silentBeats >= threshold
}

// markReported remembers that the result of a task came.
func (p *remoteWorker) markReported(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.sent[id]; s != nil && s.execIndex > 1 && s.conn == p.conns {
		p.reliable, p.oneTaskPerConn = true, false
	}
	delete(p.sent, id)
}

// forgetTask remembers that nothing more is to come of a task.
func (p *remoteWorker) forgetTask(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sent, id)
}

// staysDrained reports whether a worker that was drained is to stay away: it registers with each connection, and would come back at once. One that was
// away for longer, such as after maintenance, may join again.
func (p *remoteWorker) staysDrained(w *fleet.Worker, grace time.Duration) bool {
	if w == nil || w.Err() == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.lastRegister
	if seen := w.LastSeen(); seen.After(last) {
		last = seen
	}
	p.lastRegister = time.Now()
	return p.lastRegister.Sub(last) < 2*grace
}

// lacksHash reports whether it has said that it does not know hash.
func (p *remoteWorker) lacksHash() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.noHash
}

// fleetWorker is the worker as it registered last.
func (p *remoteWorker) fleetWorker() *fleet.Worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.worker
}

// isBridge reports whether it is a bridge of Muster, which takes several tasks and heeds cancel_task.
func (p *remoteWorker) isBridge() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.canCancel
}

func remove(list []string, word string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == word })
}

// maxRemoteWorkers bounds the workers that are remembered here; the fleet bounds those that there are.
const maxRemoteWorkers = 10_000

// remoteWorker returns the worker of an id, as it is remembered since the server started.
func (g *gateway) remoteWorker(id string) *remoteWorker {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.workers[id]
	if p == nil {
		if len(g.workers) >= maxRemoteWorkers {
			for other, q := range g.workers {
				if g.fleet.Worker(other) == nil && q.isDisconnected() {
					delete(g.workers, other)
				}
			}
		}
		p = &remoteWorker{id: id, slots: 1, sent: map[string]*sentTask{}}
		g.workers[id] = p
	}
	return p
}

func (p *remoteWorker) isDisconnected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session == nil
}
