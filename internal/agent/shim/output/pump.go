package output

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/fault"
	"github.com/muster-dev/muster/internal/tasklog"
)

const (
	readSize  = 32 << 10               // bytes read at once; a longer line becomes several records
	flushWait = 200 * time.Millisecond // until the beginning of a line is shown

	deniedSize = 4 << 10 // bytes that are kept of a line which says that permission was denied
)

// Listener is told what a task says to Muster.
type Listener interface {
	Said(p muster.Progress)
	Misunderstood(what string, err error)
	// Failed says that the reading of its output has failed by a *fault.PanicError: the rest is lost.
	Failed(err error)
}

// Pumps read a task's pipes.
type Pumps struct {
	log     *Log
	hears   Listener
	buffers *Buffers
	limit   *rate.Limiter

	wg    sync.WaitGroup
	ends  []*os.File
	hurry []context.CancelFunc // end the slowing down

	mu     sync.Mutex
	denied string // the last line that says so
	last   bool   // what is in the pipes is all that is read
}

// Buffers are shared by all that read. A few are kept for the next reader: most tasks need
// one for a moment only.
type Buffers struct {
	mu    sync.Mutex
	spare []*[readSize]byte
}

const keptBuffers = 16

func (b *Buffers) take() *[readSize]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := len(b.spare) - 1
	if last < 0 {
		return new([readSize]byte)
	}
	buf := b.spare[last]
	b.spare = b.spare[:last]
	return buf
}

func (b *Buffers) give(buf *[readSize]byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.spare) < keptBuffers {
		b.spare = append(b.spare, buf)
	}
}

// NewPumps returns what reads the output of a task that may print perSecond bytes.
func NewPumps(log *Log, hears Listener, buffers *Buffers, perSecond int64) *Pumps {
	if perSecond <= 0 {
		perSecond = run.DefaultLogRate
	}
	return &Pumps{log: log, hears: hears, buffers: buffers, limit: rate.NewLimiter(rate.Limit(perSecond), run.LogBurst)}
}

// Start reads one pipe until its end.
func (p *Pumps) Start(r *os.File, stream tasklog.Stream) {
	ctx, hurry := context.WithCancel(context.Background())
	p.hurry = append(p.hurry, hurry)
	p.ends = append(p.ends, r)
	pump := &pump{Pumps: p, r: r, stream: stream}
	slow := func(n int) { _ = p.limit.WaitN(ctx, n) } // an error says that nothing is slowed any more
	p.wg.Go(func() {
		if err := fault.Run(func() { pump.run(pump.reader(), slow) }); err != nil {
			p.hears.Failed(err)
		}
	})
}

// Fast ends the slowing down: a stopped task may have to print something to end.
func (p *Pumps) Fast() {
	for _, hurry := range p.hurry {
		hurry()
	}
}

// Finish waits for the ends of the pipes, but not long: something that Muster
// could not kill may hold them. What is in them by then is read, however long this process
// or its disk stood still.
func (p *Pumps) Finish(atMost time.Duration) {
	p.Fast()
	cut := time.AfterFunc(atMost, p.cut)
	p.wg.Wait()
	cut.Stop()
	p.close()
}

// cut ends the waiting for more.
func (p *Pumps) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = true
	for _, r := range p.ends {
		if r.SetReadDeadline(time.Now()) != nil { // no pipe that knows of time
			_ = r.Close()
		}
	}
}

// cutOff reports whether nothing is waited for any more.
func (p *Pumps) cutOff() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// permissionDenied is what programs of all languages make of EACCES, but for the case of its
// first letter.
var permissionDenied = []byte("ermission denied")

func (p *Pumps) noteDenied(line []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.denied = string(line[:min(len(line), deniedSize)])
}

// Denied returns the last line in which the task said that permission was denied to it, or "".
func (p *Pumps) Denied() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.denied
}

func (p *Pumps) close() {
	for _, r := range p.ends {
		_ = r.Close()
	}
}

// pump reads one pipe.
type pump struct {
	*Pumps
	r       *os.File
	stream  tasklog.Stream
	buf     *[readSize]byte // nil while nothing is there
	end     int             // buf[:end] is the beginning of a line
	midLine bool            // and its very beginning is in the log already
	timed   bool            // a read deadline is set
	batch   []byte          // encoded records
}

// run reads with read until the end.
func (p *pump) run(read func() (int, error), slow func(n int)) {
	for {
		last := p.cutOff() // before the read: a wait for the rest of a line may end just before the cut
		n, err := read()
		if n > 0 {
			p.take(n)
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && !last:
			p.flush(false)
		default: // the end, or closed from outside
			p.flush(true)
			p.end = 0
			p.giveBuffer()
			return
		}
		p.deadline()
		if n > 0 {
			slow(n)
		}
	}
}

// takeBuffer makes sure that there is a buffer.
func (p *pump) takeBuffer() {
	if p.buf == nil {
		p.buf = p.buffers.take()
	}
}

// giveBuffer gives it back if nothing is in it, so that a silent task holds none.
func (p *pump) giveBuffer() {
	if p.buf != nil && p.end == 0 {
		p.buffers.give(p.buf)
		p.buf = nil
	}
}

// take cuts n more bytes into lines.
func (p *pump) take(n int) {
	now := time.Now()
	start, scanned := 0, p.end
	p.end += n
	for {
		i := bytes.IndexByte(p.buf[scanned:p.end], '\n')
		if i < 0 {
			break
		}
		p.line(p.buf[start:scanned+i+1], now)
		p.midLine = false
		scanned += i + 1
		start = scanned
	}
	p.end = copy(p.buf[:], p.buf[start:p.end])
	if p.end == len(p.buf) {
		p.record(p.buf[:p.end], now)
		p.end, p.midLine = 0, true
	}
	p.ship()
}

// line takes a whole line with its end, or the last one without.
func (p *pump) line(line []byte, now time.Time) {
	if p.midLine || p.stream != tasklog.Stdout || !run.IsEvent(line) {
		p.record(line, now)
		return
	}
	event, err := run.ParseLine(bytes.TrimRight(line, "\r\n"))
	if err == nil {
		p.hears.Said(event)
		return
	}
	p.record(line, now)
	p.hears.Misunderstood("a ::muster line", err)
}

func (p *pump) record(data []byte, now time.Time) {
	if bytes.Contains(data, permissionDenied) {
		p.noteDenied(data)
	}
	p.batch = tasklog.AppendRecord(p.batch, tasklog.Record{Stream: p.stream, At: now, Data: data})
}

func (p *pump) ship() {
	if len(p.batch) == 0 {
		return
	}
	p.log.append(p.batch)
	if p.batch = p.batch[:0]; cap(p.batch) > keptBatch {
		p.batch = nil
	}
}

// keptBatch is how much memory of a batch is kept for the next one.
const keptBatch = 4 << 10

// flush writes the beginning of a line, unless it may become a line for Muster.
func (p *pump) flush(atEnd bool) {
	if p.end == 0 {
		return
	}
	part := p.buf[:p.end]
	switch {
	case atEnd:
		p.line(part, time.Now())
	case p.mayBeEvent():
		return
	default:
		p.record(part, time.Now())
	}
	p.end, p.midLine = 0, true
	p.ship()
}

func (p *pump) mayBeEvent() bool {
	if p.midLine || p.stream != tasklog.Stdout {
		return false
	}
	n := min(p.end, len(run.LinePrefix))
	return string(p.buf[:n]) == run.LinePrefix[:n]
}

// deadline lets a read that is waiting for the rest of a line end in time.
func (p *pump) deadline() {
	waiting := p.end > 0 && !p.mayBeEvent()
	if waiting == p.timed {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.last: // that deadline stays
	case waiting:
		p.timed = p.r.SetReadDeadline(time.Now().Add(flushWait)) == nil
	default:
		p.timed = false
		_ = p.r.SetReadDeadline(time.Time{}) // it could be set, so it can be taken back
	}
}
