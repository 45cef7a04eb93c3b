package tool

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Stream is a tool that stays, and prints a sample every period.
type Stream struct {
	Tool       string
	Variants   []Variant // of its arguments, as versions of it differ; the one that works is kept
	Interval   time.Duration
	MinBackoff time.Duration // the first wait before it is started again
	Log        *slog.Logger

	variant int
}

// Variant is one way to run a tool and to read what it prints.
type Variant struct {
	Args   func() []string
	Reader func() Reader // a new one for each run
}

// Reader reads what a tool prints. All calls come from one goroutine.
type Reader interface {
	// Line reads one line, which came at a time, and says whether a sample is
	// whole with it.
	Line(now time.Time, s string) (sampled bool)
}

// IdleFlusher is a Reader that cannot tell the end of a sample from its lines.
type IdleFlusher interface {
	// FlushIdle is called when nothing came for a moment.
	FlushIdle(now time.Time) (sampled bool)
}

const (
	idleFlush   = 50 * time.Millisecond // without output: a sample was printed to its end
	maxLine     = 64 << 10              // bytes of a line that is read
	logInterval = 5 * time.Minute       // between two words about a tool that does not work
	maxBackoff  = time.Minute

	stalePeriods = 3 // periods without a sample: it is too old, and its tool hangs
	staleSlack   = time.Second
)

// StaleAfter is the age from which a sample of a tool that prints one every period is too old: its tool
// hangs.
func StaleAfter(interval time.Duration) time.Duration { return stalePeriods*interval + staleSlack }

// Run keeps the tool running until ctx ends. One that ends or hangs is started again, after a wait that
// doubles up to a minute; the log says so now and then.
func (f *Stream) Run(ctx context.Context) {
	backoff := f.MinBackoff
	var lastLogged time.Time
	for {
		sampled, err := f.runOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if sampled {
			backoff = f.MinBackoff
		} else {
			f.variant = (f.variant + 1) % len(f.Variants)
		}
		if now := time.Now(); now.Sub(lastLogged) >= logInterval {
			lastLogged = now
			f.Log.Warn("readings of GPUs are interrupted", slog.String("tool", f.Tool), slog.Any("error", err), slog.Duration("again_in", backoff))
		}
		t := time.NewTimer(backoff)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		backoff = min(2*backoff, max(maxBackoff, f.MinBackoff))
	}
}

// runOnce runs the tool until it ends, hangs or ctx ends, and leaves no process of
// it behind that can be killed. If the worker itself is killed, the tool ends
// with it where the kernel can do that, and else when it next prints, into a
// pipe that nobody reads.
func (f *Stream) runOnce(ctx context.Context) (sampled bool, err error) {
	path, err := exec.LookPath(f.Tool)
	if err != nil {
		return false, ErrMissing
	}
	if stuckTools.has(path) {
		return false, fmt.Errorf("an earlier %s still hangs in the driver", filepath.Base(path))
	}
	r, w, err := os.Pipe()
	if err != nil {
		return false, err
	}
	defer r.Close() // again, at an early return
	stderr := limitedBuffer{limit: maxStderr}
	cmd := command(path, f.Variants[f.variant].Args()...)
	cmd.Stdout, cmd.Stderr = w, &stderr
	cmd.WaitDelay = killGrace
	p, err := start(cmd, path)
	_ = w.Close() // the tool has its own
	if err != nil {
		return false, err
	}
	chunks := make(chan []byte)
	stop := make(chan struct{})
	go func() { // joined below: closing in ends its read
		defer close(chunks)
		copyChunks(r, chunks, stop)
	}()
	sampled, err = f.read(ctx, chunks)
	close(stop)
	killed := p.kill()
	_ = r.Close()      // ends the reading of it, if the tool could not be ended
	for range chunks { // until the reader has ended
	}
	if line := FirstLine(stderr.String()); killed && line != "" {
		err = fmt.Errorf("%w: %s", err, line)
	}
	return sampled, err
}

// copyChunks hands on what comes, in pieces.
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

// read reads samples until there are no more.
func (f *Stream) read(ctx context.Context, chunks <-chan []byte) (sampled bool, err error) {
	r := f.Variants[f.variant].Reader()
	var buf []byte
	watchdog := time.NewTimer(Timeout + stalePeriods*f.Interval) // the first may have to wake the driver
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
			return sampled, fmt.Errorf("it printed no sample for %s", stalePeriods*f.Interval)
		case now := <-idle.C:
			complete = flushes && flusher.FlushIdle(now)
		case b, ok := <-chunks:
			now := time.Now()
			if !ok {
				return sampled || flushes && flusher.FlushIdle(now), fmt.Errorf("it ended: %s", FirstLine(last))
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
				buf = nil // no tool prints such a line; the end of it will not be understood either
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
