//go:build linux

package shim

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
	"github.com/muster-dev/muster/internal/agent/shim/wire"
	"github.com/muster-dev/muster/internal/bootclock"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/testkit"
)

// Tests of the moments at which one worker disconnects and another one connects.

// An attempt that ends while the shim sends the snapshots of others is reported, and a failed handshake ends no tasks.
func TestNoAttemptIsLostDuringTheHandshake(t *testing.T) {
	dir := t.TempDir()
	h, err := newStateDir(dir)
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
	s := shellTask(t, "exit 3")
	shimErr := make(chan error, 1)
	go func() {
		shimErr <- func() error {
			first, err := l.Accept() // as of a shim that was stopped
			if err != nil {
				return err
			}
			_ = first.Close()
			conn, err := l.Accept()
			if err != nil {
				return err
			}
			defer conn.Close()
			var hello wire.ToShim
			if err := wire.NewFrameReader(conn).Next(&hello); err != nil {
				return err
			}
			for _, f := range []*wire.ToWorker{
				{Welcome: &wire.Welcome{Protocol: wire.Protocol, Build: "test", Pid: run.Pid{PID: os.Getpid()}}},
				{Snapshot: &wire.SnapshotFrame{Recovered: run.Recovered{Start: *s, Started: 1}}},
				{Updates: []wire.Update{{Attempt: s.Attempt, Exit: &run.Exit{Code: 3}}}},
				{Ready: true},
			} {
				b, err := wire.AppendFrame(nil, f)
				if err != nil {
					return err
				}
				if _, err := conn.Write(b); err != nil {
					return err
				}
			}
			_, err = io.Copy(io.Discard, conn)
			return err
		}()
	}()
	c := openDetached(t, dir)
	_ = l.Close()
	if len(c.Recovered()) != 1 {
		t.Fatalf("%d attempts are held; the shim returned %v", len(c.Recovered()), <-shimErr)
	}
	if x := recoveredAttempt(t, c).Exit; x == nil || x.Code != 3 {
		t.Errorf("held with %+v", x)
	}
	p, _ := adopt(t, c, recoveredAttempt(t, c))
	if x := waitTask(t, p); x.Code != 3 {
		t.Errorf("%+v", x)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-shimErr; err != nil {
		t.Error(err)
	}
}

// testServer is a server without a worker.
func testServer(t *testing.T, logs run.Logs) *server {
	t.Helper()
	record, err := proctree.CreatePIDFile(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := newServer(logs, record, "test", "", slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.killAll()
		if err := record.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func openLogs(t *testing.T) *tasklog.Dir {
	t.Helper()
	logs, err := tasklog.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = logs.Close() })
	return logs
}

// Frames that a worker sent before it was killed count for the next one, even if the shim had no time to handle them.
func TestFramesOfTheDisplacedWorkerAreReadFirst(t *testing.T) {
	s := testServer(t, openLogs(t))
	st := shellTask(t, "exit 0")
	a, err := s.begin(st)
	if err != nil {
		t.Fatal(err)
	}
	a.supervise()
	// The previous worker: its frame has arrived, and it is killed.
	last, peer := net.Pipe()
	t.Cleanup(func() { _ = peer.Close() })
	ss := &session{server: s, flushRequests: make(chan struct{}, 1), drained: make(chan struct{})}
	ss.out = wire.NewOutbox(last, ss.queueUpdates)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		ss.out.Run()
	}()
	s.worker.Store(ss)
	encoded, err := wire.AppendFrame(nil, &wire.ToShim{Report: &muster.Report{Attempt: st.Attempt, Message: "settled"}})
	if err != nil {
		t.Fatal(err)
	}

	local, next := net.Pipe()
	greeted := make(chan struct{})
	go func() {
		defer close(greeted)
		s.serve(next)
	}()
	c := &stateDir{}
	heldNow := make(chan []run.Recovered, 1)
	go func() {
		_, all, err := handshake(local, c, 0, s.log)
		if err != nil {
			t.Error(err)
		}
		heldNow <- all
	}()
	// Its session runs only after that of the next worker.
	var frame wire.ToWorker
	_ = peer.SetReadDeadline(time.Now().Add(testTimeout))
	if err := wire.NewFrameReader(peer).Next(&frame); err != nil || !frame.Displaced {
		t.Fatalf("the previous worker received %+v, %v, want Displaced", frame, err)
	}
	if err := ss.readLoop(wire.NewFrameReader(strings.NewReader(string(encoded)))); err == nil {
		t.Error("the session of the previous worker does not end")
	}
	close(ss.drained)
	if all := <-heldNow; len(all) != 1 || all[0].Report == nil || all[0].Report.Message != "settled" {
		t.Errorf("the next worker received %+v", all)
	}
	_ = local.Close()
	<-greeted
	ss.out.Close(wire.ErrClosed)
	<-sent
}

// blockedLogs is a disk that blocks until released.
type blockedLogs struct {
	*tasklog.Dir

	unblock chan struct{}
}

func (g *blockedLogs) Append(ctx context.Context, a muster.AttemptID, offset int64, data []byte) (int64, error) {
	if len(data) > 0 {
		<-g.unblock
	}
	return g.Dir.Append(ctx, a, offset, data)
}

// A stop that arrives while the last output of an ended task is written does not count.
func TestEndedTaskCannotBeStopped(t *testing.T) {
	logs := &blockedLogs{openLogs(t), make(chan struct{})}
	s := testServer(t, logs)
	a, err := s.begin(shellTask(t, "echo last words; exit 0"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.supervise()
	}()
	testkit.Await(t, "the end of the process", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.ended
	})
	a.stop(&run.Stopped{Outcome: muster.AttemptTimedOut, Reason: muster.Timeout}, muster.Kill{})
	close(logs.unblock)
	<-done
	if a.exit.Stopped != nil || a.exit.Code != 0 {
		t.Errorf("%+v, stopped %+v", a.exit, a.exit.Stopped)
	}
}

// A hung shim is detected by unanswered pings, however long a tick takes: a worker that was frozen for an hour has sent one.
func TestShimIsUnresponsiveAfterMissedPings(t *testing.T) {
	local, peer := net.Pipe()
	defer peer.Close()
	l := &shimConn{out: wire.NewOutbox(local, nil), procs: map[muster.AttemptID]*proc{}}
	for range 2 * maxMissedPings {
		if l.unresponsive() {
			t.Fatal("an idle shim counts as hung")
		}
	}
	l.procs[muster.AttemptID{}] = nil
	for range maxMissedPings {
		if l.unresponsive() {
			t.Fatal("the shim counts as hung too early")
		}
	}
	if !l.unresponsive() {
		t.Error("the shim never counts as hung")
	}
}

// A task may leave any number of zombies: they are reaped, and do not count against its limits.
func TestOrphansThatEndAreReapedWhileTheTaskRuns(t *testing.T) {
	dir := t.TempDir()
	c := openDetached(t, dir)
	s := shellTask(t, "i=0; while [ $i -lt 20 ]; do (exec setsid sh -c ': orphan' &); i=$((i+1)); done; echo ready; exec sleep 1000")
	startTask(t, c, s)
	waitReady(t, dir, s)
	homes, err := listStateDirs(dir)
	if err != nil || len(homes) != 1 {
		t.Fatalf("%d state directories, %v", len(homes), err)
	}
	shim := strconv.Itoa(homes[0].pid().PID)
	testkit.Await(t, "the task to be the shim's only child", func() bool {
		threads, _ := filepath.Glob("/proc/" + shim + "/task/*/children") // the pattern is right
		n := 0
		for _, f := range threads {
			b, _ := os.ReadFile(f)
			n += len(strings.Fields(string(b)))
		}
		return n == 1
	})
	c.Forget(s.Attempt)
}

// The sandbox does not block the socket, but a task is rejected, even if it knows the key.
func TestTaskCannotConnect(t *testing.T) {
	dir := t.TempDir()
	c := openDetached(t, dir)
	s := shellTask(t, "echo ready; exec sleep 1000")
	p, _ := startTask(t, c, s)
	waitReady(t, dir, s)
	homes, err := listStateDirs(dir)
	if err != nil || len(homes) != 1 {
		t.Fatalf("%d state directories, %v", len(homes), err)
	}
	home := homes[0].path
	for _, text := range []string{`"$0" ` + argDial + ` "$1"`, `setsid "$0" ` + argDial + ` "$1" & wait`} {
		hostile := shellTask(t, text)
		hostile.Argv = append(hostile.Argv, os.Args[0], home)
		q, _ := startTask(t, c, hostile)
		if x := waitTask(t, q); x.Code != 0 {
			t.Errorf("%+v", x)
		}
		if got := printed(t, dir, hostile.Attempt, tasklog.Stdout); got != "refused\n" {
			t.Errorf("the task receives %q", got)
		}
	}
	if p.Exit() != nil || syscall.Kill(p.Pid().PID, 0) != nil {
		t.Error("another task ended")
	}
	c.Forget(s.Attempt)
}

// A shim that was stopped for longer than a lease handles the frames of its worker before it ends tasks. Without a worker, or without
// frames, it ends them.
func TestStalledShimReadsItsWorkerFirst(t *testing.T) {
	const lease = time.Minute
	for name, tc := range map[string]struct{ connected, contact, lost bool }{
		"it had contact": {connected: true, contact: true}, "it sends nothing": {connected: true, lost: true}, "there is none": {lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := testServer(t, openLogs(t))
			st := shellTask(t, "exec sleep 1000")
			st.Lease = lease
			a, err := s.begin(st)
			if err != nil {
				t.Fatal(err)
			}
			s.wg.Go(a.supervise)
			ticks := 0 // no worker: it ends at once
			if tc.connected {
				ticks = stallGraceTicks + 2
				s.worker.Store(&session{server: s, out: wire.NewOutbox(discardConn(t), nil), flushRequests: make(chan struct{}, 1), drained: make(chan struct{})})
			}
			now := bootclock.Now()
			s.tick(now)
			now += 2 * lease
			s.tick(now)
			if tc.contact {
				s.setContact(now)
			}
			for range ticks {
				now += tickInterval
				s.tick(now)
			}
			a.mu.Lock()
			stopped := a.stopped
			a.mu.Unlock()
			if got := stopped != nil; got != tc.lost {
				t.Errorf("stopped: %t, by %+v", got, stopped)
			}
		})
	}
}

// discardConn is a connection that discards everything.
func discardConn(t *testing.T) net.Conn {
	t.Helper()
	local, peer := net.Pipe()
	t.Cleanup(func() { _ = peer.Close() })
	go func() { _, _ = io.Copy(io.Discard, peer) }()
	return local
}
