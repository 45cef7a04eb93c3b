package link_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/linktest"
	"github.com/muster-dev/muster/internal/testkit"
)

func hello() *link.Hello {
	return &link.Hello{Version: link.Version, Worker: "w1", Name: "box", Build: "test"}
}

// testHandler is a SessionHandler with one session, and records its calls.
type testHandler struct {
	heartbeat time.Duration
	refuse    error
	asks      bool // whether the worker is alive, in Open
	handle    func(ctx context.Context, f *link.ToServer) error

	mu     sync.Mutex
	send   func(*link.ToWorker)
	closed []bool // the argument of each Close

	address string // of the last worker
}

func (d *testHandler) Open(ctx context.Context, h *link.Hello, send func(*link.ToWorker)) (link.Session, *link.Welcome, error) {
	if d.refuse != nil {
		return nil, nil, d.refuse
	}
	if d.asks {
		if err := h.Alive(ctx); err != nil {
			return nil, nil, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.send, d.address = send, h.Address
	send(&link.ToWorker{Drain: true}) // must not come before the welcome
	return d, &link.Welcome{Heartbeat: muster.Duration(d.heartbeat)}, nil
}

func (d *testHandler) Handle(ctx context.Context, f *link.ToServer) error {
	if d.handle == nil {
		return nil
	}
	return d.handle(ctx, f)
}

func (d *testHandler) Close(orderly bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = append(d.closed, orderly)
}

// served is a running Serve and both ends of its connection.
type served struct {
	worker link.WorkerConn
	server link.ServerConn
	done   chan error
}

func serve(ctx context.Context, d *testHandler) *served {
	w, s := linktest.Pipe(0)
	r := &served{worker: w, server: s, done: make(chan error, 1)}
	go func() { r.done <- link.Serve(ctx, s, d, "w1", slog.New(slog.DiscardHandler)) }()
	return r
}

func (r *served) open(t *testing.T) {
	t.Helper()
	if err := r.worker.Send(t.Context(), &link.ToServer{Hello: hello()}); err != nil {
		t.Fatal(err)
	}
	f, err := r.worker.Recv(t.Context())
	if err != nil || f.Welcome == nil {
		t.Fatalf("no welcome: %+v, %v", f, err)
	}
	if f, err = r.worker.Recv(t.Context()); err != nil || !f.Drain {
		t.Fatalf("no drain after the welcome: %+v, %v", f, err)
	}
}

func (r *served) goodbye(t *testing.T) *link.Goodbye {
	t.Helper()
	for {
		f, err := r.worker.Recv(t.Context())
		if err != nil {
			t.Fatalf("no goodbye: %v", err)
		}
		if f.Goodbye != nil {
			return f.Goodbye
		}
	}
}

func (d *testHandler) wantClosedOnce(t *testing.T, orderly bool) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.closed) != 1 || d.closed[0] != orderly {
		t.Errorf("session.Close: %v, want once with %v", d.closed, orderly)
	}
}

func TestServeEndsAfterThreeHeartbeatsOfSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &testHandler{heartbeat: 10 * time.Second}
		r := serve(t.Context(), d)
		r.open(t)
		for range 5 {
			time.Sleep(25 * time.Second)
			if err := r.worker.Send(t.Context(), &link.ToServer{Renew: &link.Renew{}}); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		err := <-r.done
		if got := time.Since(start); got != 30*time.Second || !strings.Contains(err.Error(), "silent for 30s") {
			t.Errorf("after %s: %v", got, err)
		}
		d.wantClosedOnce(t, false)
	})
}

func TestServeWaitsTenSecondsForTheHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &testHandler{heartbeat: time.Second}
		r := serve(t.Context(), d)
		start := time.Now()
		if err := <-r.done; err == nil || time.Since(start) > 12*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

func TestAWorkerIsWhereItSaysOrWhereItDialsFrom(t *testing.T) {
	for named, want := range map[string]string{"": linktest.PipeRemoteIP, "box-1.lan": "box-1.lan"} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			d := &testHandler{heartbeat: time.Second}
			r := serve(ctx, d)
			h := hello()
			h.Address = named
			if err := r.worker.Send(ctx, &link.ToServer{Hello: h}); err != nil {
				t.Fatal(err)
			}
			if _, err := r.worker.Recv(ctx); err != nil {
				t.Fatal(err)
			}
			cancel()
			r.worker.Close()
			<-r.done
			if d.address != want {
				t.Errorf("a worker with address %q has address %q", named, d.address)
			}
		})
	}
}

func TestThePeerIsAnAddressWithoutPortOrZone(t *testing.T) {
	for remote, want := range map[string]string{
		"10.0.0.7:1234": "10.0.0.7", "[::1]:80": "::1", "[::ffff:10.0.0.7]:80": "10.0.0.7", "[fe80::1%eth0]:80": "fe80::1", "@": "",
	} {
		if got := link.RemoteIPOf(&http.Request{RemoteAddr: remote, Header: http.Header{"X-Forwarded-For": {"8.8.8.8"}}}); got != want {
			t.Errorf("%s: %q", remote, got)
		}
	}
}

func TestServeRefusesInClearWords(t *testing.T) {
	for _, tc := range []struct {
		name    string
		hello   link.Hello
		handler *testHandler
		code    muster.Code
		words   string
	}{
		{"another version", link.Hello{Version: 99, Worker: "w1", Build: "v9"}, &testHandler{}, muster.Invalid, "speaks link version 99 and the server version 9"},
		{"another worker", link.Hello{Version: link.Version, Worker: "w2"}, &testHandler{}, muster.Forbidden, "belongs to worker w1"},
		{"the handler", *hello(), &testHandler{refuse: muster.Errorf(muster.Conflict, "was removed")}, muster.Conflict, "was removed"},
		{"a full disk", *hello(), &testHandler{refuse: muster.Errorf(muster.StorageFull, "no space")}, muster.Unavailable, "no space"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := serve(t.Context(), tc.handler)
				if tc.hello.Version == link.Version {
					if err := r.worker.Send(t.Context(), &link.ToServer{Hello: &tc.hello}); err != nil {
						t.Fatal(err)
					}
				} else if err := linktest.SendRaw(t.Context(), r.worker, `{"seq":1,"hello":{"version":99,"worker":"w1","build":"v9","new":1}}`); err != nil {
					t.Fatal(err)
				}
				g := r.goodbye(t)
				if g.Code != tc.code || !strings.Contains(g.Message, tc.words) {
					t.Errorf("goodbye %+v", g)
				}
				if err := <-r.done; err == nil {
					t.Error("Serve returned nil")
				}
				if len(tc.handler.closed) != 0 {
					t.Error("a session that was never open was closed")
				}
			})
		})
	}
}

// The labels of a hello and the rest of an offer have a common size limit.
func TestAnOfferIsBoundedWithTheLabels(t *testing.T) {
	tags := func(n int) []string { return slices.Repeat([]string{strings.Repeat("a", 200)}, n) }
	for n, taken := range map[int]bool{100: true, 200: false} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := serve(ctx, &testHandler{heartbeat: time.Second})
			h := hello()
			h.Labels = map[string]string{}
			for i := range 150 {
				h.Labels[strconv.Itoa(i)] = strings.Repeat("a", 200)
			}
			for _, f := range []*link.ToServer{{Hello: h}, {Seq: 1, Offer: &muster.Offer{Tags: tags(n)}}} {
				if err := r.worker.Send(ctx, f); err != nil {
					t.Fatal(err)
				}
			}
			_ = r.worker.Send(ctx, &link.ToServer{Seq: 2, Goodbye: &link.Goodbye{}}) // it may be refused already
			if err := <-r.done; taken && err != nil || !taken && (muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), "offer has")) {
				t.Errorf("with %d tags it ends with %v", n, err)
			}
			cancel()
			r.worker.Close()
		})
	}
}

func TestAWorkerAnswersAPingBeforeTheWelcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := serve(ctx, &testHandler{heartbeat: time.Second, asks: true})
		welcomes := make(chan *link.Welcome, 1)
		ended := make(chan error, 1)
		go func() {
			ended <- link.RunSession(ctx, r.worker, hello(), linktest.NewFrameQueue(), func(f *link.ToWorker) error {
				if f.Welcome != nil {
					welcomes <- f.Welcome
				}
				return nil
			})
		}()
		select {
		case <-welcomes:
		case err := <-ended:
			t.Fatal(err)
		}
		cancel()
		<-ended
		<-r.done
	})
}

func TestAClosedConnectionIsNotAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := serve(t.Context(), &testHandler{heartbeat: time.Second, asks: true})
		testkit.NoError(t, r.worker.Send(t.Context(), &link.ToServer{Hello: hello()}))
		testkit.NoError(t, r.worker.Close())
		if err := <-r.done; muster.CodeOf(err) != muster.Unavailable || !strings.Contains(err.Error(), "closed the connection") {
			t.Errorf("got %v", err)
		}
	})
}

func TestServeAnswersPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := serve(t.Context(), &testHandler{heartbeat: time.Second})
		r.open(t)
		if err := r.worker.Send(t.Context(), &link.ToServer{Ping: true}); err != nil {
			t.Fatal(err)
		}
		if f, err := r.worker.Recv(t.Context()); err != nil || !f.Pong {
			t.Errorf("%+v, %v", f, err)
		}
		r.worker.Close()
		<-r.done
	})
}

func TestServeEndsWell(t *testing.T) {
	for _, tc := range []struct {
		name    string
		act     func(ctx context.Context, r *served, d *testHandler, cancel func()) error
		code    muster.Code // of the goodbye; "-" for none
		orderly bool
	}{
		{"the worker leaves", func(ctx context.Context, r *served, _ *testHandler, _ func()) error {
			return r.worker.Send(ctx, &link.ToServer{Goodbye: &link.Goodbye{}})
		}, "-", true},
		{"the connection breaks", func(_ context.Context, r *served, _ *testHandler, _ func()) error { return r.server.Close() }, "-", false},
		{"the server stops", func(_ context.Context, _ *served, _ *testHandler, cancel func()) error { cancel(); return nil }, muster.Unavailable, false},
		{"another session takes over", func(_ context.Context, _ *served, d *testHandler, _ func()) error {
			d.send(&link.ToWorker{Goodbye: &link.Goodbye{Code: muster.Conflict, Message: "another one"}})
			return nil
		}, muster.Conflict, false},
		{"a bad frame", func(ctx context.Context, r *served, _ *testHandler, _ func()) error {
			return linktest.SendRaw(ctx, r.worker, `{"seq":7}`)
		}, muster.Invalid, false},
		{"the handler refuses a frame", func(ctx context.Context, r *served, _ *testHandler, _ func()) error {
			return r.worker.Send(ctx, &link.ToServer{Ready: &link.Ready{Constrained: "bad"}})
		}, muster.NotFound, false},
		{"the handler fails", func(ctx context.Context, r *served, _ *testHandler, _ func()) error {
			return r.worker.Send(ctx, &link.ToServer{Ready: &link.Ready{Constrained: "bug"}})
		}, muster.Unavailable, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				d := &testHandler{heartbeat: 10 * time.Second, handle: func(_ context.Context, f *link.ToServer) error {
					switch {
					case f.Ready == nil:
						return nil
					case f.Ready.Constrained == "bug":
						return muster.Errorf(muster.Internal, "oops")
					}
					return muster.Errorf(muster.NotFound, "who are you?")
				}}
				r := serve(ctx, d)
				r.open(t)
				if err := tc.act(ctx, r, d, cancel); err != nil {
					t.Fatal(err)
				}
				if tc.code != "-" {
					if g := r.goodbye(t); g.Code != tc.code {
						t.Errorf("goodbye %+v, want code %q", g, tc.code)
					}
				}
				if err := <-r.done; (err == nil) != tc.orderly {
					t.Errorf("Serve returned %v", err)
				}
				d.wantClosedOnce(t, tc.orderly)
			})
		})
	}
}

func TestServeEndsWhenTheWorkerDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &testHandler{heartbeat: time.Hour}
		r := serve(t.Context(), d)
		r.open(t)
		d.send(&link.ToWorker{Pong: true}) // the pipe holds nothing: this write hangs
		start := time.Now()
		if err := <-r.done; !strings.Contains(err.Error(), "did not take a frame within 30s") || time.Since(start) > 31*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		d.wantClosedOnce(t, false)
	})
}

func TestServeReleasesABlockedHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d := &testHandler{heartbeat: time.Second, handle: func(ctx context.Context, _ *link.ToServer) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		r := serve(ctx, d)
		r.open(t)
		if err := r.worker.Send(ctx, &link.ToServer{Ready: &link.Ready{}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // time in Handle does not count as silence
		select {
		case err := <-r.done:
			t.Fatalf("ended with %v", err)
		default:
		}
		cancel()
		if g := r.goodbye(t); g.Code != muster.Unavailable {
			t.Errorf("%+v", g)
		}
		<-r.done
	})
}

// session starts RunSession. The test is the server.
func session(ctx context.Context, frames *linktest.FrameQueue, handle func(*link.ToWorker) error) (link.ServerConn, chan error) {
	w, s := linktest.Pipe(4)
	done := make(chan error, 1)
	go func() { done <- link.RunSession(ctx, w, hello(), frames, handle) }()
	return s, done
}

func welcome(t *testing.T, s link.ServerConn) {
	t.Helper()
	if f, err := s.Recv(t.Context()); err != nil || f.Hello == nil {
		t.Fatalf("no hello: %+v, %v", f, err)
	}
	if err := s.Send(t.Context(), &link.ToWorker{Welcome: &link.Welcome{Heartbeat: muster.Duration(10 * time.Second)}}); err != nil {
		t.Fatal(err)
	}
}

func TestRunSessionPingsAndEndsInSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, done := session(t.Context(), linktest.NewFrameQueue(), func(*link.ToWorker) error { return nil })
		welcome(t, s)
		start := time.Now()
		if f, err := s.Recv(t.Context()); err != nil || !f.Ping || time.Since(start) != 10*time.Second {
			t.Fatalf("%+v, %v after %s", f, err, time.Since(start))
		}
		if err := s.Send(t.Context(), &link.ToWorker{Pong: true}); err != nil {
			t.Fatal(err)
		}
		start = time.Now()
		err := <-done
		if muster.CodeOf(err) != muster.Unavailable || time.Since(start) < 30*time.Second || time.Since(start) > 40*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

func TestRunSessionEndsAsPromised(t *testing.T) {
	bad := errors.New("handler")
	for _, tc := range []struct {
		name string
		act  func(ctx context.Context, s link.ServerConn, frames *linktest.FrameQueue, cancel func()) error
		ok   func(error) bool
	}{
		{"the worker leaves", func(_ context.Context, _ link.ServerConn, frames *linktest.FrameQueue, _ func()) error {
			frames.Post(&link.ToServer{Goodbye: &link.Goodbye{}})
			return nil
		}, func(err error) bool { return err == nil }},
		{"ctx ends", func(_ context.Context, _ link.ServerConn, _ *linktest.FrameQueue, cancel func()) error {
			cancel()
			return nil
		},
			func(err error) bool { return errors.Is(err, context.Canceled) }},
		{"takeover", func(ctx context.Context, s link.ServerConn, _ *linktest.FrameQueue, _ func()) error {
			return s.Send(ctx, &link.ToWorker{Goodbye: &link.Goodbye{Code: muster.Conflict, Message: "another one"}})
		}, func(err error) bool { return muster.CodeOf(err) == muster.Conflict && !link.Retryable(err) }},
		{"server stops", func(ctx context.Context, s link.ServerConn, _ *linktest.FrameQueue, _ func()) error {
			return s.Send(ctx, &link.ToWorker{Goodbye: &link.Goodbye{Code: muster.Unavailable, Message: "later"}})
		}, func(err error) bool { return muster.CodeOf(err) == muster.Unavailable && link.Retryable(err) }},
		{"connection breaks", func(_ context.Context, s link.ServerConn, _ *linktest.FrameQueue, _ func()) error { return s.Close() },
			func(err error) bool { return muster.CodeOf(err) == muster.Unavailable && link.Retryable(err) }},
		{"bad frame", func(ctx context.Context, s link.ServerConn, _ *linktest.FrameQueue, _ func()) error {
			return linktest.SendRaw(ctx, s, `{"seq":9}`)
		}, link.Retryable},
		{"handler fails", func(ctx context.Context, s link.ServerConn, _ *linktest.FrameQueue, _ func()) error {
			return s.Send(ctx, &link.ToWorker{Pong: true})
		}, func(err error) bool { return errors.Is(err, bad) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				frames := linktest.NewFrameQueue()
				s, done := session(ctx, frames, func(f *link.ToWorker) error {
					if f.Pong {
						return bad
					}
					return nil
				})
				welcome(t, s)
				synctest.Wait()
				if err := tc.act(ctx, s, frames, cancel); err != nil {
					t.Fatal(err)
				}
				if err := <-done; !tc.ok(err) {
					t.Errorf("RunSession returned %v", err)
				}
			})
		})
	}
}

// halfClosed is a connection that the other side closed: it accepts one frame, the
// hello, and fails the next with io.EOF, as a socket may.
type halfClosed struct {
	link.WorkerConn

	sent bool
}

func (d *halfClosed) Send(ctx context.Context, f *link.ToServer) error {
	if d.sent {
		return fmt.Errorf("write: %w", io.EOF)
	}
	d.sent = true
	return d.WorkerConn.Send(ctx, f)
}

// A connection that ends with io.EOF is not a goodbye: the worker reconnects.
func TestRunSessionTellsABreakFromAGoodbye(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := linktest.Pipe(4)
		frames := linktest.NewFrameQueue()
		done := make(chan error, 1)
		go func() {
			done <- link.RunSession(t.Context(), &halfClosed{WorkerConn: w}, hello(), frames, func(*link.ToWorker) error { return nil })
		}()
		welcome(t, s)
		frames.Post(&link.ToServer{Ping: true})
		if err := <-done; muster.CodeOf(err) != muster.Unavailable || !link.Retryable(err) {
			t.Errorf("RunSession returned %v", err)
		}
	})
}

func TestRunSessionDeliversTheLastWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		frames := linktest.NewFrameQueue()
		s, done := session(t.Context(), frames, func(*link.ToWorker) error { return nil })
		welcome(t, s)
		frames.Post(&link.ToServer{Accepted: []muster.AttemptID{{Task: muster.TaskID{Job: 1}, N: 1}}})
		frames.Post(&link.ToServer{Goodbye: &link.Goodbye{}})
		var received []muster.AttemptID
		for {
			f, err := s.Recv(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			received = append(received, f.Accepted...)
			if f.Goodbye != nil {
				break
			}
		}
		s.Close()
		if err := <-done; err != nil || len(received) != 1 {
			t.Errorf("%v, received %v", err, received)
		}
	})
}
