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
	stableAfter = pingInterval           // a connection that lasted so long did not break at once
)

// redialer connects a line again whose connection broke although its shim lives, as it does when the session of the shim
// ends by a panic.
type redialer struct {
	conn  *shimConn
	tries int       // in a row
	since time.Time // when the last connection was made
}

// redialDelay is the pause before one of several tries in a row.
func redialDelay(try int) time.Duration {
	if try < 2 {
		return 0
	}
	return redialPause << (try - 2)
}

// redial connects the line again, and reports whether it did. It does not if the line was closed or taken over on
// purpose, or if the shim ended or hangs.
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
			sc.log.Warn("the connection with a shim broke, and was made again", slog.Int("pid", sc.self.PID))
			return sc.resume(next)
		}
		if err == nil {
			next.out.Close(wire.ErrClosed)
		}
	}
	return false
}

// connectionLost reports whether the shim lives and only the connection with it has ended.
func (sc *shimConn) connectionLost() bool {
	sc.mu.Lock()
	intentional := sc.displaced || sc.detached
	why := sc.out.Err()
	sc.mu.Unlock()
	_, panicked := errors.AsType[*fault.PanicError](why)
	return !intentional && (panicked || errors.Is(why, wire.ErrClosed)) && proctree.Alive(sc.self)
}

// resume takes up the connection of next, which was told what the shim holds, and tells the shim what it may not have
// heard over the last one. It reports whether the line is still wanted.
func (sc *shimConn) resume(next *shimConn) bool {
	sc.mu.Lock()
	if sc.detached {
		sc.mu.Unlock()
		next.out.Close(wire.ErrClosed)
		return false
	}
	sc.out, sc.in, sc.missedPings = next.out, next.in, 0
	contact := sc.contact // it may be later than what next began with
	resend := make([]wire.ToShim, 0, len(sc.pending))
	for _, q := range sc.pending {
		f := *q.frame
		f.Resent = true
		if f.Record != nil { // it may be in the log: only the size is asked for
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
				Message: fmt.Sprintf("the worker's shim (process %d) does not know the task any more: this is a bug of Muster; see shim.log in the worker's data dir", sc.self.PID),
			}})
		}
	}
	if len(unknown) > 0 {
		sc.send(&wire.ToShim{Forget: unknown})
	}
	return true
}

// resendPending takes up what the shim tells of the attempt over a new connection, and tells it what it may not have heard.
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
