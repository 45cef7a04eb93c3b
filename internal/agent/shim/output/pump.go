package output

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/progress"
	"github.com/muster-dev/muster/internal/agent/redact"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/fault"
	"github.com/muster-dev/muster/internal/tasklog"
)

const (
	readSize   = 32 << 10               // bytes read at once; a longer line becomes several records
	flushDelay = 200 * time.Millisecond // until the start of an unfinished line is written

	deniedSize = 4 << 10 // bytes of a "permission denied" line that are kept
)

// Listener receives the events of a task.
type Listener interface {
	OnProgress(p muster.Progress)
	OnParseError(what string, err error)
	// OnPanic says that reading the output failed with a *fault.PanicError: the rest is lost.
	OnPanic(err error)
}

// Pumps read a task's pipes.
type Pumps struct {
	log      *Log
	listener Listener
	buffers  *Buffers
	limiter  *rate.Limiter

	wg         sync.WaitGroup
	pipes      []*os.File
	unthrottle []context.CancelFunc // end the throttling

	mu     sync.Mutex
	denied string // the last line with "permission denied"
	cutoff bool   // only what is in the pipes is still read
}

// Buffers are shared by all readers: most tasks need one only for a moment.
type Buffers struct{ pool sync.Pool }

func (b *Buffers) get() *[readSize]byte {
	if buf, ok := b.pool.Get().(*[readSize]byte); ok {
		return buf
	}
	return new([readSize]byte)
}

// NewPumps returns the readers of the output of a task that may print perSecond bytes. The log's redactor is applied to the output.
func NewPumps(log *Log, listener Listener, buffers *Buffers, perSecond int64) *Pumps {
	perSecond = cmp.Or(max(perSecond, 0), run.DefaultLogRate)
	return &Pumps{log: log, listener: listener, buffers: buffers, limiter: rate.NewLimiter(rate.Limit(perSecond), run.LogBurst)}
}

// Start reads one pipe until its end.
func (p *Pumps) Start(r *os.File, stream tasklog.Stream) {
	ctx, cancel := context.WithCancel(context.Background())
	p.unthrottle = append(p.unthrottle, cancel)
	p.pipes = append(p.pipes, r)
	pump := &pump{Pumps: p, r: r, stream: stream}
	if redactor := p.log.redactor; redactor != nil {
		pump.redacted = redactor.NewStream()
	}
	throttle := func(n int) {
		for ; n > 0; n -= run.LogBurst {
			if p.limiter.WaitN(ctx, min(n, run.LogBurst)) != nil {
				return // throttling has ended
			}
		}
	}
	p.wg.Go(func() {
		if err := fault.Run(func() { pump.run(pump.reader(), throttle) }); err != nil {
			p.listener.OnPanic(err)
		}
	})
}

// Unthrottle ends the throttling: a stopped task may have to print something to end.
func (p *Pumps) Unthrottle() {
	for _, cancel := range p.unthrottle {
		cancel()
	}
}

// Drain waits for the ends of the pipes, at most timeout: a process that could not be killed may hold them. What is in them by then is read, even
// if this process or its disk is slow.
func (p *Pumps) Drain(timeout time.Duration) {
	p.Unthrottle()
	timer := time.AfterFunc(timeout, p.cutOff)
	p.wg.Wait()
	timer.Stop()
	for _, r := range p.pipes {
		_ = r.Close()
	}
}

// cutOff ends the wait for more output.
func (p *Pumps) cutOff() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutoff = true
	for _, r := range p.pipes {
		if r.SetReadDeadline(time.Now()) != nil { // deadlines are not supported
			_ = r.Close()
		}
	}
}

func (p *Pumps) isCutOff() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cutoff
}

// permissionDenied is the text of EACCES in all languages, except for the case of its first letter.
var permissionDenied = []byte("ermission denied")

// Denied returns the last line of output with "permission denied", or "".
func (p *Pumps) Denied() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.denied
}

type pump struct {
	*Pumps
	r           *os.File
	stream      tasklog.Stream
	redacted    *redact.Stream  // of what is read; nil for a task without secrets
	raw         *[readSize]byte // what is read, if it is to be redacted; nil while there is no data
	text        []byte          // of raw, redacted; nil while there is no data
	buf         *[readSize]byte // nil while there is no data
	end         int             // buf[:end] is the start of a line
	midLine     bool            // whose first part is in the log already
	deadlineSet bool            // a read deadline is set
	batch       []byte          // encoded records
}

func (p *pump) run(read func() (int, error), throttle func(n int)) {
	for {
		cutoff := p.isCutOff() // before the read: a deadline for the rest of a line may expire just before cutOff
		n, err := read()
		cost := n
		if n > 0 {
			cost += p.accept(n)
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && !cutoff:
			p.flushPartial(false)
		default: // the end, or closed
			if p.redacted != nil {
				p.consumeText(p.redacted.Close(nil))
			}
			p.flushPartial(true)
			p.end = 0
			p.releaseBuffer()
			return
		}
		p.updateDeadline()
		throttle(cost)
	}
}

// space returns where the next bytes are read to.
func (p *pump) space() []byte {
	if p.redacted == nil {
		p.acquireBuffer()
		return p.buf[p.end:]
	}
	if p.raw == nil {
		p.raw = p.buffers.get()
	}
	return p.raw[:]
}

// comparisonsPerByte is how many comparisons with a secret cost as much as a printed byte: what a task prints must not keep its supervisor
// busy.
const comparisonsPerByte = 16

// accept handles n bytes that were read, and returns the cost in addition to n, in bytes.
func (p *pump) accept(n int) int {
	if p.redacted == nil {
		p.consume(n)
		return 0
	}
	p.text = p.redacted.Write(p.text[:0], p.raw[:n])
	p.consumeText(p.text)
	return p.redacted.TakeCost() / comparisonsPerByte
}

// consumeText is consume for text that is not in the buffer yet.
func (p *pump) consumeText(text []byte) {
	for len(text) > 0 {
		p.acquireBuffer()
		n := copy(p.buf[p.end:], text)
		text = text[n:]
		p.consume(n)
	}
}

func (p *pump) acquireBuffer() {
	if p.buf == nil {
		p.buf = p.buffers.get()
	}
}

// releaseBuffer returns empty buffers, so that a silent task holds none.
func (p *pump) releaseBuffer() {
	if p.raw != nil {
		p.buffers.pool.Put(p.raw)
		p.raw, p.text = nil, nil
	}
	if p.buf != nil && p.end == 0 {
		p.buffers.pool.Put(p.buf)
		p.buf = nil
	}
}

// consume splits n more bytes into lines.
func (p *pump) consume(n int) {
	now := time.Now()
	start, scanned := 0, p.end
	p.end += n
	for {
		i := bytes.IndexByte(p.buf[scanned:p.end], '\n')
		if i < 0 {
			break
		}
		p.handleLine(p.buf[start:scanned+i+1], now)
		p.midLine = false
		scanned += i + 1
		start = scanned
	}
	p.end = copy(p.buf[:], p.buf[start:p.end])
	if p.end == len(p.buf) {
		p.record(p.buf[:p.end], now)
		p.end, p.midLine = 0, true
	}
	p.flushBatch()
}

// handleLine handles a complete line with its newline, or the last one without.
func (p *pump) handleLine(line []byte, now time.Time) {
	if p.midLine || p.stream != tasklog.Stdout || !progress.IsEvent(line) {
		p.record(line, now)
	} else if event, err := progress.ParseLine(bytes.TrimRight(line, "\r\n")); err == nil {
		p.listener.OnProgress(event)
	} else {
		p.record(line, now)
		p.listener.OnParseError("a ::muster line", err)
	}
}

func (p *pump) record(data []byte, now time.Time) {
	if bytes.Contains(data, permissionDenied) {
		p.mu.Lock()
		p.denied = string(data[:min(len(data), deniedSize)])
		p.mu.Unlock()
	}
	p.batch = tasklog.AppendRecord(p.batch, tasklog.Record{Stream: p.stream, At: now, Data: data})
}

func (p *pump) flushBatch() {
	if len(p.batch) == 0 {
		return
	}
	p.log.appendOutput(p.batch)
	if p.batch = p.batch[:0]; cap(p.batch) > maxKeptBatch {
		p.batch = nil
	}
}

// maxKeptBatch is the capacity of a batch that is kept for the next one.
const maxKeptBatch = 4 << 10

// flushPartial writes the start of a line, unless it may become an event.
func (p *pump) flushPartial(atEnd bool) {
	if p.end == 0 {
		return
	}
	part := p.buf[:p.end]
	switch {
	case atEnd:
		p.handleLine(part, time.Now())
	case p.mayBeEvent():
		return
	default:
		p.record(part, time.Now())
	}
	p.end, p.midLine = 0, true
	p.flushBatch()
}

func (p *pump) mayBeEvent() bool {
	if p.midLine || p.stream != tasklog.Stdout {
		return false
	}
	n := min(p.end, len(progress.LinePrefix))
	return string(p.buf[:n]) == progress.LinePrefix[:n]
}

// updateDeadline limits the wait for the rest of a line.
func (p *pump) updateDeadline() {
	waiting := p.end > 0 && !p.mayBeEvent()
	if waiting == p.deadlineSet {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.cutoff: // that deadline stays
	case waiting:
		p.deadlineSet = p.r.SetReadDeadline(time.Now().Add(flushDelay)) == nil
	default:
		p.deadlineSet = false
		_ = p.r.SetReadDeadline(time.Time{}) // setting it succeeded before
	}
}

// Events reads $MUSTER_EVENTS.
type Events struct {
	path     string
	listener Listener
	redactor *redact.Redactor
	file     *os.File // nil until it exists
	partial  []byte   // the start of a line
	disabled bool     // it is not a regular file: never read
}

// NewEvents returns the reader of the events file at path. redactor may be nil.
func NewEvents(path string, listener Listener, redactor *redact.Redactor) *Events {
	return &Events{path: path, listener: listener, redactor: redactor}
}

// maxPollSize bounds the bytes of one Poll, so that a task that writes without end does not block its supervisor.
const maxPollSize = 1 << 20

// Poll reads what was written since the last call, and reports whether there was something.
func (ev *Events) Poll() bool {
	if ev.disabled || ev.path == "" {
		return false
	}
	if ev.file == nil {
		f, err := run.OpenRegular(ev.path)
		if errors.Is(err, os.ErrNotExist) {
			return false
		}
		if err != nil {
			ev.disabled = true
			ev.listener.OnParseError("$MUSTER_EVENTS", err)
			return true
		}
		ev.file = f
	}
	buf := make([]byte, 4<<10)
	for read := 0; read < maxPollSize; {
		n, err := ev.file.Read(buf)
		read += n
		ev.partial = append(ev.partial, buf[:n]...)
		ev.parseLines()
		if n == 0 || err != nil && !errors.Is(err, io.EOF) {
			return read > 0
		}
	}
	return true
}

// parseLines parses the complete lines of partial.
func (ev *Events) parseLines() {
	for {
		line, rest, ok := bytes.Cut(ev.partial, []byte("\n"))
		if !ok {
			break
		}
		ev.partial = rest
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		p, err := progress.ParseEvent(ev.redactor.JSON(line))
		if err != nil {
			ev.listener.OnParseError("a line of $MUSTER_EVENTS", err)
			continue
		}
		ev.listener.OnProgress(p)
	}
	if len(ev.partial) == 0 {
		ev.partial = nil
	}
	if len(ev.partial) > progress.MaxEventLine {
		ev.disabled, ev.partial = true, nil
		ev.listener.OnParseError("$MUSTER_EVENTS", errors.New("a line is too long; later lines are ignored"))
	}
}

// Close closes the file.
func (ev *Events) Close() {
	if ev.file != nil {
		_ = ev.file.Close()
	}
}
