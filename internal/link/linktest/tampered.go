package linktest

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/testkit"
)

// attacks are what an Interceptor does to the frames of one direction of its first connection, of which frames 1 to 3 are sent. Frame 1
// always passes.
func attacks() map[string]struct {
	reason  string
	replace func(f Intercepted, seen [][]byte) [][]byte // seen has all frames of the other direction and connection
} {
	type attack = struct {
		reason  string
		replace func(f Intercepted, seen [][]byte) [][]byte
	}
	on := func(n int, change func(b []byte) [][]byte) func(Intercepted, [][]byte) [][]byte {
		return func(f Intercepted, _ [][]byte) [][]byte {
			if f.N == n {
				return change(f.Data)
			}
			return [][]byte{f.Data}
		}
	}
	var held []byte
	var first []byte
	return map[string]attack{
		"altered": {link.Altered, on(2, func(b []byte) [][]byte {
			b = bytes.Clone(b)
			b[len(b)-2] ^= 1
			return [][]byte{b}
		})},
		"cut off":           {link.Altered, on(2, func(b []byte) [][]byte { return [][]byte{b[:len(b)-1]} })},
		"with half a head":  {link.Altered, on(2, func(b []byte) [][]byte { return [][]byte{b[:20]} })},
		"without signature": {link.Unsealed, on(2, func(b []byte) [][]byte { return [][]byte{b[bytes.IndexByte(b, '{'):]} })},
		"repeated":          {link.Replayed, on(2, func(b []byte) [][]byte { return [][]byte{b, b} })},
		"lost":              {link.Reordered, on(2, func([]byte) [][]byte { return nil })},
		"swapped": {link.Reordered, func(f Intercepted, _ [][]byte) [][]byte {
			switch f.N {
			case 2:
				held = f.Data
				return nil
			case 3:
				return [][]byte{f.Data, held}
			}
			return [][]byte{f.Data}
		}},
		"replaced by an old one": {link.Replayed, func(f Intercepted, _ [][]byte) [][]byte {
			switch f.N {
			case 1:
				first = f.Data
			case 2:
				return [][]byte{first}
			}
			return [][]byte{f.Data}
		}},
		"of the other direction": {link.Foreign, func(f Intercepted, seen [][]byte) [][]byte {
			if f.N == 2 {
				return seen[:1]
			}
			return [][]byte{f.Data}
		}},
	}
}

// tampered attacks each direction of a session.
func tampered(t *testing.T, tr Transport) {
	for _, up := range []bool{true, false} {
		for name, a := range attacks() {
			direction := map[bool]string{true: "up", false: "down"}[up]
			t.Run(name+" "+direction, func(t *testing.T) {
				s := start(t, tr, "127.0.0.1:0")
				var mu sync.Mutex
				var other [][]byte
				p := NewInterceptor(t, s.addr, func(f Intercepted) [][]byte {
					mu.Lock()
					defer mu.Unlock()
					if f.Up == up {
						return a.replace(f, other)
					}
					other = append(other, f.Data)
					return [][]byte{f.Data}
				}, nil)
				w, sc := open(t, tr, s, p.Addr)
				wantRejected(t, w, sc, up, a.reason)
			})
		}
	}
	t.Run("of another session of the worker", func(t *testing.T) {
		s := start(t, tr, "127.0.0.1:0")
		var recorded []byte
		p := NewInterceptor(t, s.addr, func(f Intercepted) [][]byte {
			switch {
			case f.Up && f.Conn == 1 && f.N == 2:
				recorded = f.Data
			case f.Up && f.Conn == 2 && f.N == 2:
				return [][]byte{recorded}
			}
			return [][]byte{f.Data}
		}, nil)
		w1, s1 := open(t, tr, s, p.Addr)
		ctx := withTimeout(t)
		testkit.NoError(t, w1.Send(ctx, &link.ToServer{Ping: true}))
		if _, err := s1.Recv(ctx); err != nil {
			t.Fatal(err)
		}
		w2, s2 := open(t, tr, s, p.Addr)
		wantRejected(t, w2, s2, true, link.Foreign)
	})
}

// wantRejected sends two frames in one direction of a session, and fails the test unless the receiver takes none after a rejected one.
func wantRejected(t *testing.T, w link.WorkerConn, sc link.ServerConn, up bool, reason string) {
	t.Helper()
	ctx, cancel := context.WithCancel(withTimeout(t))
	var sending sync.WaitGroup
	defer sending.Wait()
	defer cancel()
	sending.Go(func() {
		for range 2 {
			if up {
				_ = w.Send(ctx, &link.ToServer{Accepted: []muster.AttemptID{attemptID(1)}}) // the receiver may have ended
			} else {
				_ = sc.Send(ctx, &link.ToWorker{FinishedAck: []muster.AttemptID{attemptID(1)}}) // the receiver may have ended
			}
		}
	})
	recv := func() (err error) {
		if up {
			_, err = sc.Recv(ctx)
		} else {
			_, err = w.Recv(ctx)
		}
		return err
	}
	err := recv()
	if reason == link.Replayed && err == nil {
		err = recv() // the second one is the first
	}
	rejected, ok := errors.AsType[*link.FrameError](err)
	if !ok || rejected.Reason != reason {
		t.Fatalf("received with %v, want a frame rejected as %s", err, reason)
	}
	if err := recv(); !errors.As(err, &rejected) {
		t.Fatalf("after a rejected frame: %v", err)
	}
}

// downgraded removes the nonce of either side on its way.
func downgraded(t *testing.T, tr Transport) {
	t.Run("the server's nonce is removed", func(t *testing.T) {
		s := start(t, tr, "127.0.0.1:0")
		open(t, tr, s, s.addr)
		p := NewInterceptor(t, s.addr, pass, func(up bool, h http.Header) {
			if !up {
				h.Del(link.HeaderNonce)
			}
		})
		w, err := tr.NewDialer("http://"+p.Addr, tr.credential()).Dial(withTimeout(t))
		if err == nil {
			w.Close()
		}
		if muster.CodeOf(err) != muster.Unavailable {
			t.Fatalf("a worker with a secret opened a session without signatures: %v", err)
		}
	})
	t.Run("the worker's nonce is removed", func(t *testing.T) {
		s := start(t, tr, "127.0.0.1:0")
		open(t, tr, s, s.addr)
		p := NewInterceptor(t, s.addr, func(f Intercepted) [][]byte { return [][]byte{f.Data[bytes.IndexByte(f.Data, '{'):]} }, func(up bool, h http.Header) {
			if up {
				h.Del(link.HeaderNonce)
			}
		})
		ctx := withTimeout(t)
		w := dial(ctx, t, tr, p.Addr)
		sc := <-s.conns
		t.Cleanup(func() { sc.Close() })
		testkit.NoError(t, w.Send(ctx, &link.ToServer{Hello: &link.Hello{Version: link.Version, Worker: "w1"}}))
		_, err := sc.Recv(ctx)
		if rejected, ok := errors.AsType[*link.FrameError](err); !ok || rejected.Reason != link.Unsealed {
			t.Fatalf("the server received a frame without signature with %v", err)
		}
	})
}

func pass(f Intercepted) [][]byte { return [][]byte{f.Data} }

// commands opens connections of two commands, of which the server returns each frame, and passes a frame of the first one to the second.
func commands(t *testing.T, tr Transport) {
	ended := make(chan error, 2)
	handler, run := tr.NewExecServer(identify, func(ctx context.Context, _ *http.Request, conn link.FrameConn, _ link.Peer) {
		defer conn.Close()
		for {
			b, err := conn.Read(ctx)
			if err == nil {
				err = conn.Write(ctx, bytes.Clone(b), false)
			}
			if err != nil {
				ended <- err
				return
			}
		}
	})
	s := &server{}
	serve(t, s, "127.0.0.1:0", tr.ExecPath, handler, run)
	var mu sync.Mutex
	var unsigned, recorded []byte
	p := NewInterceptor(t, s.addr, func(f Intercepted) [][]byte {
		mu.Lock()
		defer mu.Unlock()
		if !bytes.HasPrefix(f.Data, []byte("1 ")) {
			unsigned = f.Data
		}
		switch {
		case f.Up && f.Conn == 1:
			recorded = f.Data
		case f.Up && f.Conn == 2:
			return [][]byte{recorded}
		}
		return [][]byte{f.Data}
	}, nil)
	ctx := withTimeout(t)
	dialer, ok := tr.NewDialer("http://"+p.Addr, tr.credential()).(link.ExecDialer)
	if !ok {
		t.Fatal("the transport carries no commands")
	}
	open := func(id string) link.FrameConn {
		conn, err := dialer.DialExec(ctx, id)
		testkit.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		testkit.NoError(t, conn.Write(ctx, []byte(`{"id":"`+id+`"}`), false))
		return conn
	}
	const first = "0123456789abcdef"
	if b, err := open(first).Read(ctx); err != nil || string(b) != `{"id":"`+first+`"}` {
		t.Fatalf("returned %q, %v", b, err)
	}
	open("fedcba9876543210")
	err := <-ended
	if rejected, ok := errors.AsType[*link.FrameError](err); !ok || rejected.Reason != link.Foreign {
		t.Errorf("a frame of another command: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if unsigned != nil {
		t.Errorf("a frame without signature: %q", unsigned)
	}
}
