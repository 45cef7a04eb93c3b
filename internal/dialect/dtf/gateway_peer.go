package dtf

import (
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster/internal/dialect/fleet"
)

// peer is one worker as its connections come and go. A task belongs to it and not to a connection: the worker connects again with every
// heartbeat, and a result comes on another connection than the task went.
type peer struct {
	id string

	mu      sync.Mutex
	worker  *fleet.Worker
	session *session // the newest one; nil while there is none
	first   bool     // its first connection since the server started, and no heartbeat on it yet: it drops what is sent
	slots   int      // tasks that it may have at once; 1 for every worker but ours
	cancels bool     // it heeds cancel_task
	sent    map[string]*sending

	conns    int       // sessions so far
	execs    int       // execute_* on this session
	noHash   bool      // it is of a version without that type
	tried    time.Time // when it last registered while it was drained
	onePer   bool      // it has lost a second execute_* on one connection: it gets one on each
	steady   bool      // the result of a second one came on the same connection: what is lost is lost by chance
	beats    int       // heartbeats on this session
	lastExec time.Time
	quiet    int  // heartbeats in a row that spoke of no task
	batched  bool // the last thing that it was sent is a batch
}

// sending is one task that was put to a worker and has not ended.
type sending struct {
	at    time.Time // when it was sent, or last heard of
	conn  int       // on which session
	nth   int       // execute_* of it
	beats int       // heartbeats since then that did not speak of it
	batch bool      // in a batch, of which heartbeats never speak
}

// order is what is to be said to a worker next.
type order struct {
	tasks   []*fleet.Task
	cancels []string
	again   time.Time // when to look again, if nothing happens before; zero: not by itself
}

// next decides what to send now. It is the one place where the rules of the wire are kept:
// nothing before the first heartbeat of a worker's first connection, one task at a time and the next one only after its result, and again
// after a while in which heartbeats did not speak of it.
func (p *peer) next(now time.Time, held []*fleet.Task, set *settings) order {
	p.mu.Lock()
	defer p.mu.Unlock()
	var o order
	ids := map[string]*fleet.Task{}
	for _, t := range held {
		ids[t.ID()] = t
	}
	for id := range p.sent {
		if ids[id] != nil {
			continue
		}
		if p.cancels {
			o.cancels = append(o.cancels, id)
		}
		delete(p.sent, id)
	}
	if p.first || p.session == nil {
		return o
	}
	var fresh, lost []*fleet.Task
	for _, t := range held {
		s := p.sent[t.ID()]
		switch {
		case s == nil && t.Began(): // in an earlier life of the server: it may be running
			p.sent[t.ID()] = &sending{at: now, conn: p.conns}
			o.again = earlier(o.again, now.Add(set.resend))
		case s == nil:
			fresh = append(fresh, t)
		default:
			wait := set.resend
			if s.batch {
				wait *= 5
			}
			if due := s.at.Add(wait); now.Before(due) {
				o.again = earlier(o.again, due)
			} else if s.beats >= set.beats {
				lost = append(lost, t)
			} else {
				o.again = earlier(o.again, now.Add(set.resend/5))
			}
		}
	}
	if len(lost) > 0 {
		if s := p.sent[lost[0].ID()]; s.nth > 1 && !p.steady {
			p.onePer = true
		}
		o.tasks = lost[:1] // one by one, whether it was a batch or not
		return o
	}
	room := p.slots - len(p.sent)
	if room <= 0 || len(fresh) == 0 {
		return o
	}
	if due := p.lastExec.Add(set.resend); p.onePer && p.execs > 0 && now.Before(due) { // the next connection may never come
		o.again = earlier(o.again, due)
		return o
	}
	if p.slots > 1 && p.cancels { // ours takes each on its own
		o.tasks = fresh[:min(room, len(fresh))]
		return o
	}
	if len(p.sent) > 0 {
		return o // what was sent as a batch is to come back first
	}
	o.tasks = fresh[:1]
	if set.batch > 1 {
		o.tasks = group(fresh, set.batch)
	}
	return o
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// group takes the first task and those that may be in a batch with it.
func group(fresh []*fleet.Task, most int) []*fleet.Task {
	first, err := wireOf(fresh[0])
	if err != nil {
		return fresh[:1]
	}
	out := fresh[:1:1]
	for _, t := range fresh[1:] {
		if len(out) == most {
			break
		}
		if w, err := wireOf(t); err == nil && together(first, w) {
			out = append(out, t)
		}
	}
	return out
}

// wireOf is a task as DTF workers are told of it.
func wireOf(t *fleet.Task) (wireTask, error) {
	taskType, config, err := fromMuster(t.Run().Spec)
	return wireTask{TaskID: t.ID(), TaskType: taskType, Config: config}, err
}

// noteSent remembers that tasks were sent on the session.
func (p *peer) noteSent(tasks []*fleet.Task, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.execs++
	p.lastExec = now
	p.quiet, p.batched = 0, len(tasks) > 1
	for _, t := range tasks {
		p.sent[t.ID()] = &sending{at: now, conn: p.conns, nth: p.execs, batch: len(tasks) > 1}
	}
}

// heard remembers a heartbeat, which speaks of one task or of none. It reports whether the worker runs nothing: after two heartbeats of
// none, since what was sent to it just now has not begun; after many where it may have a batch, of which it never speaks.
func (p *peer) heard(now time.Time, task string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.first = false
	if p.beats++; p.beats >= 3 { // its connections last: it is none that gets one task on each
		p.onePer = false
	}
	p.quiet++
	enough := 2
	if task != "" {
		p.quiet = 0
	}
	if p.batched {
		enough = 30
	}
	for id, s := range p.sent {
		if id == task {
			s.at, s.beats = now, 0
		} else if p.slots == 1 || s.at.Add(time.Minute).Before(now) { // ours speaks of its tasks in turn
			s.beats++
		}
	}
	return p.quiet >= enough
}

// reported remembers that the result of a task came.
func (p *peer) reported(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.sent[id]; s != nil && s.nth > 1 && s.conn == p.conns {
		p.steady, p.onePer = true, false
	}
	delete(p.sent, id)
}

// done remembers that nothing more is to come of a task.
func (p *peer) done(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sent, id)
}

// stays reports whether a worker that was drained is to stay away: it registers with each connection, and would come back at once. One that was
// away for longer, such as after maintenance, may join again.
func (p *peer) stays(w *fleet.Worker, grace time.Duration) bool {
	if w == nil || w.Err() == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.tried
	if seen := w.Seen(); seen.After(last) {
		last = seen
	}
	p.tried = time.Now()
	return p.tried.Sub(last) < 2*grace
}

// withoutHash reports whether it has said that it does not know hash.
func (p *peer) withoutHash() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.noHash
}

// current is the worker as it registered last.
func (p *peer) current() *fleet.Worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.worker
}

// ours reports whether it is a bridge of Muster, which takes several tasks and heeds cancel_task.
func (p *peer) ours() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cancels
}

func without(list []string, word string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == word })
}

// maxPeers bounds the workers that are remembered here; the fleet bounds those that there are.
const maxPeers = 10_000

// peer returns the worker of an id, as it is remembered since the server started.
func (g *gateway) peer(id string) *peer {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.peers[id]
	if p == nil {
		if len(g.peers) >= maxPeers {
			for other, q := range g.peers {
				if g.fleet.Worker(other) == nil && q.idle() {
					delete(g.peers, other)
				}
			}
		}
		p = &peer{id: id, slots: 1, sent: map[string]*sending{}}
		g.peers[id] = p
	}
	return p
}

func (p *peer) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session == nil
}
