package shim

import (
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
	"github.com/muster-dev/muster/internal/agent/shim/wire"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/testkit"
)

// fakeShim is a fake shim that accepts one connection at a time.
type fakeShim struct {
	t    *testing.T
	l    net.Listener
	conn net.Conn
	in   *wire.FrameReader
}

// accept waits for the worker, and sends it the held attempts.
func (s *fakeShim) accept(held ...*wire.SnapshotFrame) {
	s.t.Helper()
	conn, err := s.l.Accept()
	if err != nil {
		s.t.Fatal(err)
	}
	s.conn, s.in = conn, wire.NewFrameReader(conn)
	if f := s.next(); f.Hello == nil {
		s.t.Fatalf("the first frame is %+v", f)
	}
	s.send(&wire.ToWorker{Welcome: &wire.Welcome{Protocol: wire.Protocol, Build: "test", Pid: proctree.Identify(os.Getpid())}})
	for _, h := range held {
		s.send(&wire.ToWorker{Snapshot: h})
	}
	s.send(&wire.ToWorker{Ready: true})
}

func (s *fakeShim) send(f *wire.ToWorker) {
	s.t.Helper()
	b, err := wire.AppendFrame(nil, f)
	if err == nil {
		_, err = s.conn.Write(b)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *fakeShim) next() *wire.ToShim {
	s.t.Helper()
	var f wire.ToShim
	if err := s.in.Next(&f); err != nil {
		s.t.Fatal(err)
	}
	return &f
}

// A worker sends its requests again after a reconnect: starts, stops and reports are not lost, and no record is written twice. An attempt that
// the shim no longer knows has failed.
func TestRequestsAreResentAfterALostConnection(t *testing.T) {
	h, err := newStateDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file, err := h.listen()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	_ = file.Close()
	defer l.Close()
	shim := &fakeShim{t: t, l: l}
	heldNow := func(s *run.StartSpec) *wire.SnapshotFrame {
		return &wire.SnapshotFrame{Recovered: run.Recovered{Start: *s, Started: 1, LogSize: 7}}
	}
	stays, lost := shellTask(t, "exec sleep 1000"), shellTask(t, "exec sleep 1000")

	conn, err := h.dial()
	if err != nil {
		t.Fatal(err)
	}
	called := make(chan *shimConn, 1)
	go func() {
		line, _, err := handshake(conn, h, 0, slog.New(slog.NewTextHandler(t.Output(), nil)))
		if err != nil {
			t.Error(err)
		}
		called <- line
	}()
	shim.accept(heldNow(stays), heldNow(lost))
	line := <-called
	if line == nil {
		t.FailNow()
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		line.run()
	}()
	defer func() {
		line.close()
		_ = shim.conn.Close()
		<-ended
	}()

	p, missing := line.find(stays.Attempt), line.find(lost.Attempt)
	p.Stop(&run.Stopped{Outcome: muster.AttemptCancelled, Message: "no need"}, muster.Kill{Signal: "SIGINT"})
	p.SaveReport(&muster.Report{Attempt: stays.Attempt, Message: "settled"})
	starting, started := shellTask(t, "exit 0"), make(chan error, 1)
	go func() {
		_, err := line.start(starting, newFakeReporter())
		started <- err
	}()
	written := make(chan struct{})
	for f := shim.next(); f.Start == nil; f = shim.next() { // and now the connection breaks, with the start in an unknown state
	}
	go func() {
		defer close(written)
		p.AppendLog(tasklog.System, []byte("a line"))
	}()
	for f := shim.next(); f.Record == nil; f = shim.next() {
	}
	_ = shim.conn.Close()

	shim.accept(heldNow(stays))
	var seen struct{ start, stop, report, record, forget bool }
	for seen != struct{ start, stop, report, record, forget bool }{true, true, true, true, true} {
		switch f := shim.next(); {
		case f.Start != nil:
			seen.start = f.Resent && f.Start.Attempt == starting.Attempt
			shim.send(&wire.ToWorker{Seq: f.Seq, Started: &wire.StartedFrame{Pid: run.Pid{PID: 1}, At: 1}})
		case f.Stop != nil:
			seen.stop = f.Stop.Attempt == stays.Attempt && f.Stop.Why.Message == "no need" && f.Stop.Kill.Signal == "SIGINT"
		case f.Report != nil:
			seen.report = f.Report.Message == "settled"
		case f.Record != nil:
			if len(f.Record.Data) > 0 {
				t.Error("a record that may be in the log is sent again")
			}
			seen.record = true
			shim.send(&wire.ToWorker{Seq: f.Seq, Updates: []wire.Update{{Attempt: stays.Attempt, LogSize: 20}}})
		case f.Forget != nil:
			seen.forget = len(f.Forget) == 1 && f.Forget[0] == lost.Attempt
		default:
			t.Fatalf("it sent %+v, and before %+v", f, seen)
		}
	}
	if err := <-started; err != nil {
		t.Errorf("the interrupted start returned %v", err)
	}
	<-written
	if size := p.LogSize(); size != 20 {
		t.Errorf("the log has %d bytes", size)
	}
	if x := waitTask(t, missing); x.Stopped == nil || x.Stopped.Reason != muster.WorkerInternal {
		t.Errorf("the unknown attempt ended with %+v", x)
	}
	if p.Exit() != nil {
		t.Errorf("the known attempt ended with %+v", p.Exit())
	}
}

// A repeated start is answered, and not executed again.
func TestResentStartIsNotRepeated(t *testing.T) {
	s := testServer(t, openLogs(t))
	st := shellTask(t, "echo x >>$BASE/starts; exec sleep 1000")
	local, peer := net.Pipe()
	t.Cleanup(func() { _ = peer.Close() })
	ss := &session{server: s, flushRequests: make(chan struct{}, 1), drained: make(chan struct{})}
	ss.out = wire.NewOutbox(local, ss.queueUpdates)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		ss.out.Run()
	}()
	defer func() {
		ss.out.Close(wire.ErrClosed)
		<-sent
	}()
	ss.handle(&wire.ToShim{Seq: 1, Start: st})
	in := wire.NewFrameReader(peer)
	testkit.Await(t, "the start", func() bool { return s.find(st.Attempt) != nil })
	ss.handle(&wire.ToShim{Seq: 2, Start: st, Resent: true})
	var pids []int
	for range 2 {
		var f wire.ToWorker
		if err := in.Next(&f); err != nil || f.Started == nil {
			t.Fatalf("the reply is %+v: %v", f, err)
		}
		pids = append(pids, f.Started.Pid.PID)
	}
	if pids[0] == 0 || pids[0] != pids[1] {
		t.Errorf("the replies have the processes %v", pids)
	}
	ss.handle(&wire.ToShim{Seq: 3, Start: st})
	var f wire.ToWorker
	if err := in.Next(&f); err != nil || f.Failed == nil || !strings.Contains(f.Failed.Message, "has already been started") {
		t.Errorf("to another start the reply is %+v: %v", f, err)
	}
}

// An update that cannot be encoded fails its attempt, and does not delay the updates of others.
func TestUpdatesThatCannotBeEncoded(t *testing.T) {
	s := testServer(t, openLogs(t))
	local, peer := net.Pipe()
	ss := &session{server: s, flushRequests: make(chan struct{}, 1), drained: make(chan struct{})}
	ss.out = wire.NewOutbox(local, ss.queueUpdates)
	s.worker.Store(ss)
	bad, good, over := shellTask(t, "exec sleep 1000"), shellTask(t, "exit 3"), shellTask(t, "exit 4")
	for _, st := range []*run.StartSpec{bad, good, over} {
		a, err := s.begin(st)
		if err != nil {
			t.Fatal(err)
		}
		if st != good {
			a.OnProgress(muster.Progress{Metrics: map[string]float64{"loss": math.NaN()}}) // not encodable as JSON
		}
		s.wg.Go(a.supervise)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		ss.out.Run()
	}()
	defer func() {
		ss.out.Close(wire.ErrClosed)
		<-sent
	}()
	ss.out.Flush()
	ends := map[muster.AttemptID]*run.Exit{}
	_ = peer.SetReadDeadline(time.Now().Add(testTimeout))
	for in := wire.NewFrameReader(peer); len(ends) < 3; {
		var f wire.ToWorker
		if err := in.Next(&f); err != nil {
			t.Fatalf("after the ends %v: %v", ends, err)
		}
		for _, n := range f.Updates {
			if n.Exit != nil {
				ends[n.Attempt] = n.Exit
			}
		}
	}
	if x := ends[good.Attempt]; x.Code != 3 || x.Stopped != nil {
		t.Errorf("another attempt ended with %+v", x)
	}
	for _, st := range []*run.StartSpec{bad, over} {
		if x := ends[st.Attempt]; x.Stopped == nil || x.Stopped.Reason != muster.WorkerInternal {
			t.Errorf("the attempt whose update cannot be encoded ended with %+v", x)
		}
		if h := s.find(st.Attempt).snapshot(); h == nil {
			t.Error("the attempt is unknown")
		} else if _, err := wire.AppendFrame(nil, h); err != nil {
			t.Errorf("its snapshot cannot be encoded: %v", err)
		}
	}
}

// An attempt whose snapshot cannot be encoded fails, and a new worker receives that, and the others.
func TestSnapshotThatCannotBeEncoded(t *testing.T) {
	s := testServer(t, openLogs(t))
	bad, good := shellTask(t, "exec sleep 1000"), shellTask(t, "exec sleep 1000")
	for _, st := range []*run.StartSpec{bad, good} {
		a, err := s.begin(st)
		if err != nil {
			t.Fatal(err)
		}
		if st == bad {
			a.OnProgress(muster.Progress{Metrics: map[string]float64{"loss": math.NaN()}}) // not encodable as JSON
		}
		s.wg.Go(a.supervise)
	}
	local, peer := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		s.serve(peer)
	}()
	line, all, err := handshake(local, &stateDir{}, 0, s.log)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 {
		t.Fatalf("%d attempts, want others", len(all))
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		line.run()
	}()
	if x := waitTask(t, line.find(bad.Attempt)); x.Stopped == nil || x.Stopped.Reason != muster.WorkerInternal {
		t.Errorf("the attempt whose snapshot cannot be encoded ended with %+v", x)
	}
	if x := line.find(good.Attempt).Exit(); x != nil {
		t.Errorf("the other one ended with %+v", x)
	}
	line.close()
	<-ended
	<-served
}

// A panic during a write closes the connection, and senders that wait for it return.
func TestPanicDuringSendClosesTheOutbox(t *testing.T) {
	local, peer := net.Pipe()
	armed := false
	out := wire.NewOutbox(local, func() {
		if armed {
			panic("a bug")
		}
	})
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		out.Run()
	}()
	if err := out.Send("before"); err != nil || out.Err() != nil {
		t.Fatal(err, out.Err())
	}
	var text string
	if err := wire.NewFrameReader(peer).Next(&text); err != nil || text != "before" {
		t.Fatal(text, err)
	}
	if err := out.Send(func() {}); !errors.Is(err, wire.ErrEncode) || out.Err() != nil {
		t.Fatalf("a frame that cannot be encoded: %v; connection: %v", err, out.Err())
	}
	armed = true
	_ = out.SendAndWait("lost") // it returns
	<-ran
	if err := out.Err(); err == nil || !strings.Contains(err.Error(), "a bug") {
		t.Errorf("it was closed with %v", err)
	}
	if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the other side reads %v", err)
	}
}

// Updates that cannot be encoded do not deadlock the server when they are gathered while its lock is held, as during a handshake.
func TestUpdatesThatCannotBeEncodedWithTheLockHeld(t *testing.T) {
	s := testServer(t, openLogs(t))
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	local, err := net.Dial("unix", l.Addr().String()) // to which the outbox can write without Run
	if err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	next := &session{server: s, flushRequests: make(chan struct{}, 1), drained: make(chan struct{})}
	next.out = wire.NewOutbox(local, next.queueUpdates)
	defer next.out.Close(wire.ErrClosed)
	s.worker.Store(next)
	var attempts []*attempt
	for range 2 {
		a, err := s.begin(shellTask(t, "exec sleep 1000"))
		if err != nil {
			t.Fatal(err)
		}
		s.wg.Go(a.supervise)
		attempts = append(attempts, a)
	}
	attempts[0].OnProgress(muster.Progress{Metrics: map[string]float64{"loss": math.NaN()}}) // not encodable as JSON
	notified := make(chan struct{})
	go func() {
		defer close(notified)
		(&session{server: s}).notifySuccessor(attempts[1])
	}()
	select {
	case <-notified:
	case <-time.After(testTimeout):
		t.Fatal("the server is deadlocked")
	}
	attempts[0].mu.Lock()
	defer attempts[0].mu.Unlock()
	if attempts[0].panicked == nil {
		t.Error("the attempt whose update cannot be encoded did not fail")
	}
}

// A contact with the server during a reconnect is not lost: the leases of tasks count from it.
func TestContactDuringRedial(t *testing.T) {
	h, err := newStateDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	local, peer := net.Pipe()
	broken, other := net.Pipe()
	defer other.Close()
	defer peer.Close()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	l := &shimConn{dir: h, log: log, procs: map[muster.AttemptID]*proc{}, pending: map[uint64]request{}, contact: time.Second}
	l.out = wire.NewOutbox(broken, nil)
	l.out.Close(wire.ErrClosed)
	next := &shimConn{dir: h, log: log} // its hello had an earlier contact
	next.out = wire.NewOutbox(local, nil)
	l.setContact(2 * time.Second)
	if !l.resume(next) {
		t.Fatal("the connection is not needed")
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		next.out.Run()
	}()
	defer func() {
		next.out.Close(wire.ErrClosed)
		<-sent
	}()
	_ = peer.SetReadDeadline(time.Now().Add(testTimeout))
	var f wire.ToShim
	if err := wire.NewFrameReader(peer).Next(&f); err != nil || f.Contact != 2*time.Second {
		t.Errorf("the shim received %+v: %v", f, err)
	}
}

// Stop frames that are added during a resend do not change the others.
func TestStopsDuringRedial(t *testing.T) {
	local, peer := net.Pipe()
	defer peer.Close()
	l := &shimConn{out: wire.NewOutbox(local, nil)} // without Run frames stay in it
	defer l.out.Close(wire.ErrClosed)
	p := newProc(l, muster.AttemptID{}, nil)
	stop := func() { p.Stop(&run.Stopped{Message: "no need"}, muster.Kill{}) }
	for range maxStops {
		stop()
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for range 10_000 {
			stop()
		}
	}()
	for range 10_000 {
		p.resendPending(&proc{}) // for the race detector
	}
	<-stopped
}

// A shim that stays slow after it was stopped waits for the frames of its worker once: leases still end.
func TestSlowShimEndsLeases(t *testing.T) {
	s := testServer(t, openLogs(t))
	s.worker.Store(&session{server: s})
	st := shellTask(t, "exec sleep 1000")
	st.Lease = 10 * time.Second
	a, err := s.begin(st)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		s.worker.Store(nil)
		s.wg.Go(a.supervise)
	}()
	s.lastTick = a.startClock
	now := a.startClock + 6*time.Second
	for range 20 {
		s.tick(now)
		now += 2 * stallThreshold
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped != run.ErrLeaseEnded {
		t.Errorf("%s after its start it runs with a lease of %s: %+v", now-a.startClock, st.Lease, a.stopped)
	}
}

// The pauses between connections that break at once grow, also across calls of redial: a shim gets three seconds.
func TestPausesBetweenRedialsGrow(t *testing.T) {
	var total time.Duration
	for try := 1; try <= maxRedials; try++ {
		pause := redialDelay(try)
		if try == 1 && pause != 0 || try > 2 && pause != 2*redialDelay(try-1) {
			t.Errorf("the pause before try %d is %v, after one of %v", try, pause, redialDelay(try-1))
		}
		total += pause
	}
	if total < 3*time.Second || total > 10*time.Second {
		t.Errorf("all pauses are %v", total)
	}
}
