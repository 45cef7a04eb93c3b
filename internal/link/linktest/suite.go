// Package linktest tests the contract of link transports, and has tools for tests: a
// pipe in memory and a TCP proxy that injects faults.
package linktest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/testkit"
)

// Transport is one way to carry sessions.
type Transport struct {
	// NewServer returns the server's side: a handler, and the function that runs its sessions.
	NewServer func(link.Identify, link.Accept) (http.Handler, func(context.Context) error)
	Path      string // where the handler is mounted
	// NewExecServer is NewServer for connections of commands.
	NewExecServer func(link.Identify, link.AcceptFrames) (http.Handler, func(context.Context) error)
	ExecPath      string
	// NewDialer returns the worker's side for a base URL and a credential.
	NewDialer func(server string, c link.Credentials) link.Dialer

	sealed bool // the credentials have a secret
}

// stepTimeout limits one step, which takes milliseconds on an idle machine. On a busy one the close of a session may be
// lost: then it ends by a time-out of a minute.
const stepTimeout = 2 * time.Minute

// Run proves that a transport keeps the contract of link.WorkerConn and link.ServerConn, with and without signatures.
func Run(t *testing.T, tr Transport) {
	t.Run("signed", func(t *testing.T) {
		signed := tr
		signed.sealed = true
		run(t, signed)
		t.Run("altered, repeated, swapped, lost and foreign frames end the session", func(t *testing.T) { tampered(t, signed) })
		t.Run("connections of commands are signed, each with its own key", func(t *testing.T) { commands(t, signed) })
		t.Run("signatures cannot be turned off between worker and server", func(t *testing.T) { downgraded(t, signed) })
	})
	run(t, tr)
}

func run(t *testing.T, tr Transport) {
	t.Run("frames arrive once and in order, both ways at the same time", func(t *testing.T) { orderly(t, tr) })
	t.Run("a frame of nearly MaxFrame arrives and a longer one is refused", func(t *testing.T) { large(t, tr) })
	t.Run("a close by the worker ends the server's session", func(t *testing.T) { workerCloses(t, tr) })
	t.Run("a close by the server ends the worker's session, after what was sent", func(t *testing.T) { serverCloses(t, tr) })
	t.Run("a goodbye arrives although the worker keeps sending unread frames", func(t *testing.T) { goodbyeWhileSending(t, tr) })
	t.Run("close may be called twice, and ends a Recv that waits", func(t *testing.T) { closeTwice(t, tr) })
	t.Run("a context ends Recv", func(t *testing.T) { contextEnds(t, tr) })
	t.Run("a wrong key is Unauthenticated and a barred one Forbidden", func(t *testing.T) { refusedKeys(t, tr) })
	t.Run("two sessions of one worker do not mix", func(t *testing.T) { twoSessions(t, tr) })
	t.Run("a server that stops ends its sessions, and a new one at the same address takes new ones", func(t *testing.T) { restart(t, tr) })
	t.Run("a connection cut in the middle of a frame delivers nothing of it", func(t *testing.T) { cut(t, tr) })
	t.Run("a connection that falls silent ends both sides of a session", func(t *testing.T) { frozen(t, tr) })
	t.Run("the server sees from where a worker dials", func(t *testing.T) { remoteAddress(t, tr) })
	t.Run("a worker that does not read blocks Send until its context ends", func(t *testing.T) { slowReader(t, tr) })
}

// server is a transport's server side on a real port.
type server struct {
	addr  string
	conns chan link.ServerConn // accepted; each must be closed by the test
	stop  func()
}

const goodKey, barredKey, sealedKey = "good", "barred", "sealed"

// credential is a credential that does not change.
type credential link.Credential

// Current implements link.Credentials.
func (c credential) Current(context.Context) (link.Credential, error) { return link.Credential(c), nil }

// Refused implements link.Credentials.
func (credential) Refused(_ string, err error) error { return err }

func sealedCredential() credential { return credential{sealedKey, bytes.Repeat([]byte{7}, 32)} }

// credential returns that of the worker.
func (tr *Transport) credential() link.Credentials {
	if tr.sealed {
		return sealedCredential()
	}
	return link.StaticToken(goodKey)
}

// identify knows worker "w1" by the keys "good" and "sealed".
func identify(r *http.Request) (link.Peer, error) {
	switch key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "); key {
	case goodKey:
		return link.Peer{Worker: "w1"}, nil
	case sealedKey:
		return link.Peer{Worker: "w1", Secret: sealedCredential().Secret}, nil
	case barredKey:
		return link.Peer{}, muster.Errorf(muster.Forbidden, "this worker was removed")
	default:
		return link.Peer{}, muster.Errorf(muster.Unauthenticated, "unknown key %q", key)
	}
}

func start(tb testing.TB, tr Transport, addr string) *server {
	tb.Helper()
	s := &server{conns: make(chan link.ServerConn, 4)}
	handler, run := tr.NewServer(identify, func(ctx context.Context, conn link.ServerConn, _ link.Peer) {
		c := &closeNotifier{ServerConn: conn, closed: make(chan struct{})}
		s.conns <- c
		select {
		case <-c.closed:
		case <-ctx.Done():
		}
		conn.Close()
	})
	serve(tb, s, addr, tr.Path, handler, run)
	return s
}

// serve runs the handler of a transport and its sessions.
func serve(tb testing.TB, s *server, addr, path string, handler http.Handler, run func(context.Context) error) {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", addr)
	testkit.NoError(tb, err)
	s.addr = l.Addr().String()
	mux := http.NewServeMux()
	mux.Handle(path, handler)
	hs := &http.Server{Handler: mux, ReadHeaderTimeout: stepTimeout}
	ctx, cancel := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	running := make(chan struct{})
	loops.Go(func() { close(running); _ = run(ctx) })
	loops.Go(func() { _ = hs.Serve(l) }) // ends by Close
	<-running
	s.stop = sync.OnceFunc(func() {
		cancel()
		hs.Close()
		loops.Wait()
	})
	tb.Cleanup(s.stop)
}

// closeNotifier notifies accept when the test closes the conn.
type closeNotifier struct {
	link.ServerConn

	once   sync.Once
	closed chan struct{}
}

func (w *closeNotifier) Close() error {
	err := w.ServerConn.Close()
	w.once.Do(func() { close(w.closed) })
	return err
}

// open dials addr and returns both ends, after hello and welcome.
func open(tb testing.TB, tr Transport, s *server, addr string) (link.WorkerConn, link.ServerConn) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), stepTimeout)
	defer cancel()
	w := dial(ctx, tb, tr, addr)
	var sc link.ServerConn
	select {
	case sc = <-s.conns:
	case <-ctx.Done():
		tb.Fatal("the server accepted no session")
	}
	tb.Cleanup(func() { sc.Close() })
	hello := &link.ToServer{Hello: &link.Hello{Version: link.Version, Worker: "w1", Name: "n", Build: "b"}}
	testkit.NoError(tb, w.Send(ctx, hello))
	if f, err := sc.Recv(ctx); err != nil || f.Hello == nil {
		tb.Fatalf("no hello: %v", err)
	}
	testkit.NoError(tb, sc.Send(ctx, &link.ToWorker{Welcome: &link.Welcome{Heartbeat: muster.Duration(time.Second)}}))
	if f, err := w.Recv(ctx); err != nil || f.Welcome == nil {
		tb.Fatalf("no welcome: %v", err)
	}
	return w, sc
}

// connect starts a server and returns both ends of a session, and a context for the test.
func connect(tb testing.TB, tr Transport) (link.WorkerConn, link.ServerConn, context.Context) {
	tb.Helper()
	s := start(tb, tr, "127.0.0.1:0")
	w, sc := open(tb, tr, s, s.addr)
	return w, sc, withTimeout(tb)
}

// dial retries until the server runs.
func dial(ctx context.Context, tb testing.TB, tr Transport, addr string) link.WorkerConn {
	tb.Helper()
	d := tr.NewDialer("http://"+addr, tr.credential())
	var pause backoff.Backoff
	for {
		w, err := d.Dial(ctx)
		if err == nil {
			tb.Cleanup(func() { w.Close() })
			return w
		}
		if muster.CodeOf(err) != muster.Unavailable {
			tb.Fatal(err)
		}
		if pause.Wait(ctx) != nil {
			tb.Fatalf("no session within %s: %v", stepTimeout, err)
		}
	}
}

func withTimeout(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), stepTimeout)
	tb.Cleanup(cancel)
	return ctx
}

func attemptID(i int) muster.AttemptID {
	return muster.AttemptID{Task: muster.TaskID{Job: 1, Num: i}, N: 1}
}

// wantEnded fails the test unless err is that of a closed connection, and not of a time-out of the test.
func wantEnded(ctx context.Context, tb testing.TB, err error) {
	tb.Helper()
	if err == nil {
		tb.Fatal("want an error")
	}
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		tb.Fatalf("the end was not noticed within %s", stepTimeout)
	}
}

// Bench measures a transport on the loopback interface: an Assign to the worker and a Finished back
// for each task, one at a time and in batches.
func Bench(b *testing.B, tr Transport) {
	for _, v := range []struct {
		name   string
		sealed bool
	}{{"plain", false}, {"signed", true}} {
		tr.sealed = v.sealed
		b.Run(v.name+"/round trip", func(b *testing.B) { benchTasks(b, tr, 1) })
		b.Run(v.name+"/64 lives a frame", func(b *testing.B) { benchTasks(b, tr, 64) })
		b.Run(v.name+"/1024 lives a frame", func(b *testing.B) { benchTasks(b, tr, 1024) })
	}
}

// benchTasks answers every frame of n assignments with one of n reports.
func benchTasks(b *testing.B, tr Transport, n int) {
	s := start(b, tr, "127.0.0.1:0")
	w, sc := open(b, tr, s, s.addr)
	ctx, cancel := context.WithCancel(b.Context())
	echo := make(chan struct{})
	go func() {
		defer close(echo)
		for {
			f, err := w.Recv(ctx)
			if err != nil {
				return
			}
			up := &link.ToServer{}
			for i := range f.Assign {
				up.Finished = append(up.Finished, muster.Report{
					Attempt: f.Assign[i].Attempt, Outcome: muster.AttemptSucceeded, StartedAt: 1_700_000_000_000, FinishedAt: 1_700_000_000_001,
				})
			}
			if w.Send(ctx, up) != nil {
				return
			}
		}
	}()
	assign := make([]link.Assign, n)
	for i := range assign {
		assign[i] = link.Assign{Attempt: attemptID(i), Ref: 1, Element: "12345", Grant: muster.Grant{Slots: 1}}
	}
	b.ResetTimer()
	for range b.N {
		testkit.NoError(b, sc.Send(ctx, &link.ToWorker{Assign: assign}))
		if f, err := sc.Recv(ctx); err != nil || len(f.Finished) != n {
			b.Fatalf("%+v, %v", f, err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)*float64(n)/b.Elapsed().Seconds(), "lives/s")
	cancel()
	<-echo
}
