package shim

import (
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/wire"
	"github.com/muster-dev/muster/internal/tasklog"
)

// proc is the worker's side of one attempt.
type proc struct {
	line    *line
	id      muster.AttemptID
	mark    string
	confine *run.Confine
	done    chan struct{}

	mu       sync.Mutex
	pid      run.Pid
	started  muster.Time
	sink     run.Sink // nil until it is adopted
	size     int64
	unsynced bool             // samples were sent that size may lack
	progress *muster.Progress // that no sink was told
	exit     *run.Exit

	// What the shim may not have heard when the connection breaks.
	stops  []wire.StopFrame
	report *muster.Report
}

var _ run.Proc = (*proc)(nil)

func newProc(l *line, id muster.AttemptID, mark string, c *run.Confine) *proc {
	return &proc{line: l, id: id, mark: mark, confine: c, done: make(chan struct{})}
}

// Pid implements run.Proc.
func (p *proc) Pid() run.Pid {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// Started implements run.Proc.
func (p *proc) Started() muster.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.started
}

// Done implements run.Proc.
func (p *proc) Done() <-chan struct{} { return p.done }

// Exit implements run.Proc.
func (p *proc) Exit() *run.Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

// maxStops is how many orders to stop are kept: the reason of the first one counts, and the shortest grace.
const maxStops = 8

// Stop implements run.Proc.
func (p *proc) Stop(why *run.Stopped, how muster.Kill) {
	f := wire.StopFrame{Attempt: p.id, Why: *why, How: how}
	p.mu.Lock()
	if len(p.stops) < maxStops {
		p.stops = append(p.stops, f)
	} else {
		p.stops[maxStops-1] = f
	}
	p.mu.Unlock()
	p.line.send(&wire.ToShim{Stop: &f})
}

// Record implements run.Proc. It returns when the log has the data, or when it
// cannot have it any more. A sample or a point is only sent: there is one every few seconds of
// each task, and nobody waits for it before LogSize.
func (p *proc) Record(stream tasklog.Stream, data []byte) {
	f := &wire.ToShim{Record: &wire.RecordFrame{Attempt: p.id, Stream: stream, Data: data}}
	if stream == tasklog.Usage || stream == tasklog.Progress {
		p.mu.Lock()
		p.unsynced = true
		p.mu.Unlock()
		p.line.send(f)
		return
	}
	p.record(f)
}

// record sends a record and waits until the shim has written it, and all that was sent before.
func (p *proc) record(f *wire.ToShim) {
	r, err := p.line.ask(f)
	if err != nil {
		return // Exit tells what became of the shim
	}
	for i := range r.News {
		p.grew(r.News[i].LogSize)
	}
}

// LogSize implements run.Proc.
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

// Settle implements run.Proc. It returns when the shim will have the report, whatever
// becomes of this process.
func (p *proc) Settle(r *muster.Report) {
	p.mu.Lock()
	p.report = r
	p.mu.Unlock()
	_ = p.line.outbox().PutAndWait(&wire.ToShim{Settle: r}) // without a shim nobody asks for it
}

// follow gives the attempt its sink and tells it what was missed.
func (p *proc) follow(sink run.Sink) {
	p.mu.Lock()
	p.sink = sink
	progress, size := p.progress, p.size
	p.progress = nil
	p.mu.Unlock()
	if progress != nil {
		sink.Progress(*progress)
	}
	if size > 0 {
		sink.LogGrew(size)
	}
}

// hear takes up news.
func (p *proc) hear(n *wire.News) {
	p.mu.Lock()
	sink, grew := p.sink, n.LogSize > p.size
	p.size = max(p.size, n.LogSize)
	if n.Progress != nil && sink == nil {
		p.progress = merge(p.progress, n.Progress)
	}
	p.mu.Unlock()
	if sink != nil && n.Progress != nil {
		sink.Progress(*n.Progress)
	}
	if sink != nil && grew {
		sink.LogGrew(n.LogSize)
	}
	if n.Exit != nil {
		p.ended(n.Exit)
	}
}

func (p *proc) grew(size int64) { p.hear(&wire.News{Attempt: p.id, LogSize: size}) }

// ended takes up the end; what comes after the first one does not count.
func (p *proc) ended(x *run.Exit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exit == nil {
		p.exit = x
		close(p.done)
	}
}
