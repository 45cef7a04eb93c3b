package shim

import (
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/progress"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/wire"
	"github.com/muster-dev/muster/internal/tasklog"
)

// proc is the worker's side of one attempt.
type proc struct {
	conn      *shimConn
	id        muster.AttemptID
	isolation *run.IsolationSpec
	done      chan struct{}

	mu       sync.Mutex
	pid      run.Pid
	started  muster.Time
	reporter run.Reporter // nil until Adopt
	size     int64
	unsynced bool             // records were sent that size may not include
	progress *muster.Progress // not reported yet
	exit     *run.Exit

	// Sent again after a reconnect, in case the shim did not receive it.
	stops  []wire.StopFrame
	report *muster.Report
}

var _ run.Proc = (*proc)(nil)

func newProc(sc *shimConn, id muster.AttemptID, c *run.IsolationSpec) *proc {
	return &proc{conn: sc, id: id, isolation: c, done: make(chan struct{})}
}

func (p *proc) Pid() run.Pid {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

func (p *proc) Started() muster.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.started
}

func (p *proc) Done() <-chan struct{} { return p.done }

func (p *proc) Exit() *run.Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

// maxStops is how many stop frames are kept: the first cause counts, and the shortest grace.
const maxStops = 8

func (p *proc) Stop(why *run.Stopped, opts muster.Kill) {
	f := wire.StopFrame{Attempt: p.id, Why: *why, Kill: opts}
	p.mu.Lock()
	if len(p.stops) < maxStops {
		p.stops = append(p.stops, f)
	} else {
		p.stops[maxStops-1] = f
	}
	p.mu.Unlock()
	p.conn.send(&wire.ToShim{Stop: &f})
}

// AppendLog implements run.Proc. It returns when the log has the data, or cannot have it. A sample or a point is only sent: there is one
// every few seconds for each task, and only LogSize waits for it.
func (p *proc) AppendLog(stream tasklog.Stream, data []byte) {
	f := &wire.ToShim{Record: &wire.RecordFrame{Attempt: p.id, Stream: stream, Data: data}}
	if stream == tasklog.Usage || stream == tasklog.Progress {
		p.mu.Lock()
		p.unsynced = true
		p.mu.Unlock()
		p.conn.send(f)
		return
	}
	p.record(f)
}

// record sends a record and waits until the shim has written it, and all that was sent before.
func (p *proc) record(f *wire.ToShim) {
	r, err := p.conn.call(f)
	if err != nil {
		return // Exit has the shim's failure
	}
	for i := range r.Updates {
		p.onUpdate(&r.Updates[i])
	}
}

func (p *proc) LogSize() int64 {
	p.mu.Lock()
	unsynced := p.unsynced
	p.unsynced = false
	p.mu.Unlock()
	if unsynced {
		p.record(&wire.ToShim{Record: &wire.RecordFrame{Attempt: p.id, Stream: tasklog.System}})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size
}

// SaveReport implements run.Proc. It returns when the shim will receive the report, even if this process ends.
func (p *proc) SaveReport(r *muster.Report) {
	p.mu.Lock()
	p.report = r
	p.mu.Unlock()
	_ = p.conn.outbox().SendAndWait(&wire.ToShim{Report: r}) // without a shim the report is not needed
}

// setReporter sets the reporter and reports what was missed.
func (p *proc) setReporter(reporter run.Reporter) {
	p.mu.Lock()
	p.reporter = reporter
	progress, size := p.progress, p.size
	p.progress = nil
	p.mu.Unlock()
	if progress != nil {
		reporter.Progress(*progress)
	}
	if size > 0 {
		reporter.LogGrew(size)
	}
}

func (p *proc) onUpdate(n *wire.Update) {
	p.mu.Lock()
	reporter, grew := p.reporter, n.LogSize > p.size
	p.size = max(p.size, n.LogSize)
	if n.Progress != nil && reporter == nil {
		p.progress = progress.Merge(p.progress, n.Progress, progress.MaxMetrics)
	}
	p.mu.Unlock()
	if reporter != nil && n.Progress != nil {
		reporter.Progress(*n.Progress)
	}
	if reporter != nil && grew {
		reporter.LogGrew(n.LogSize)
	}
	if n.Exit != nil {
		p.setExit(n.Exit)
	}
}

// setExit sets the exit; only the first one counts.
func (p *proc) setExit(x *run.Exit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exit == nil {
		p.exit = x
		close(p.done)
	}
}
