package shim

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/fault"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
	"github.com/muster-dev/muster/internal/agent/shim/wire"
)

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
