package tool

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/backoff"
)

// Stream supervises a tool that prints a sample once per interval.
type Stream struct {
	Tool       string
	Args       func() []string
	Reader     func() Reader // parses its output; returns a new one for each run
	Interval   time.Duration
	MinBackoff time.Duration // the first pause before a restart
	Log        *slog.Logger
}

// Reader parses the output of a tool. One goroutine calls it.
type Reader interface {
	// Line parses a line that was printed at a time, and reports whether it completes a sample.
	Line(now time.Time, s string) (sampled bool)
}

// IdleFlusher is a Reader that cannot recognise the end of a sample by its lines.
type IdleFlusher interface {
	// FlushIdle is called after a moment without output.
	FlushIdle(now time.Time) (sampled bool)
}

const (
	idleFlush   = 50 * time.Millisecond // without output: the sample is complete
	maxLine     = 64 << 10              // bytes of a line
	logInterval = 5 * time.Minute       // between log messages about a tool that does not work
	maxBackoff  = time.Minute

	stalePeriods = 3 // intervals without a sample until the tool counts as hanging
	staleSlack   = time.Second
)

// StaleAfter is the age from which a sample is too old: the tool hangs.
func StaleAfter(interval time.Duration) time.Duration { return stalePeriods*interval + staleSlack }

// Run keeps the tool running until ctx ends. It restarts a tool that exits or hangs, after a pause that doubles up to a minute, and logs
// that once in a while.
func (f *Stream) Run(ctx context.Context) {
	pause := f.MinBackoff
	var lastLogged time.Time
	for {
		sampled, err := f.runOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if sampled {
			pause = f.MinBackoff
		}
		if now := time.Now(); now.Sub(lastLogged) >= logInterval {
			lastLogged = now
			f.Log.Warn("GPU monitor exited, restarting", slog.String("tool", f.Tool), slog.Any("error", err), slog.Duration("again_in", pause))
		}
		if backoff.Sleep(ctx, pause) != nil {
			return
		}
		pause = min(2*pause, max(maxBackoff, f.MinBackoff))
	}
}

// runOnce runs the tool until it exits, hangs or ctx ends, and kills all its processes. If the worker itself is killed, the tool ends with
// it if the kernel supports that, else at its next output, whose pipe is closed.
func (f *Stream) runOnce(ctx context.Context) (sampled bool, err error) {
	path, err := find(f.Tool)
	if err != nil {
		return false, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return false, err
	}
	defer r.Close()
	stderr := limitedBuffer{limit: maxStderr}
	cmd := command(path, f.Args()...)
	cmd.Stdout, cmd.Stderr = w, &stderr
	cmd.WaitDelay = killGrace
	p, err := start(cmd, path)
	_ = w.Close() // the tool has its own copy
	if err != nil {
		return false, err
	}
	chunks := make(chan []byte)
	stop := make(chan struct{})
	go func() { // joined below: closing r ends its read
		defer close(chunks)
		copyChunks(r, chunks, stop)
	}()
	sampled, err = f.read(ctx, chunks)
	close(stop)
	killed := p.kill()
	_ = r.Close()      // ends its read even if the tool could not be killed
	for range chunks { // until the goroutine has ended
	}
	if line := FirstLine(stderr.String()); killed && line != "" {
		err = fmt.Errorf("%w: %s", err, line)
	}
	return sampled, err
}

// copyChunks sends what it reads in pieces.
func copyChunks(in *os.File, chunks chan<- []byte, stop <-chan struct{}) {
	buf := make([]byte, 32<<10)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			select {
			case chunks <- bytes.Clone(buf[:n]):
			case <-stop:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// read reads samples until the tool ends, hangs or ctx ends.
func (f *Stream) read(ctx context.Context, chunks <-chan []byte) (sampled bool, err error) {
	r := f.Reader()
	var buf []byte
	watchdog := time.NewTimer(Timeout + stalePeriods*f.Interval) // the first sample may have to wake the driver
	defer watchdog.Stop()
	flusher, flushes := r.(IdleFlusher)
	idle := time.NewTimer(idleFlush)
	defer idle.Stop()
	window, received := time.Now(), 0
	last := ""
	for {
		var complete bool
		select {
		case <-ctx.Done():
			return sampled, ctx.Err()
		case <-watchdog.C:
			return sampled, fmt.Errorf("no sample for %s", stalePeriods*f.Interval)
		case now := <-idle.C:
			complete = flushes && flusher.FlushIdle(now)
		case b, ok := <-chunks:
			now := time.Now()
			if !ok {
				return sampled || flushes && flusher.FlushIdle(now), fmt.Errorf("it exited: %s", FirstLine(last))
			}
			if received += len(b); now.Sub(window) >= f.Interval {
				window, received = now, len(b)
			}
			if received > maxOutput {
				return sampled, fmt.Errorf("it printed more than %d MiB in %s", maxOutput>>20, f.Interval)
			}
			buf = append(buf, b...)
			for {
				i := bytes.IndexByte(buf, '\n')
				if i < 0 {
					break
				}
				last = strings.TrimRight(string(buf[:i]), "\r")
				complete = r.Line(now, last) || complete
				buf = buf[i+1:]
			}
			if len(buf) > maxLine {
				buf = nil // no tool prints such a line
			}
			if flushes {
				idle.Reset(idleFlush)
			}
		}
		if complete {
			sampled = true
			watchdog.Reset(StaleAfter(f.Interval))
		}
	}
}
