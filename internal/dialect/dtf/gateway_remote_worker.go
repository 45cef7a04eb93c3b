package dtf

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster/internal/dialect/fleet"
)

// remoteWorker is a worker over all of its connections. It reconnects for every heartbeat, so a result comes on another connection than its
// task was sent on.
type remoteWorker struct {
	id string

	mu             sync.Mutex
	worker         *fleet.Worker
	session        *session // the newest one; nil for none
	awaitFirstBeat bool     // no heartbeat on its first connection yet: it drops tasks until then
	slots          int      // tasks at once; 1 for DTF's own workers
	canCancel      bool     // it implements cancel_task
	sent           map[string]*sentTask

	conns          int       // sessions so far
	execs          int       // execute_* on this session
	noHash         bool      // its version does not have the type hash
	lastRegister   time.Time // while it was drained
	oneTaskPerConn bool      // it lost a second execute_* on one connection
	reliable       bool      // it returned the result of a second execute_* on one connection
	beats          int       // heartbeats on this session
	lastExec       time.Time
	silentBeats    int  // heartbeats without a task in a row
	batched        bool // the last execute_* was a batch
}

// sentTask is a task that was sent and has no result.
type sentTask struct {
	lastHeard time.Time // when it was sent or mentioned
	conn      int       // number of the session
	execIndex int       // number of the execute_* on the session
	beats     int       // heartbeats since lastHeard
	batch     bool      // heartbeats do not mention tasks of a batch
}

type sendPlan struct {
	tasks   []*fleet.Task
	batch   bool // all tasks in one message
	cancels []string
	retryAt time.Time // of the next plan without other events; zero for none
}

// plan decides what to send now. It implements the rules of the protocol: nothing before the first heartbeat of a worker's first
// connection; one task at a time, the next one after its result; the same task again if heartbeats do not mention it.
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
		case s == nil && t.Started(): // before a restart of the server: it may be running
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
		o.tasks = overdue[:1] // one by one, also of a batch
		return o
	}
	free := p.slots - len(p.sent)
	if free <= 0 || len(unsent) == 0 {
		return o
	}
	if due := p.lastExec.Add(set.resendAfter); p.oneTaskPerConn && p.execs > 0 && now.Before(due) { // there may be no next connection
		o.retryAt = earlier(o.retryAt, due)
		return o
	}
	if p.slots > 1 && p.canCancel { // a bridge of Muster
		o.tasks = unsent[:min(free, len(unsent))]
		return o
	}
	if len(p.sent) > 0 {
		return o // wait for the results
	}
	o.tasks = unsent[:1]
	if set.batch > 1 {
		o.tasks = batchWith(unsent, set.batch)
		o.batch = len(o.tasks) > 1 && !p.canCancel
	}
	return o
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// batchWith returns the first task and those that can be in a batch with it.
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

func toWireTask(t *fleet.Task) (wireTask, error) {
	taskType, config, err := fromMuster(t.Run().Spec)
	return wireTask{TaskID: t.ID(), TaskType: taskType, Config: config}, err
}

// markSent records that tasks were sent on the session.
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

// recordHeartbeat records a heartbeat with one task or none. It reports whether the worker is idle: after two heartbeats without a task, or
// after many if it may run a batch, whose tasks heartbeats do not mention.
func (p *remoteWorker) recordHeartbeat(now time.Time, task string, bridgeTurn time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awaitFirstBeat = false
	if p.beats++; p.beats >= 3 { // its connections last
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
		} else if p.slots == 1 || s.lastHeard.Add(bridgeTurn).Before(now) { // a bridge of Muster mentions its tasks in turn
			s.beats++
		}
	}
	return p.silentBeats >= threshold
}

func (p *remoteWorker) markReported(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.sent[id]; s != nil && s.execIndex > 1 && s.conn == p.conns {
		p.reliable, p.oneTaskPerConn = true, false
	}
	delete(p.sent, id)
}

// staysDrained reports whether a drained worker may not register yet: it registers with each connection and would return at once. It may
// join again after it was disconnected for twice the grace period.
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

// fleetWorker returns the worker of the last registration.
func (p *remoteWorker) fleetWorker() *fleet.Worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.worker
}

func remove(list []string, word string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == word })
}

// maxRemoteWorkers bounds gateway.workers; the fleet has a limit of its own.
const maxRemoteWorkers = 10_000

func (g *gateway) remoteWorker(id string) *remoteWorker {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.workers[id]
	if p == nil {
		if len(g.workers) >= maxRemoteWorkers {
			maps.DeleteFunc(g.workers, func(other string, q *remoteWorker) bool { return g.Fleet.Worker(other) == nil && q.isDisconnected() })
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
