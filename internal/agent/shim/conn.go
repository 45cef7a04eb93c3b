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
	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/wire"
)

const (
	handshakeTimeout = 30 * time.Second // for a shim to say what it holds
	replyTimeout     = 30 * time.Second // for an answer of a shim that lives
	pingInterval     = 15 * time.Second
)

// Silence is counted in ticks, not as time: this process may itself have stood still
// for longer than any wait, frozen or without a turn, and the answer is there.
const (
	replyTicks     = 4              // of replyTimeout
	startTicks     = 5 * replyTicks // for the start of a container: more than vessel.Usual
	maxMissedPings = 4              // without a word, then a shim is taken for dead
)

// shimConn is the worker's connection with one shim.
type shimConn struct {
	dir *stateDir
	log *slog.Logger

	build string
	self  run.Pid // the shim's process

	mu          sync.Mutex
	out         *wire.Outbox // of the connection, of which there may be several in turn
	in          *wire.FrameReader
	contact     time.Duration
	procs       map[muster.AttemptID]*proc
	pending     map[uint64]request
	seq         uint64
	missedPings int  // since the shim last said something
	displaced   bool // another worker has taken over
	detached    bool // it was closed on purpose
	closed      bool
}

// request is a frame that is to be answered.
type request struct {
	frame *wire.ToShim
	reply chan<- *wire.ToWorker
}

var (
	// errShimExited says that a shim has ended.
	errShimExited = errors.New("the shim, which stands by this worker's processes, has ended")
	// errExitedBefore says that it had ended before it was asked.
	errExitedBefore = errors.New("the shim had ended before")
	// errUnresponsive says that it lives and does not answer.
	errUnresponsive = errors.New("the shim, which stands by this worker's processes, does not answer")
	// errDisplaced says that another worker has its place.
	errDisplaced = errors.New("another worker has taken over")
	// errProtocol says that it cannot be talked to, ever.
	errProtocol = errors.New("it speaks another protocol")
)

// handshake opens a line and hears what the shim holds.
func handshake(conn net.Conn, d *stateDir, contact time.Duration, log *slog.Logger) (*shimConn, []run.Recovered, error) {
	sc := &shimConn{
		dir: d, out: wire.NewOutbox(conn, nil), in: wire.NewFrameReader(conn), log: log,
		procs: map[muster.AttemptID]*proc{}, pending: map[uint64]request{},
	}
	fail := func(err error) (*shimConn, []run.Recovered, error) {
		_ = conn.Close()
		return nil, nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(handshakeTimeout)) // without one it takes longer
	b, err := wire.AppendFrame(nil, &wire.ToShim{Hello: &wire.Hello{Protocol: wire.Protocol, Key: d.key, Contact: contact}})
	if err == nil {
		_, err = conn.Write(b)
	}
	if err != nil {
		return fail(err)
	}
	var recovered []run.Recovered
	for {
		var f wire.ToWorker
		if err := sc.in.Next(&f); err != nil {
			return fail(err)
		}
		switch {
		case f.Welcome != nil:
			sc.build, sc.self, sc.contact = f.Welcome.Build, f.Welcome.Pid, f.Welcome.Contact
			if f.Welcome.Protocol != wire.Protocol {
				return fail(fmt.Errorf("%w: version %d, and this worker %d", errProtocol, f.Welcome.Protocol, wire.Protocol))
			}
		case f.Snapshot != nil:
			sc.addRecovered(f.Snapshot)
			recovered = append(recovered, f.Snapshot.Recovered)
		case f.Updates != nil: // of what ends while the rest is told
			sc.onUpdates(f.Updates)
		case f.Ready:
			_ = conn.SetDeadline(time.Time{})
			for i := range recovered {
				recovered[i].Exit = sc.procs[recovered[i].Start.Attempt].Exit()
			}
			return sc, recovered, nil
		}
	}
}

// addRecovered makes the proc of an attempt that the shim holds.
func (sc *shimConn) addRecovered(h *wire.SnapshotFrame) {
	p := newProc(sc, h.Start.Attempt, h.Start.EnvTag, h.Start.Isolation)
	p.pid, p.started, p.progress = h.PID, h.Started, h.Progress
	p.size = h.LogSize
	if h.Exit != nil {
		p.setExit(h.Exit)
	}
	sc.procs[h.Start.Attempt] = p
}

// run hears the shim until it is gone or the line is closed, and then ends what it
// left.
func (sc *shimConn) run() {
	err := sc.serve()
	for r := (redialer{conn: sc}); r.redial(); {
		err = sc.serve()
	}
	sc.mu.Lock()
	sc.closed = true
	pending := sc.pending
	sc.pending = nil
	sc.mu.Unlock()
	for _, q := range pending {
		close(q.reply)
	}
	sc.onDisconnect(err)
}

// serve hears the shim over one connection until that ends.
func (sc *shimConn) serve() error {
	var g errgroup.Group
	pinging := make(chan struct{})
	g.Go(func() error { sc.out.Run(); return nil })
	g.Go(func() error { sc.ping(pinging); return nil })
	err := sc.readLoop()
	close(pinging)
	sc.out.Close(wire.ErrClosed)
	_ = g.Wait()
	return err
}

func (sc *shimConn) readLoop() error {
	for {
		var f wire.ToWorker
		if err := sc.in.Next(&f); errors.Is(err, wire.ErrDecode) {
			sc.log.Error("a word of a shim is not understood", slog.Any("error", err))
			continue
		} else if err != nil {
			return err
		}
		sc.mu.Lock()
		sc.missedPings = 0
		if f.Displaced {
			sc.displaced = true
			sc.mu.Unlock()
			return errDisplaced
		}
		reply := sc.pending[f.Seq].reply // nil for none
		delete(sc.pending, f.Seq)
		sc.mu.Unlock()
		sc.onUpdates(f.Updates)
		if f.Snapshot != nil && sc.find(f.Snapshot.Start.Attempt) == nil {
			// It was being started when its worker ended: nobody knows it.
			sc.forget(f.Snapshot.Start.Attempt)
		}
		if reply != nil {
			reply <- &f
		}
	}
}

// onUpdates passes news on.
func (sc *shimConn) onUpdates(updates []wire.Update) {
	for i := range updates {
		if p := sc.find(updates[i].Attempt); p != nil {
			p.onUpdate(&updates[i])
		}
	}
}

func (sc *shimConn) find(id muster.AttemptID) *proc {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.procs[id]
}

// send tells the shim something. It is in vain if the shim is gone.
func (sc *shimConn) send(f *wire.ToShim) { _ = sc.outbox().Send(f) }

func (sc *shimConn) outbox() *wire.Outbox {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.out
}

// setContact tells the shim when the server last knew of the worker.
func (sc *shimConn) setContact(at time.Duration) {
	sc.mu.Lock()
	sc.contact = max(sc.contact, at)
	sc.mu.Unlock()
	sc.send(&wire.ToShim{Contact: at})
}

func (sc *shimConn) forget(ids ...muster.AttemptID) {
	sc.mu.Lock()
	for _, id := range ids {
		delete(sc.procs, id)
	}
	sc.mu.Unlock()
	sc.send(&wire.ToShim{Forget: ids})
}

// call sends a frame and waits for the answer.
func (sc *shimConn) call(f *wire.ToShim) (*wire.ToWorker, error) {
	reply := make(chan *wire.ToWorker, 1)
	sc.mu.Lock()
	if sc.closed {
		sc.mu.Unlock()
		return nil, errShimExited
	}
	sc.seq++
	f.Seq = sc.seq
	sc.pending[f.Seq] = request{f, reply}
	out := sc.out
	sc.mu.Unlock()
	if err := out.Send(f); errors.Is(err, wire.ErrEncode) { // over a closed connection it is asked again, or closed with the line
		sc.mu.Lock()
		delete(sc.pending, f.Seq)
		sc.mu.Unlock()
		return nil, err
	}
	tick := time.NewTicker(replyTimeout / replyTicks)
	defer tick.Stop()
	ticks := replyTicks
	if f.Start != nil && f.Start.Container != nil {
		ticks = startTicks
	}
	for range ticks {
		select {
		case r := <-reply:
			switch {
			case r == nil:
				return nil, errShimExited
			case r.Failed != nil:
				return nil, replyError(r.Failed)
			}
			return r, nil
		case <-tick.C:
		}
	}
	sc.mu.Lock()
	delete(sc.pending, f.Seq)
	sc.mu.Unlock()
	return nil, errUnresponsive
}

// replyError is the error that a shim answered with.
func replyError(f *wire.FailedFrame) error {
	if f.ShuttingDown {
		return errExitedBefore
	}
	return &run.TaskError{Reason: f.Reason, Message: f.Message}
}

// ping ends the line to a shim that hangs while something is expected of it.
func (sc *shimConn) ping(stop <-chan struct{}) {
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		if sc.unresponsive() {
			sc.log.Error("a shim hangs; ending it", slog.Int("pid", sc.self.PID))
			sc.outbox().Close(errUnresponsive)
			return
		}
	}
}

// unresponsive asks for a sign of life, if there is something that the shim holds, and reports
// whether it gave none for too long.
func (sc *shimConn) unresponsive() bool {
	sc.mu.Lock()
	if len(sc.procs) == 0 {
		sc.missedPings = 0
		sc.mu.Unlock()
		return false
	}
	sc.missedPings++
	tooMany := sc.missedPings > maxMissedPings
	sc.mu.Unlock()
	if !tooMany {
		sc.send(&wire.ToShim{Ping: true})
	}
	return tooMany
}

// onDisconnect sees to it that nothing goes on which nobody stands by any more, once the line
// is down. A shim that was taken over or let go is left alone.
func (sc *shimConn) onDisconnect(cause error) {
	sc.mu.Lock()
	procs := make([]*proc, 0, len(sc.procs))
	for _, p := range sc.procs {
		procs = append(procs, p)
	}
	displaced, detached := sc.displaced, sc.detached
	sc.mu.Unlock()
	if detached {
		return
	}
	why := "another worker has taken over this one's tasks"
	if !displaced {
		why = "the shim that stood by the task's process has ended"
		sc.log.Error("a shim has ended; ending what it stood by", slog.Int("pid", sc.self.PID), slog.Int("attempts", len(procs)), slog.Any("error", cause))
		sc.dir.killAndRemove(sc.self, sc.log)
	}
	for _, p := range procs {
		if !displaced && p.isolation != nil {
			if err := isolation.Kill(p.isolation); err != nil {
				sc.log.Error("the processes of a task do not end, even when killed", slog.String("attempt", p.id.String()), slog.Any("error", err))
			}
		}
		p.setExit(&run.Exit{Code: -1, At: run.Now(), Stopped: &run.Stopped{
			Outcome: muster.AttemptFailed, Reason: muster.WorkerInternal, Message: fmt.Sprintf("%s (process %d)", why, sc.self.PID),
		}})
	}
}

// close ends the line; the shim and what it holds go on.
func (sc *shimConn) close() {
	sc.mu.Lock()
	sc.detached = sc.detached || !sc.closed
	out := sc.out
	sc.mu.Unlock()
	out.Finish()
}

// idle reports whether nothing is expected of the shim.
func (sc *shimConn) idle() bool {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return len(sc.procs) == 0
}

// start lets the shim start an attempt.
func (sc *shimConn) start(s *run.StartSpec, reporter run.Reporter) (*proc, error) {
	p := newProc(sc, s.Attempt, s.EnvTag, s.Isolation)
	p.reporter, p.size = reporter, s.LogSize
	sc.mu.Lock()
	if sc.closed {
		sc.mu.Unlock()
		return nil, errExitedBefore
	}
	sc.procs[s.Attempt] = p
	sc.mu.Unlock()
	r, err := sc.call(&wire.ToShim{Start: s})
	if err == nil && r.Started == nil {
		err = errUnresponsive
	}
	if err != nil {
		sc.forget(s.Attempt)
		if errors.Is(err, errUnresponsive) && sc.idle() {
			sc.outbox().Close(err) // nothing is lost with it, and the next task needs one that answers
		}
		if _, isTaskError := errors.AsType[*run.TaskError](err); !isTaskError && !errors.Is(err, errExitedBefore) {
			err = run.Failf(muster.WorkerInternal, "the task's process cannot be started: %w", err)
		}
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid, p.started = r.Started.Pid, r.Started.At
	return p, nil
}
