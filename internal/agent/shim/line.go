package shim

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/limit"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/wire"
)

const (
	greetWait = 30 * time.Second // for a shim to say what it holds
	replyWait = 30 * time.Second // for an answer of a shim that lives
	pingEvery = 15 * time.Second
)

// Silence is counted in ticks, not as time: this process may itself have stood still
// for longer than any wait, frozen or without a turn, and the answer is there.
const (
	replyTicks = 4              // of replyWait
	startTicks = 5 * replyTicks // for the start of a container: more than vessel.Usual
	mostPings  = 4              // without a word, then a shim is taken for dead
)

// line is the worker's connection with one shim.
type line struct {
	home *home
	log  *slog.Logger

	build string
	self  run.Pid // the shim's process

	mu      sync.Mutex
	out     *wire.Outbox // of the connection, of which there may be several in turn
	in      *wire.Frames
	contact time.Duration
	procs   map[muster.AttemptID]*proc
	asked   map[uint64]question
	seq     uint64
	pings   int  // since the shim last said something
	bye     bool // another worker has taken over
	let     bool // it was closed on purpose
	gone    bool
}

// question is a frame that is to be answered.
type question struct {
	frame *wire.ToShim
	reply chan<- *wire.ToWorker
}

var (
	// errGone says that a shim has ended.
	errGone = errors.New("the shim, which stands by this worker's processes, has ended")
	// errBefore says that it had ended before it was asked.
	errBefore = errors.New("the shim had ended before")
	// errLate says that it lives and does not answer.
	errLate = errors.New("the shim, which stands by this worker's processes, does not answer")
	// errTaken says that another worker has its place.
	errTaken = errors.New("another worker has taken over")
	// errProtocol says that it cannot be talked to, ever.
	errProtocol = errors.New("it speaks another protocol")
)

// call opens a line and hears what the shim holds.
func call(conn net.Conn, h *home, contact time.Duration, log *slog.Logger) (*line, []run.Held, error) {
	l := &line{
		home: h, out: wire.NewOutbox(conn, nil), in: wire.NewFrames(conn), log: log,
		procs: map[muster.AttemptID]*proc{}, asked: map[uint64]question{},
	}
	refused := func(err error) (*line, []run.Held, error) {
		_ = conn.Close()
		return nil, nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(greetWait)) // without one it takes longer
	b, err := wire.AppendFrame(nil, &wire.ToShim{Hello: &wire.Hello{Protocol: wire.Protocol, Key: h.key, Contact: contact}})
	if err == nil {
		_, err = conn.Write(b)
	}
	if err != nil {
		return refused(err)
	}
	var held []run.Held
	for {
		var f wire.ToWorker
		if err := l.in.Next(&f); err != nil {
			return refused(err)
		}
		switch {
		case f.Welcome != nil:
			l.build, l.self, l.contact = f.Welcome.Build, f.Welcome.Pid, f.Welcome.Contact
			if f.Welcome.Protocol != wire.Protocol {
				return refused(fmt.Errorf("%w: version %d, and this worker %d", errProtocol, f.Welcome.Protocol, wire.Protocol))
			}
		case f.Held != nil:
			l.adopt(f.Held)
			held = append(held, f.Held.Held)
		case f.News != nil: // of what ends while the rest is told
			l.hear(f.News)
		case f.Ready:
			_ = conn.SetDeadline(time.Time{})
			for i := range held {
				held[i].Exit = l.procs[held[i].Start.Attempt].Exit()
			}
			return l, held, nil
		}
	}
}

// adopt makes the proc of an attempt that the shim holds.
func (l *line) adopt(h *wire.HeldFrame) {
	p := newProc(l, h.Start.Attempt, h.Start.Mark, h.Start.Confine)
	p.pid, p.started, p.progress = h.PID, h.Started, h.Progress
	p.size = h.LogSize
	if h.Exit != nil {
		p.ended(h.Exit)
	}
	l.procs[h.Start.Attempt] = p
}

// run hears the shim until it is gone or the line is closed, and then ends what it
// left.
func (l *line) run() {
	err := l.converse()
	for r := (redial{line: l}); r.again(); {
		err = l.converse()
	}
	l.mu.Lock()
	l.gone = true
	asked := l.asked
	l.asked = nil
	l.mu.Unlock()
	for _, q := range asked {
		close(q.reply)
	}
	l.bury(err)
}

// converse hears the shim over one connection until that ends.
func (l *line) converse() error {
	var g errgroup.Group
	pinging := make(chan struct{})
	g.Go(func() error { l.out.Run(); return nil })
	g.Go(func() error { l.ping(pinging); return nil })
	err := l.listen()
	close(pinging)
	l.out.Close(wire.ErrClosed)
	_ = g.Wait()
	return err
}

func (l *line) listen() error {
	for {
		var f wire.ToWorker
		if err := l.in.Next(&f); errors.Is(err, wire.ErrUnreadable) {
			l.log.Error("a word of a shim is not understood", slog.Any("error", err))
			continue
		} else if err != nil {
			return err
		}
		l.mu.Lock()
		l.pings = 0
		if f.Bye {
			l.bye = true
			l.mu.Unlock()
			return errTaken
		}
		reply := l.asked[f.Seq].reply // nil for none
		delete(l.asked, f.Seq)
		l.mu.Unlock()
		l.hear(f.News)
		if f.Held != nil && l.find(f.Held.Start.Attempt) == nil {
			// It was being started when its worker ended: nobody knows it.
			l.forget(f.Held.Start.Attempt)
		}
		if reply != nil {
			reply <- &f
		}
	}
}

// hear passes news on.
func (l *line) hear(all []wire.News) {
	for i := range all {
		if p := l.find(all[i].Attempt); p != nil {
			p.hear(&all[i])
		}
	}
}

func (l *line) find(id muster.AttemptID) *proc {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.procs[id]
}

// send tells the shim something. It is in vain if the shim is gone.
func (l *line) send(f *wire.ToShim) { _ = l.outbox().Put(f) }

func (l *line) outbox() *wire.Outbox {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out
}

// touch tells the shim when the server last knew of the worker.
func (l *line) touch(at time.Duration) {
	l.mu.Lock()
	l.contact = max(l.contact, at)
	l.mu.Unlock()
	l.send(&wire.ToShim{Contact: at})
}

func (l *line) forget(ids ...muster.AttemptID) {
	l.mu.Lock()
	for _, id := range ids {
		delete(l.procs, id)
	}
	l.mu.Unlock()
	l.send(&wire.ToShim{Forget: ids})
}

// ask sends a frame and waits for the answer.
func (l *line) ask(f *wire.ToShim) (*wire.ToWorker, error) {
	reply := make(chan *wire.ToWorker, 1)
	l.mu.Lock()
	if l.gone {
		l.mu.Unlock()
		return nil, errGone
	}
	l.seq++
	f.Seq = l.seq
	l.asked[f.Seq] = question{f, reply}
	out := l.out
	l.mu.Unlock()
	if err := out.Put(f); errors.Is(err, wire.ErrNotSent) { // over a closed connection it is asked again, or closed with the line
		l.mu.Lock()
		delete(l.asked, f.Seq)
		l.mu.Unlock()
		return nil, err
	}
	late := time.NewTicker(replyWait / replyTicks)
	defer late.Stop()
	ticks := replyTicks
	if f.Start != nil && f.Start.Container != nil {
		ticks = startTicks
	}
	for range ticks {
		select {
		case r := <-reply:
			switch {
			case r == nil:
				return nil, errGone
			case r.Failed != nil:
				return nil, refusal(r.Failed)
			}
			return r, nil
		case <-late.C:
		}
	}
	l.mu.Lock()
	delete(l.asked, f.Seq)
	l.mu.Unlock()
	return nil, errLate
}

// refusal is the error that a shim answered with.
func refusal(f *wire.FailedFrame) error {
	if f.Ending {
		return errBefore
	}
	return &run.TaskError{Reason: f.Reason, Message: f.Message}
}

// ping ends the line to a shim that hangs while something is expected of it.
func (l *line) ping(stop <-chan struct{}) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		if l.silent() {
			l.log.Error("a shim hangs; ending it", slog.Int("pid", l.self.PID))
			l.outbox().Close(errLate)
			return
		}
	}
}

// silent asks for a sign of life, if there is something that the shim holds, and reports
// whether it gave none for too long.
func (l *line) silent() bool {
	l.mu.Lock()
	if len(l.procs) == 0 {
		l.pings = 0
		l.mu.Unlock()
		return false
	}
	l.pings++
	late := l.pings > mostPings
	l.mu.Unlock()
	if !late {
		l.send(&wire.ToShim{Ping: true})
	}
	return late
}

// bury sees to it that nothing goes on which nobody stands by any more, once the line
// is down. A shim that was taken over or let go is left alone.
func (l *line) bury(cause error) {
	l.mu.Lock()
	procs := make([]*proc, 0, len(l.procs))
	for _, p := range l.procs {
		procs = append(procs, p)
	}
	bye, let := l.bye, l.let
	l.mu.Unlock()
	if let {
		return
	}
	why := "another worker has taken over this one's tasks"
	if !bye {
		why = "the shim that stood by the task's process has ended"
		l.log.Error("a shim has ended; ending what it stood by", slog.Int("pid", l.self.PID), slog.Int("attempts", len(procs)), slog.Any("error", cause))
		l.home.raze(l.self, l.log)
	}
	for _, p := range procs {
		if !bye && p.confine != nil {
			if err := limit.Kill(p.confine); err != nil {
				l.log.Error("the processes of a task do not end, even when killed", slog.String("attempt", p.id.String()), slog.Any("error", err))
			}
		}
		p.ended(&run.Exit{Code: -1, At: run.Now(), Stopped: &run.Stopped{
			Outcome: muster.AttemptFailed, Reason: muster.WorkerInternal, Message: fmt.Sprintf("%s (process %d)", why, l.self.PID),
		}})
	}
}

// close ends the line; the shim and what it holds go on.
func (l *line) close() {
	l.mu.Lock()
	l.let = l.let || !l.gone
	out := l.out
	l.mu.Unlock()
	out.Finish()
}

// idle reports whether nothing is expected of the shim.
func (l *line) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.procs) == 0
}

// start lets the shim start an attempt.
func (l *line) start(s *run.Start, sink run.Sink) (*proc, error) {
	p := newProc(l, s.Attempt, s.Mark, s.Confine)
	p.sink, p.size = sink, s.LogSize
	l.mu.Lock()
	if l.gone {
		l.mu.Unlock()
		return nil, errBefore
	}
	l.procs[s.Attempt] = p
	l.mu.Unlock()
	r, err := l.ask(&wire.ToShim{Start: s})
	if err == nil && r.Started == nil {
		err = errLate
	}
	if err != nil {
		l.forget(s.Attempt)
		if errors.Is(err, errLate) && l.idle() {
			l.outbox().Close(err) // nothing is lost with it, and the next task needs one that answers
		}
		if _, told := errors.AsType[*run.TaskError](err); !told && !errors.Is(err, errBefore) {
			err = run.Failf(muster.WorkerInternal, "the task's process cannot be started: %w", err)
		}
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid, p.started = r.Started.Pid, r.Started.At
	return p, nil
}
