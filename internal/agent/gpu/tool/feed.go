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

// Feed is a tool that stays, and prints a sample every period.
type Feed struct {
	Tool  string
	Forms []Form // of its arguments, as versions of it differ; the one that works is kept
	Every time.Duration
	Again time.Duration // the first wait before it is started again
	Log   *slog.Logger

	form int
}

// Form is one way to run a tool and to read what it prints.
type Form struct {
	Args   func() []string
	Reader func() Reader // a new one for each run
}

// Reader reads what a tool prints. All calls come from one goroutine.
type Reader interface {
	// Line reads one line, which came at a time, and says whether a sample is
	// whole with it.
	Line(now time.Time, s string) (sampled bool)
}

// Quieter is a Reader that cannot tell the end of a sample from its lines.
type Quieter interface {
	// Quiet is called when nothing came for a moment.
	Quiet(now time.Time) (sampled bool)
}

const (
	lull       = 50 * time.Millisecond // without output: a sample was printed to its end
	longest    = 64 << 10              // bytes of a line that is read
	longestLog = 5 * time.Minute       // between two words about a tool that does not work
	mostWait   = time.Minute

	stale = 3 // periods without a sample: it is too old, and its tool hangs
	slack = time.Second
)

// Late is the age from which a sample of a tool that prints one every period is too old: its tool
// hangs.
func Late(every time.Duration) time.Duration { return stale*every + slack }

// Run keeps the tool running until ctx ends. One that ends or hangs is started again, after a wait that
// doubles up to a minute; the log says so now and then.
func (f *Feed) Run(ctx context.Context) {
	wait := f.Again
	var told time.Time
	for {
		sampled, err := f.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if sampled {
			wait = f.Again
		} else {
			f.form = (f.form + 1) % len(f.Forms)
		}
		if now := time.Now(); now.Sub(told) >= longestLog {
			told = now
			f.Log.Warn("readings of GPUs are interrupted", slog.String("tool", f.Tool), slog.Any("error", err), slog.Duration("again_in", wait))
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		wait = min(2*wait, max(mostWait, f.Again))
	}
}

// once runs the tool until it ends, hangs or ctx ends, and leaves no process of
// it behind that can be killed. If the worker itself is killed, the tool ends
// with it where the kernel can do that, and else when it next prints, into a
// pipe that nobody reads.
func (f *Feed) once(ctx context.Context) (sampled bool, err error) {
	path, err := exec.LookPath(f.Tool)
	if err != nil {
		return false, ErrMissing
	}
	if held.has(path) {
		return false, fmt.Errorf("an earlier %s still hangs in the driver", filepath.Base(path))
	}
	in, out, err := os.Pipe()
	if err != nil {
		return false, err
	}
	defer in.Close() // again, at an early return
	complaint := bounded{most: mostComplaint}
	cmd := command(path, f.Forms[f.form].Args()...)
	cmd.Stdout, cmd.Stderr = out, &complaint
	cmd.WaitDelay = mercy
	running, err := launch(cmd, path)
	_ = out.Close() // the tool has its own
	if err != nil {
		return false, err
	}
	chunks := make(chan []byte)
	stop := make(chan struct{})
	go func() { // joined below: closing in ends its read
		defer close(chunks)
		passOn(in, chunks, stop)
	}()
	sampled, err = f.read(ctx, chunks)
	close(stop)
	ended := running.end()
	_ = in.Close()     // ends the reading of it, if the tool could not be ended
	for range chunks { // until the reader has ended
	}
	if line := FirstLine(complaint.String()); ended && line != "" {
		err = fmt.Errorf("%w: %s", err, line)
	}
	return sampled, err
}

// passOn hands on what comes, in pieces.
func passOn(in *os.File, chunks chan<- []byte, stop <-chan struct{}) {
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
func (f *Feed) read(ctx context.Context, chunks <-chan []byte) (sampled bool, err error) {
	r := f.Forms[f.form].Reader()
	var rest []byte
	hung := time.NewTimer(Patience + stale*f.Every) // the first may have to wake the driver
	defer hung.Stop()
	q, waits := r.(Quieter)
	idle := time.NewTimer(lull)
	defer idle.Stop()
	window, amount := time.Now(), 0
	last := ""
	for {
		var whole bool
		select {
		case <-ctx.Done():
			return sampled, ctx.Err()
		case <-hung.C:
			return sampled, fmt.Errorf("it printed no sample for %s", stale*f.Every)
		case now := <-idle.C:
			whole = waits && q.Quiet(now)
		case b, ok := <-chunks:
			now := time.Now()
			if !ok {
				return sampled || waits && q.Quiet(now), fmt.Errorf("it ended: %s", FirstLine(last))
			}
			if amount += len(b); now.Sub(window) >= f.Every {
				window, amount = now, len(b)
			}
			if amount > mostOutput {
				return sampled, fmt.Errorf("it printed more than %d MiB in %s", mostOutput>>20, f.Every)
			}
			rest = append(rest, b...)
			for {
				i := bytes.IndexByte(rest, '\n')
				if i < 0 {
					break
				}
				last = strings.TrimRight(string(rest[:i]), "\r")
				whole = r.Line(now, last) || whole
				rest = rest[i+1:]
			}
			if len(rest) > longest {
				rest = nil // no tool prints such a line; the end of it will not be understood either
			}
			if waits {
				idle.Reset(lull)
			}
		}
		if whole {
			sampled = true
			hung.Reset(Late(f.Every))
		}
	}
}
