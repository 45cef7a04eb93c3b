package execwire

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
)

// pipeEnd is a Transport in memory. It passes frames one by one, and loses none.
type pipeEnd struct {
	in, out chan []byte
	closed  chan struct{}
	once    *sync.Once
}

func newPipe() (a, b *pipeEnd) {
	x, y, closed, once := make(chan []byte), make(chan []byte), make(chan struct{}), new(sync.Once)
	return &pipeEnd{x, y, closed, once}, &pipeEnd{y, x, closed, once}
}

func (p *pipeEnd) Write(ctx context.Context, frame []byte, _ bool) error {
	select {
	case p.out <- bytes.Clone(frame):
		return nil
	case <-p.closed:
		return io.ErrClosedPipe
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *pipeEnd) Read(ctx context.Context) ([]byte, error) {
	select {
	case b := <-p.in:
		return b, nil
	case <-p.closed:
		return nil, io.ErrClosedPipe
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipeEnd) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// ends returns two connected ends that run until the test ends, and the frames that the second one received.
func ends(t *testing.T) (a, b *Conn, frames chan *Frame) {
	t.Helper()
	x, y := newPipe()
	a, b, frames = NewConn(x), NewConn(y), make(chan *Frame, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = a.Run(ctx, func(*Frame) error { return nil }) })
	wg.Go(func() { _ = b.Run(ctx, func(f *Frame) error { frames <- f; return nil }) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return a, b, frames
}

func TestDataArrivesWhole(t *testing.T) {
	a, b, _ := ends(t)
	want := make([]byte, 3*Window+12345)
	_, _ = rand.Read(want)
	go func() {
		w := a.Writer(t.Context(), Stdout)
		_, _ = w.Write(want)
		_ = w.Close()
	}()
	got, err := io.ReadAll(b.Reader(t.Context(), Stdout))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
	}
}

// A reader that does not read stops its writer at the window, while other frames pass.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, frames := ends(t)
		written := make(chan error, 1)
		go func() {
			_, err := a.Writer(t.Context(), Stdout).Write(make([]byte, 2*Window))
			written <- err
		}()
		synctest.Wait()
		b.mu.Lock()
		if b.pending != Window {
			t.Errorf("%d bytes wait, want %d", b.pending, Window)
		}
		b.mu.Unlock()
		if err := a.Send(t.Context(), &Frame{Signal: "SIGINT"}); err != nil {
			t.Fatal(err)
		}
		if f := <-frames; f.Signal != "SIGINT" {
			t.Errorf("received %+v", f)
		}
		if n, err := io.CopyN(io.Discard, b.Reader(t.Context(), Stdout), 2*Window); err != nil {
			t.Errorf("read %d bytes: %v", n, err)
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
	})
}

func TestPeerBeyondTheWindowIsRefused(t *testing.T) {
	x, y := newPipe()
	c := NewConn(x)
	go func() {
		raw := NewConn(y)
		for range Window/MaxChunk + 1 {
			if raw.Send(t.Context(), &Frame{Stream: Stdin, Data: make([]byte, MaxChunk)}) != nil {
				return
			}
		}
	}()
	if err := c.Run(t.Context(), func(*Frame) error { return nil }); muster.CodeOf(err) != muster.Invalid {
		t.Errorf("the connection ended with %v", err)
	}
}

func TestUnsentDataCannotBeAcknowledged(t *testing.T) {
	x, y := newPipe()
	go func() { _ = NewConn(y).Send(t.Context(), &Frame{Ack: 1}) }()
	if err := NewConn(x).Run(t.Context(), func(*Frame) error { return nil }); muster.CodeOf(err) != muster.Invalid {
		t.Errorf("the connection ended with %v", err)
	}
}

// Two idle ends keep a connection, and a silent one ends it.
func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := ends(t)
		time.Sleep(10 * Silence)
		a.mu.Lock()
		b.mu.Lock()
		if a.err != nil || b.err != nil {
			t.Errorf("idle ends: %v, %v", a.err, b.err)
		}
		b.mu.Unlock()
		a.mu.Unlock()
	})
	synctest.Test(t, func(t *testing.T) {
		x, y := newPipe()
		go func() {
			for {
				if _, err := y.Read(t.Context()); err != nil {
					return
				}
			}
		}()
		start := time.Now()
		err := NewConn(x).Run(t.Context(), func(*Frame) error { return nil })
		if !errors.Is(err, errSilence) || time.Since(start) != Silence {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}

func TestStartCheck(t *testing.T) {
	for name, s := range map[string]*Start{
		"nothing":       {},
		"two":           {Get: &Get{}, Put: &Put{}},
		"no command":    {Command: &Command{}},
		"a zero byte":   {Command: &Command{Argv: []string{"a\x00b"}}},
		"a long one":    {Command: &Command{Argv: []string{strings.Repeat("x", MaxCommand)}}},
		"no name":       {Command: &Command{Argv: []string{"a"}, Env: []string{"=b"}}},
		"a big screen":  {Command: &Command{Argv: []string{"a"}, Size: Size{Rows: 1 << 20}}},
		"outside":       {Get: &Get{Path: "a/../../b"}},
		"outside out":   {Put: &Put{Path: "$MUSTER_OUT/.."}},
		"a path's name": {Put: &Put{Path: "a", Name: "../b"}},
	} {
		if err := s.Check(); muster.CodeOf(err) != muster.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, s := range []*Start{
		{Command: &Command{Argv: []string{"a"}, Env: []string{"A=", "B=c=d"}, TTY: true}}, {Get: &Get{}}, {Get: &Get{Path: "/muster/out/x"}}, {Put: &Put{Path: "${TMPDIR}/a/", Name: "b"}},
	} {
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	}
}

func FuzzParsePath(f *testing.F) {
	f.Add("$MUSTER_OUT/a/../b")
	f.Add("../x")
	f.Add("a//b/.")
	f.Fuzz(func(t *testing.T, text string) {
		variable, rel, err := ParsePath(text)
		if err == nil && variable != "/" && (rel == ".." || strings.HasPrefix(rel, "../") || strings.HasPrefix(rel, "/")) {
			t.Errorf("%q is %q in %q", text, rel, variable)
		}
	})
}
