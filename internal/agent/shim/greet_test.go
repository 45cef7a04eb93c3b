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
	"github.com/muster-dev/muster/internal/agent/shim/kin"
	"github.com/muster-dev/muster/internal/agent/shim/wire"
	"github.com/muster-dev/muster/internal/tasklog"
)

// What is true at the moments at which one worker goes and another one comes.

// An attempt that ends while a shim still tells of others is heard of, and a call that
// breaks off costs no tasks.
func TestNothingIsLostWhileAShimSaysWhatItHolds(t *testing.T) {
	dir := t.TempDir()
	h, err := newHome(dir)
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
	s := shell(t, "exit 3")
	said := make(chan error, 1)
	go func() {
		said <- func() error {
			first, err := l.Accept() // of a shim that stood still, say
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
			if err := wire.NewFrames(conn).Next(&hello); err != nil {
				return err
			}
			for _, f := range []*wire.ToWorker{
				{Welcome: &wire.Welcome{Protocol: wire.Protocol, Build: "test", Pid: run.Pid{PID: os.Getpid()}}},
				{Held: &wire.HeldFrame{Held: run.Held{Start: *s, Started: 1}}},
				{News: []wire.News{{Attempt: s.Attempt, Exit: &run.Exit{Code: 3}}}},
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
	c := detached(t, dir)
	_ = l.Close()
	if len(c.Held()) != 1 {
		t.Fatalf("%d attempts are held; the shim says %v", len(c.Held()), <-said)
	}
	if x := held(t, c).Exit; x == nil || x.Code != 3 {
		t.Errorf("held with %+v", x)
	}
	p, _ := adopt(t, c, held(t, c))
	if x := wait(t, p); x.Code != 3 {
		t.Errorf("%+v", x)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-said; err != nil {
		t.Error(err)
	}
}

// testServer is a server without a worker.
func testServer(t *testing.T, logs run.Logs) *server {
	t.Helper()
	record, err := kin.OpenRecord(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := newServer(logs, record, "test", "", slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.kill()
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

// What a worker said before it was killed counts for the next one, also if the shim had
// no time to hear it.
func TestTheNextWorkerComesAfterTheWordsOfTheLast(t *testing.T) {
	s := testServer(t, openLogs(t))
	st := shell(t, "exit 0")
	a, err := s.begin(st)
	if err != nil {
		t.Fatal(err)
	}
	a.supervise()
	// The last worker: its word has arrived, and it is gone.
	last, its := net.Pipe()
	t.Cleanup(func() { _ = its.Close() })
	ss := &session{server: s, soon: make(chan struct{}, 1), heard: make(chan struct{})}
	ss.out = wire.NewOutbox(last, ss.gather)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		ss.out.Run()
	}()
	s.worker.Store(ss)
	word, err := wire.AppendFrame(nil, &wire.ToShim{Settle: &muster.Report{Attempt: st.Attempt, Message: "settled"}})
	if err != nil {
		t.Fatal(err)
	}

	mine, next := net.Pipe()
	greeted := make(chan struct{})
	go func() {
		defer close(greeted)
		s.serve(next)
	}()
	c := &home{}
	heldNow := make(chan []run.Held, 1)
	go func() {
		_, all, err := call(mine, c, 0, s.log)
		if err != nil {
			t.Error(err)
		}
		heldNow <- all
	}()
	// Its session gets its turn when the next worker's has had one.
	var told wire.ToWorker
	_ = its.SetReadDeadline(time.Now().Add(patience))
	if err := wire.NewFrames(its).Next(&told); err != nil || !told.Bye {
		t.Fatalf("the last worker is told %+v, %v, not to go", told, err)
	}
	if err := ss.listen(wire.NewFrames(strings.NewReader(string(word)))); err == nil {
		t.Error("the last worker is heard for ever")
	}
	close(ss.heard)
	if all := <-heldNow; len(all) != 1 || all[0].Report == nil || all[0].Report.Message != "settled" {
		t.Errorf("the next worker is told of %+v", all)
	}
	_ = mine.Close()
	<-greeted
	ss.out.Close(wire.ErrClosed)
	<-sent
}

// gatedLogs is a disk that takes nothing until it is told to.
type gatedLogs struct {
	*tasklog.Dir

	gate chan struct{}
}

func (g *gatedLogs) Append(ctx context.Context, a muster.AttemptID, offset int64, data []byte) (int64, error) {
	if len(data) > 0 {
		<-g.gate
	}
	return g.Dir.Append(ctx, a, offset, data)
}

// A task that has ended by itself was not stopped by what comes while its last words
// are written.
func TestWhatHasEndedCannotBeStopped(t *testing.T) {
	logs := &gatedLogs{openLogs(t), make(chan struct{})}
	s := testServer(t, logs)
	a, err := s.begin(shell(t, "echo last words; exit 0"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.supervise()
	}()
	await(t, "its process is reaped, and its end is noted", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.ended
	})
	a.stop(&run.Stopped{Outcome: muster.AttemptTimedOut, Reason: muster.Timeout}, muster.Kill{})
	close(logs.gate)
	<-done
	if a.exit.Stopped != nil || a.exit.Code != 0 {
		t.Errorf("%+v, stopped %+v", a.exit, a.exit.Stopped)
	}
}

// Silence is told by words that were not answered, however long a tick takes: a worker
// that was frozen for an hour has asked once.
func TestAShimIsTakenForDeadByUnansweredWords(t *testing.T) {
	mine, its := net.Pipe()
	defer its.Close()
	l := &line{out: wire.NewOutbox(mine, nil), procs: map[muster.AttemptID]*proc{}}
	for range 2 * mostPings {
		if l.silent() {
			t.Fatal("it is taken for dead although it holds nothing")
		}
	}
	l.procs[muster.AttemptID{}] = nil
	for range mostPings {
		if l.silent() {
			t.Fatal("it is taken for dead too early")
		}
	}
	if !l.silent() {
		t.Error("it is never taken for dead")
	}
}

// A task may leave as many ended orphans as it likes: none counts for long against
// what it may have.
func TestOrphansThatEndAreReapedWhileTheTaskRuns(t *testing.T) {
	dir := t.TempDir()
	c := detached(t, dir)
	s := shell(t, "i=0; while [ $i -lt 20 ]; do (exec setsid sh -c ': orphan' &); i=$((i+1)); done; echo ready; exec sleep 1000")
	begin(t, c, s)
	ready(t, dir, s)
	homes, err := homesIn(dir)
	if err != nil || len(homes) != 1 {
		t.Fatalf("%d homes, %v", len(homes), err)
	}
	shim := strconv.Itoa(homes[0].owner().PID)
	await(t, "the task is the shim's only child", func() bool {
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

// The sandbox does not keep a task from the socket; that it is a task does, even if it
// should know the key.
func TestATaskIsNotServed(t *testing.T) {
	dir := t.TempDir()
	c := detached(t, dir)
	s := shell(t, "echo ready; exec sleep 1000")
	p, _ := begin(t, c, s)
	ready(t, dir, s)
	homes, err := homesIn(dir)
	if err != nil || len(homes) != 1 {
		t.Fatalf("%d homes, %v", len(homes), err)
	}
	home := homes[0].dir
	for _, text := range []string{`"$0" ` + beCaller + ` "$1"`, `setsid "$0" ` + beCaller + ` "$1" & wait`} {
		hostile := shell(t, text)
		hostile.Argv = append(hostile.Argv, os.Args[0], home)
		q, _ := begin(t, c, hostile)
		if x := wait(t, q); x.Code != 0 {
			t.Errorf("%+v", x)
		}
		if got := printed(t, dir, hostile.Attempt, tasklog.Stdout); got != "refused\n" {
			t.Errorf("the task hears %q", got)
		}
	}
	if p.Exit() != nil || syscall.Kill(p.Pid().PID, 0) != nil {
		t.Error("another task suffers")
	}
	c.Forget(s.Attempt)
}

// A shim that stood still for longer than a lease hears what its worker said meanwhile before it ends what has outlived the
// lease. Without a worker, or if that says nothing, it ends it.
func TestAShimThatStoodStillHearsItsWorkerFirst(t *testing.T) {
	const lease = time.Minute
	for name, what := range map[string]struct{ connected, contact, lost bool }{
		"it had contact": {connected: true, contact: true}, "it says nothing": {connected: true, lost: true}, "there is none": {lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := testServer(t, openLogs(t))
			st := shell(t, "exec sleep 1000")
			st.Lease = lease
			a, err := s.begin(st)
			if err != nil {
				t.Fatal(err)
			}
			s.wg.Go(a.supervise)
			looks := 0 // nobody is heard: it ends at once
			if what.connected {
				looks = hearLooks + 2
				s.worker.Store(&session{server: s, out: wire.NewOutbox(discardConn(t), nil), soon: make(chan struct{}, 1), heard: make(chan struct{})})
			}
			now := run.Clock()
			s.look(now)
			now += 2 * lease
			s.look(now)
			if what.contact {
				s.touch(now)
			}
			for range looks {
				now += lookEvery
				s.look(now)
			}
			a.mu.Lock()
			stopped := a.stopped
			a.mu.Unlock()
			if got := stopped != nil; got != what.lost {
				t.Errorf("it was stopped: %t, by %+v", got, stopped)
			}
		})
	}
}

// discardConn is a connection whose other side takes everything.
func discardConn(t *testing.T) net.Conn {
	t.Helper()
	mine, its := net.Pipe()
	t.Cleanup(func() { _ = its.Close() })
	go func() { _, _ = io.Copy(io.Discard, its) }()
	return mine
}
