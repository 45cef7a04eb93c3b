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
	"github.com/muster-dev/muster/internal/agent/shim/kin"
	"github.com/muster-dev/muster/internal/agent/shim/wire"
)

const (
	maxRedials  = 6                      // in a row, each after a connection that broke at once
	redialPause = 100 * time.Millisecond // before the second one; doubled for each further one
	steadyAfter = pingEvery              // a connection that lasted so long did not break at once
)

// redial connects a line again whose connection broke although its shim lives, as it does when the session of the shim
// ends by a panic.
type redial struct {
	line  *line
	tries int       // in a row
	since time.Time // when the last connection was made
}

// pauseBefore is the pause before one of several tries in a row.
func pauseBefore(try int) time.Duration {
	if try < 2 {
		return 0
	}
	return redialPause << (try - 2)
}

// again connects the line again, and reports whether it did. It does not if the line was closed or taken over on
// purpose, or if the shim ended or hangs.
func (r *redial) again() bool {
	l := r.line
	if r.since.IsZero() || time.Since(r.since) > steadyAfter {
		r.tries = 0
	}
	for r.tries < maxRedials {
		if !l.broken() {
			return false
		}
		r.tries++
		time.Sleep(pauseBefore(r.tries))
		conn, err := l.home.dial()
		if nobody(err) {
			return false
		}
		if err != nil { // such as too many open files
			continue
		}
		l.mu.Lock()
		contact := l.contact
		l.mu.Unlock()
		next, _, err := call(conn, l.home, contact, l.log)
		if err == nil && next.self == l.self {
			r.since = time.Now()
			l.log.Warn("the connection with a shim broke, and was made again", slog.Int("pid", l.self.PID))
			return l.resume(next)
		}
		if err == nil {
			next.out.Close(wire.ErrClosed)
		}
	}
	return false
}

// broken reports whether the shim lives and only the connection with it has ended.
func (l *line) broken() bool {
	l.mu.Lock()
	meant := l.bye || l.let
	why := l.out.Err()
	l.mu.Unlock()
	_, bug := errors.AsType[*fault.PanicError](why)
	return !meant && (bug || errors.Is(why, wire.ErrClosed)) && kin.Lives(l.self)
}

// resume takes up the connection of next, which was told what the shim holds, and tells the shim what it may not have
// heard over the last one. It reports whether the line is still wanted.
func (l *line) resume(next *line) bool {
	l.mu.Lock()
	if l.let {
		l.mu.Unlock()
		next.out.Close(wire.ErrClosed)
		return false
	}
	l.out, l.in, l.pings = next.out, next.in, 0
	contact := l.contact // it may be later than what next began with
	again := make([]wire.ToShim, 0, len(l.asked))
	for _, q := range l.asked {
		f := *q.frame
		f.Again = true
		if f.Record != nil { // it may be in the log: only the size is asked for
			f.Record = &wire.RecordFrame{Attempt: f.Record.Attempt, Stream: f.Record.Stream}
		}
		again = append(again, f)
	}
	var unknown []muster.AttemptID
	for id := range next.procs {
		if l.procs[id] == nil {
			unknown = append(unknown, id)
		}
	}
	procs := slices.Collect(maps.Values(l.procs))
	l.mu.Unlock()
	if contact > 0 {
		l.send(&wire.ToShim{Contact: contact})
	}
	for i := range again {
		l.send(&again[i])
	}
	for _, p := range procs {
		switch now := next.procs[p.id]; {
		case now != nil:
			p.resume(now)
		case p.Started() != 0: // else it is being started
			unknown = append(unknown, p.id)
			p.ended(&run.Exit{Code: -1, At: run.Now(), Stopped: &run.Stopped{
				Outcome: muster.AttemptFailed, Reason: muster.WorkerInternal,
				Message: fmt.Sprintf("the worker's shim (process %d) does not know the task any more: this is a bug of Muster; see shim.log in the worker's data dir", l.self.PID),
			}})
		}
	}
	if len(unknown) > 0 {
		l.send(&wire.ToShim{Forget: unknown})
	}
	return true
}

// resume takes up what the shim tells of the attempt over a new connection, and tells it what it may not have heard.
func (p *proc) resume(now *proc) {
	p.mu.Lock()
	stops, report := slices.Clone(p.stops), p.report
	p.mu.Unlock()
	for i := range stops {
		p.line.send(&wire.ToShim{Stop: &stops[i]})
	}
	if report != nil {
		p.line.send(&wire.ToShim{Settle: report})
	}
	p.hear(&wire.News{Attempt: p.id, Progress: now.progress, LogSize: now.size, Exit: now.exit})
}
