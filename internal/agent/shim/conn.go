package shim

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/fault"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
	"github.com/muster-dev/muster/internal/agent/shim/wire"
)

const (
	handshakeTimeout = 30 * time.Second // for a shim to send its attempts
	replyTimeout     = 30 * time.Second // for a reply
	pingInterval     = 15 * time.Second
)

// Timeouts are counted in ticks, not as time: this process may itself have been stopped for longer than a timeout, with the reply waiting.
const (
	replyTicks     = 4              // per replyTimeout
	startTicks     = 5 * replyTicks // for the start of a container: more than containerrun.DefaultTimeouts
	maxMissedPings = 4              // without a frame a shim counts as hung
)

// shimConn is the worker's connection to one shim.
type shimConn struct {
	dir *stateDir
	log *slog.Logger

	build string
	self  run.Pid // the shim's process
	execs bool    // it takes commands

	mu          sync.Mutex
	out         *wire.Outbox // of the current connection
	in          *wire.FrameReader
	contact     time.Duration
	procs       map[muster.AttemptID]*proc
	pending     map[uint64]request
	seq         uint64
	missedPings int  // since the last frame
	displaced   bool // another worker took over
	detached    bool // it was closed intentionally
	closed      bool
}

type request struct {
	frame *wire.ToShim
	reply chan<- *wire.ToWorker
}

var (
	errShimExited   = errors.New("the task's supervisor (shim) exited")
	errExitedBefore = errors.New("the shim had exited before") // before the request: another shim can handle it
	errUnresponsive = errors.New("the task's supervisor (shim) does not respond")
	errDisplaced    = errors.New("another worker took over")
	errProtocol     = errors.New("incompatible protocol")
)

// handshake opens a connection and receives the attempts of the shim.
func handshake(conn net.Conn, d *stateDir, contact time.Duration, log *slog.Logger) (*shimConn, []run.Recovered, error) {
	sc := &shimConn{
		dir: d, out: wire.NewOutbox(conn, nil), in: wire.NewFrameReader(conn), log: log,
		procs: map[muster.AttemptID]*proc{}, pending: map[uint64]request{},
	}
	fail := func(err error) (*shimConn, []run.Recovered, error) {
		_ = conn.Close()
		return nil, nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(handshakeTimeout)) // an error only removes the limit
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
			sc.execs = f.Welcome.Exec
			if f.Welcome.Protocol != wire.Protocol {
				return fail(fmt.Errorf("%w: version %d, this worker has %d", errProtocol, f.Welcome.Protocol, wire.Protocol))
			}
		case f.Snapshot != nil:
			sc.addRecovered(f.Snapshot)
			recovered = append(recovered, f.Snapshot.Recovered)
		case f.Updates != nil: // of attempts that end meanwhile
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

// addRecovered adds the proc of an attempt that the shim holds.
func (sc *shimConn) addRecovered(h *wire.SnapshotFrame) {
	p := newProc(sc, h.Start.Attempt, h.Start.Isolation)
	p.pid, p.started, p.progress = h.PID, h.Started, h.Progress
	p.size = h.LogSize
	if h.Exit != nil {
		p.setExit(h.Exit)
	}
	sc.procs[h.Start.Attempt] = p
}

// run serves the connection, and reconnects, until the shim has exited or the connection is closed; then it ends what the shim left.
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

// serve reads from one connection until it ends.
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
			sc.log.Error("invalid frame from a shim", slog.Any("error", err))
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
			// Its previous worker ended while it was being started, and does not know it.
			sc.forget(f.Snapshot.Start.Attempt)
		}
		if reply != nil {
			reply <- &f
		}
	}
}

// onUpdates delivers updates to their attempts.
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

// send sends a frame. An error means that the connection is closed.
func (sc *shimConn) send(f *wire.ToShim) { _ = sc.outbox().Send(f) }

func (sc *shimConn) outbox() *wire.Outbox {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.out
}

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
	if err := out.Send(f); errors.Is(err, wire.ErrEncode) { // after a reconnect a request is sent again
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

func replyError(f *wire.FailedFrame) error {
	if f.ShuttingDown {
		return errExitedBefore
	}
	return &run.TaskError{Reason: f.Reason, Message: f.Message, ExitCode: f.ExitCode}
}

// ping closes the connection to a hung shim that holds attempts.
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
			sc.log.Error("shim is hung, ending it", slog.Int("pid", sc.self.PID))
			sc.outbox().Close(errUnresponsive)
			return
		}
	}
}

// unresponsive sends a ping if the shim holds attempts, and reports whether too many were missed.
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

// onDisconnect ends the processes that have no supervisor any more. It does nothing for a shim that another worker took over, or that was
// disconnected intentionally.
func (sc *shimConn) onDisconnect(cause error) {
	sc.mu.Lock()
	procs := slices.Collect(maps.Values(sc.procs))
	displaced, detached := sc.displaced, sc.detached
	sc.mu.Unlock()
	if detached {
		return
	}
	why := "another worker took over this worker's tasks"
	if !displaced {
		why = "the task's supervisor (shim) exited"
		sc.log.Error("shim exited, ending its tasks", slog.Int("pid", sc.self.PID), slog.Int("attempts", len(procs)), slog.Any("error", cause))
		sc.dir.killAndRemove(sc.self, sc.log)
	}
	for _, p := range procs {
		if !displaced && p.isolation != nil {
			if err := isolation.Kill(p.isolation); err != nil {
				sc.log.Error("processes of a task survive SIGKILL", slog.String("attempt", p.id.String()), slog.Any("error", err))
			}
		}
		p.setExit(&run.Exit{Code: -1, At: run.Now(), Stopped: &run.Stopped{
			Outcome: muster.AttemptFailed, Reason: muster.WorkerInternal, Message: fmt.Sprintf("%s (process %d)", why, sc.self.PID),
		}})
	}
}

// close closes the connection; the shim and its tasks continue.
func (sc *shimConn) close() {
	sc.mu.Lock()
	sc.detached = sc.detached || !sc.closed
	out := sc.out
	sc.mu.Unlock()
	out.Finish()
}

func (sc *shimConn) idle() bool {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return len(sc.procs) == 0
}

func (sc *shimConn) start(s *run.StartSpec, reporter run.Reporter) (*proc, error) {
	p := newProc(sc, s.Attempt, s.Isolation)
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
			sc.outbox().Close(err) // it has no tasks, and the next task needs a shim that responds
		}
		if _, isTaskError := errors.AsType[*run.TaskError](err); !isTaskError && !errors.Is(err, errExitedBefore) {
			err = run.Failf(muster.WorkerInternal, "cannot start the task's process: %w", err)
		}
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid, p.started = r.Started.Pid, r.Started.At
	return p, nil
}

const (
	maxRedials  = 6                      // in a row, each after a connection that broke at once
	redialPause = 100 * time.Millisecond // before the second one; doubled for each further one
	stableAfter = pingInterval           // a connection that lasted this long did not break at once
)

// redialer restores a connection that broke although its shim runs, as after a panic in the shim's session.
type redialer struct {
	conn  *shimConn
	tries int       // in a row
	since time.Time // of the last connection
}

// redialDelay returns the pause before one of several tries in a row.
func redialDelay(try int) time.Duration {
	if try < 2 {
		return 0
	}
	return redialPause << (try - 2)
}

// redial reconnects, and reports whether it succeeded. It does not try if the connection was closed or taken over intentionally, or if the
// shim exited or is hung.
func (r *redialer) redial() bool {
	sc := r.conn
	if r.since.IsZero() || time.Since(r.since) > stableAfter {
		r.tries = 0
	}
	for r.tries < maxRedials {
		if !sc.connectionLost() {
			return false
		}
		r.tries++
		time.Sleep(redialDelay(r.tries))
		conn, err := sc.dir.dial()
		if noListener(err) {
			return false
		}
		if err != nil { // such as too many open files
			continue
		}
		sc.mu.Lock()
		contact := sc.contact
		sc.mu.Unlock()
		next, _, err := handshake(conn, sc.dir, contact, sc.log)
		if err == nil && next.self == sc.self {
			r.since = time.Now()
			sc.log.Warn("reconnected to a shim", slog.Int("pid", sc.self.PID))
			return sc.resume(next)
		}
		if err == nil {
			next.out.Close(wire.ErrClosed)
		}
	}
	return false
}

// connectionLost reports whether the shim runs and only the connection has ended.
func (sc *shimConn) connectionLost() bool {
	sc.mu.Lock()
	intentional := sc.displaced || sc.detached
	why := sc.out.Err()
	sc.mu.Unlock()
	_, panicked := errors.AsType[*fault.PanicError](why)
	return !intentional && (panicked || errors.Is(why, wire.ErrClosed)) && proctree.Alive(sc.self)
}

// resume continues with the connection of next, which has received the shim's attempts, and sends again what may not have arrived over the
// previous one. It reports whether the connection is still needed.
func (sc *shimConn) resume(next *shimConn) bool {
	sc.mu.Lock()
	if sc.detached {
		sc.mu.Unlock()
		next.out.Close(wire.ErrClosed)
		return false
	}
	sc.out, sc.in, sc.missedPings = next.out, next.in, 0
	contact := sc.contact // it may be later than that of the handshake
	resend := make([]wire.ToShim, 0, len(sc.pending))
	for _, q := range sc.pending {
		f := *q.frame
		f.Resent = true
		if f.Record != nil { // it may be in the log: only request the size
			f.Record = &wire.RecordFrame{Attempt: f.Record.Attempt, Stream: f.Record.Stream}
		}
		resend = append(resend, f)
	}
	var unknown []muster.AttemptID
	for id := range next.procs {
		if sc.procs[id] == nil {
			unknown = append(unknown, id)
		}
	}
	procs := slices.Collect(maps.Values(sc.procs))
	sc.mu.Unlock()
	if contact > 0 {
		sc.send(&wire.ToShim{Contact: contact})
	}
	for i := range resend {
		sc.send(&resend[i])
	}
	for _, p := range procs {
		switch now := next.procs[p.id]; {
		case now != nil:
			p.resendPending(now)
		case p.Started() != 0: // else it is being started
			unknown = append(unknown, p.id)
			p.setExit(&run.Exit{Code: -1, At: run.Now(), Stopped: &run.Stopped{
				Outcome: muster.AttemptFailed, Reason: muster.WorkerInternal,
				Message: fmt.Sprintf("the worker's shim (process %d) no longer knows the task: this is a bug in Muster; see shim.log in the worker's data dir", sc.self.PID),
			}})
		}
	}
	if len(unknown) > 0 {
		sc.send(&wire.ToShim{Forget: unknown})
	}
	return true
}

// resendPending handles the state of the attempt over a new connection, and sends again what may not have arrived.
func (p *proc) resendPending(current *proc) {
	p.mu.Lock()
	stops, report := slices.Clone(p.stops), p.report
	p.mu.Unlock()
	for i := range stops {
		p.conn.send(&wire.ToShim{Stop: &stops[i]})
	}
	if report != nil {
		p.conn.send(&wire.ToShim{Report: report})
	}
	p.onUpdate(&wire.Update{Attempt: p.id, Progress: current.progress, LogSize: current.size, Exit: current.exit})
}
