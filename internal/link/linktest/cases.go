package linktest

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/testkit"
)

func orderly(t *testing.T, tr Transport) {
	w, sc, ctx := connect(t, tr)
	const n = 300
	var loops sync.WaitGroup
	errs := make([]error, 4)
	loops.Go(func() {
		for i := range n {
			errs[0] = errors.Join(errs[0], w.Send(ctx, &link.ToServer{Accepted: []muster.AttemptID{attemptID(i)}}))
		}
	})
	loops.Go(func() {
		for i := range n {
			errs[1] = errors.Join(errs[1], sc.Send(ctx, &link.ToWorker{FinishedAck: []muster.AttemptID{attemptID(i)}}))
		}
	})
	loops.Go(func() {
		for i := range n {
			if f, err := sc.Recv(ctx); err != nil || len(f.Accepted) != 1 || f.Accepted[0] != attemptID(i) {
				errs[2] = errors.Join(err, muster.Errorf(muster.Internal, "up %d: %+v", i, f))
				return
			}
		}
	})
	loops.Go(func() {
		for i := range n {
			if f, err := w.Recv(ctx); err != nil || len(f.FinishedAck) != 1 || f.FinishedAck[0] != attemptID(i) {
				errs[3] = errors.Join(err, muster.Errorf(muster.Internal, "down %d: %+v", i, f))
				return
			}
		}
	})
	loops.Wait()
	testkit.NoError(t, errors.Join(errs...))
}

func large(t *testing.T, tr Transport) {
	w, sc, ctx := connect(t, tr)
	text := strings.Repeat("x", link.MaxFrame-200)
	var loops sync.WaitGroup
	var up, down error
	loops.Go(func() {
		up = w.Send(ctx, &link.ToServer{Rejected: []link.Rejected{{Attempt: attemptID(1), Message: text}}})
	})
	loops.Go(func() { down = sc.Send(ctx, &link.ToWorker{Specs: []link.GroupSpec{{Ref: 1, UID: "j1", Name: text}}}) })
	if f, err := sc.Recv(ctx); err != nil || len(f.Rejected) != 1 || f.Rejected[0].Message != text {
		t.Errorf("up: %v", err)
	}
	if f, err := w.Recv(ctx); err != nil || len(f.Specs) != 1 || f.Specs[0].Name != text {
		t.Errorf("down: %v", err)
	}
	loops.Wait()
	testkit.NoError(t, errors.Join(up, down))
	err := w.Send(ctx, &link.ToServer{Rejected: []link.Rejected{{Attempt: attemptID(1), Message: text + text}}})
	if muster.CodeOf(err) != muster.TooLarge {
		t.Errorf("a frame of twice the size: %v", err)
	}
}

func workerCloses(t *testing.T, tr Transport) {
	w, sc, ctx := connect(t, tr)
	closed := make(chan error, 1)
	go func() {
		closed <- errors.Join(
			w.Send(ctx, &link.ToServer{Ping: true}),
			w.Send(ctx, &link.ToServer{Goodbye: &link.Goodbye{}}),
			w.Close())
	}()
	if f, err := sc.Recv(ctx); err != nil || !f.Ping {
		t.Fatalf("before the goodbye: %v", err)
	}
	if f, err := sc.Recv(ctx); err != nil || f.Goodbye == nil {
		t.Fatalf("the goodbye: %v", err)
	}
	_, err := sc.Recv(ctx)
	wantEnded(ctx, t, err)
	testkit.NoError(t, <-closed)
}

func serverCloses(t *testing.T, tr Transport) {
	w, sc, ctx := connect(t, tr)
	testkit.NoError(t, sc.Send(ctx, &link.ToWorker{Pong: true}))
	testkit.NoError(t, sc.Send(ctx, &link.ToWorker{Goodbye: &link.Goodbye{Code: muster.Conflict, Message: "m"}}))
	closed := make(chan error, 1)
	go func() { closed <- sc.Close() }()
	if f, err := w.Recv(ctx); err != nil || !f.Pong {
		t.Fatalf("before the goodbye: %v", err)
	}
	if f, err := w.Recv(ctx); err != nil || f.Goodbye == nil || f.Goodbye.Code != muster.Conflict {
		t.Fatalf("the goodbye: %v", err)
	}
	_, err := w.Recv(ctx)
	wantEnded(ctx, t, err)
	testkit.NoError(t, <-closed)
}

func goodbyeWhileSending(t *testing.T, tr Transport) {
	w, sc, ctx := connect(t, tr)
	sending := make(chan struct{})
	chunk := link.LogChunk{Attempt: attemptID(1), Data: make([]byte, 64<<10)}
	go func() {
		defer close(sending)
		for w.Send(ctx, &link.ToServer{Logs: []link.LogChunk{chunk}}) == nil {
			chunk.Offset += int64(len(chunk.Data))
		}
	}()
	if _, err := sc.Recv(ctx); err != nil {
		t.Fatal(err)
	}
	testkit.NoError(t, sc.Send(ctx, &link.ToWorker{Goodbye: &link.Goodbye{Code: muster.Conflict}}))
	closed := make(chan error, 1)
	go func() { closed <- sc.Close() }()
	if f, err := w.Recv(ctx); err != nil || f.Goodbye == nil {
		t.Errorf("instead of the goodbye: %v", err)
	}
	w.Close()
	<-sending
	testkit.NoError(t, <-closed)
}

func closeTwice(t *testing.T, tr Transport) {
	w, sc, ctx := connect(t, tr)
	waiting := make(chan error, 2)
	go func() { _, err := w.Recv(ctx); waiting <- err }()
	go func() { _, err := sc.Recv(ctx); waiting <- err }()
	testkit.NoError(t, w.Close())
	testkit.NoError(t, w.Close())
	testkit.NoError(t, sc.Close())
	testkit.NoError(t, sc.Close())
	wantEnded(ctx, t, <-waiting)
	wantEnded(ctx, t, <-waiting)
	if err := w.Send(ctx, &link.ToServer{Ping: true}); err == nil {
		t.Error("a closed connection sends")
	}
	if err := sc.Send(ctx, &link.ToWorker{Pong: true}); err == nil {
		t.Error("a closed connection sends")
	}
}

func contextEnds(t *testing.T, tr Transport) {
	w, sc, ctx := connect(t, tr)
	ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := w.Recv(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the worker's Recv: %v", err)
	}
	if _, err := sc.Recv(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the server's Recv: %v", err)
	}
}

func refusedKeys(t *testing.T, tr Transport) {
	s := start(t, tr, "127.0.0.1:0")
	open(t, tr, s, s.addr)
	for key, want := range map[string]muster.Code{"wrong": muster.Unauthenticated, barredKey: muster.Forbidden} {
		w, err := tr.NewDialer("http://"+s.addr, link.StaticToken(key)).Dial(withTimeout(t))
		if err == nil {
			w.Close()
		}
		if muster.CodeOf(err) != want || link.Retryable(err) {
			t.Errorf("key %q: %v", key, err)
		}
	}
}

func twoSessions(t *testing.T, tr Transport) {
	s := start(t, tr, "127.0.0.1:0")
	w1, s1 := open(t, tr, s, s.addr)
	w2, s2 := open(t, tr, s, s.addr)
	ctx := withTimeout(t)
	testkit.NoError(t, w1.Send(ctx, &link.ToServer{Accepted: []muster.AttemptID{attemptID(1)}}))
	testkit.NoError(t, w2.Send(ctx, &link.ToServer{Accepted: []muster.AttemptID{attemptID(2)}}))
	for i, sc := range []link.ServerConn{s1, s2} {
		if f, err := sc.Recv(ctx); err != nil || len(f.Accepted) != 1 || f.Accepted[0] != attemptID(i+1) {
			t.Errorf("session %d received %+v, %v", i+1, f, err)
		}
	}
	testkit.NoError(t, w1.Close())
	testkit.NoError(t, s2.Send(ctx, &link.ToWorker{Pong: true}))
	if f, err := w2.Recv(ctx); err != nil || !f.Pong {
		t.Errorf("the second session after the end of the first: %v", err)
	}
}

func restart(t *testing.T, tr Transport) {
	s := start(t, tr, "127.0.0.1:0")
	w, _ := open(t, tr, s, s.addr)
	ctx := withTimeout(t)
	waiting := make(chan error, 1)
	go func() { _, err := w.Recv(ctx); waiting <- err }()
	s.stop()
	again := start(t, tr, s.addr)
	wantEnded(ctx, t, <-waiting)
	open(t, tr, again, s.addr)
}

func cut(t *testing.T, tr Transport) {
	s := start(t, tr, "127.0.0.1:0")
	p := NewProxy(t, s.addr)
	w, sc := open(t, tr, s, p.Addr)
	ctx := withTimeout(t)
	p.DropAfter(100_000)
	sent := make(chan error, 1)
	go func() {
		sent <- w.Send(ctx, &link.ToServer{Rejected: []link.Rejected{{Attempt: attemptID(1), Message: strings.Repeat("x", 1<<20)}}})
	}()
	f, err := sc.Recv(ctx)
	if err == nil && (len(f.Rejected) != 1 || len(f.Rejected[0].Message) != 1<<20) {
		t.Fatalf("half a frame arrived: %+v", f)
	}
	if err != nil { // the session ended with the connection: both sides notice, and a new one works
		wantEnded(ctx, t, err)
		_, err = w.Recv(ctx)
		wantEnded(ctx, t, err)
		open(t, tr, s, p.Addr)
		return
	}
	testkit.NoError(t, <-sent) // the transport retried
}

// nopHandler accepts every session and ignores its frames.
type nopHandler struct{ closed chan bool }

func (q nopHandler) Open(context.Context, *link.Hello, func(*link.ToWorker)) (link.Session, *link.Welcome, error) {
	return q, &link.Welcome{Heartbeat: muster.Duration(100 * time.Millisecond)}, nil
}
func (nopHandler) Handle(context.Context, *link.ToServer) error { return nil }
func (q nopHandler) Close(orderly bool)                         { q.closed <- orderly }

func frozen(t *testing.T, tr Transport) {
	s := start(t, tr, "127.0.0.1:0")
	p := NewProxy(t, s.addr)
	ctx := withTimeout(t)
	w := dial(ctx, t, tr, p.Addr)
	q := nopHandler{closed: make(chan bool, 1)}
	served, ran, welcomed := make(chan error, 1), make(chan error, 1), make(chan struct{}, 1)
	go func() {
		served <- link.Serve(ctx, <-s.conns, q, "w1", slog.New(slog.DiscardHandler))
	}()
	go func() {
		hello := &link.Hello{Version: link.Version, Worker: "w1"}
		ran <- link.RunSession(ctx, w, hello, NewFrameQueue(), func(f *link.ToWorker) error {
			if f.Welcome != nil {
				welcomed <- struct{}{}
			}
			return nil
		})
	}()
	select {
	case <-welcomed:
	case <-ctx.Done():
		t.Fatalf("no welcome: %v", <-ran)
	}
	p.Freeze() // on a busy machine one side may have ended before, for the other's silence
	for range 2 {
		select {
		case err := <-served:
			wantEnded(ctx, t, err)
		case err := <-ran:
			wantEnded(ctx, t, err)
		}
	}
	if orderly := <-q.closed; orderly {
		t.Error("the session ended orderly")
	}
}

func remoteAddress(t *testing.T, tr Transport) {
	if _, sc, _ := connect(t, tr); sc.RemoteIP() != "127.0.0.1" {
		t.Errorf("the worker dials from %q", sc.RemoteIP())
	}
}

func slowReader(t *testing.T, tr Transport) {
	_, sc, ctx := connect(t, tr)
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	name := strings.Repeat("x", link.MaxFrame/2)
	for i := 1; ; i++ {
		if i > 100 {
			t.Fatal("Send accepted 400 MiB for a worker that reads nothing")
		}
		if err := sc.Send(ctx, &link.ToWorker{Specs: []link.GroupSpec{{Ref: i, UID: "j1", Name: name}}}); err != nil {
			if ctx.Err() == nil {
				t.Errorf("Send failed before its context: %v", err)
			}
			return
		}
	}
}
