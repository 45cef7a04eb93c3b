package shim

import (
	"context"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/containerrun"
	"github.com/muster-dev/muster/internal/agent/shim/fault"
	"github.com/muster-dev/muster/internal/agent/shim/output"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
	"github.com/muster-dev/muster/internal/agent/shim/wire"
	"github.com/muster-dev/muster/internal/bootclock"
	"github.com/muster-dev/muster/internal/wake"
)

const (
	tickInterval    = 250 * time.Millisecond // between ticks: polls of $MUSTER_EVENTS, checks of leases
	idlePollTicks   = 40                     // without an event after which $MUSTER_EVENTS is polled
	idlePollEvery   = 4                      // ticks only: most tasks never write to it
	reapTicks       = 4
	dirCheckTicks   = 4
	idleExitTicks   = 20               // without a worker and without a task, then the shim exits
	helloTimeout    = 10 * time.Second // for a worker's hello
	displaceTimeout = time.Second      // for the frames of the displaced worker
	displaceTicks   = 4                // per displaceTimeout: this process may itself have been stopped for longer
	stallThreshold  = time.Second      // between two ticks
	stallGraceTicks = 4                // ticks to handle what a worker has sent before
	leaseRetention  = 10 * time.Minute // that an exited attempt is kept after its lease
)

// server supervises attempts for one worker at a time.
type server struct {
	logs    run.Logs
	pidFile *proctree.PIDFile
	build   string
	key     string // that a worker must send, "" for none
	self    run.Pid
	log     *slog.Logger

	reapsOrphans bool        // run ends processes outside control groups, and reaps orphans: all children are tasks
	dirDeleted   func() bool // whether workers can no longer find this server; nil for never
	helper       []string    // the command of this program that runs netns.Init, nil for none

	wrapConn func(net.Conn) net.Conn // wraps connections with workers, for tests; may be nil

	tracker  *proctree.Tracker
	oom      proctree.OOMDetector
	null     *os.File
	timeouts containerrun.Timeouts
	buffers  output.Buffers
	wg       sync.WaitGroup
	worker   atomic.Pointer[session] // the connected one, or nil

	mu         sync.Mutex
	attempts   map[muster.AttemptID]*attempt
	contact    time.Duration // the last one, by bootclock.Now
	ticks      int
	lastTick   time.Duration // when tick was last called, by bootclock.Now
	stalledFor time.Duration // how long this process was recently stopped, 0 for not
	stallGrace int           // ticks until the frames of the worker count as handled
	idleTicks  int           // ticks without a worker and without attempts
	closed     bool
}

func newServer(logs run.Logs, pidFile *proctree.PIDFile, build, key string, log *slog.Logger) (*server, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "cannot open standard input for tasks: %w", err)
	}
	s := &server{
		logs: logs, pidFile: pidFile, build: build, key: key, log: log, null: null,
		timeouts: containerrun.DefaultTimeouts, tracker: proctree.New(log), attempts: map[muster.AttemptID]*attempt{},
	}
	s.self = s.tracker.Self()
	return s, nil
}

// run supervises until ctx ends, or, if it mayEnd, until the server is not needed any more.
func (s *server) run(ctx context.Context, mayEnd bool) {
	tick := time.NewTicker(tickInterval)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		done := false
		if s.dirDeleted != nil && n%dirCheckTicks == 0 && s.dirDeleted() {
			s.protect("abandoning all tasks", s.abandonTasks)
		}
		s.protect("checking all attempts", func() { done = s.tick(bootclock.Now()) })
		if done && mayEnd {
			return
		}
		if s.reapsOrphans && n%reapTicks == 0 {
			// Until then a leftover process counts as its task's.
			s.protect("reaping orphans", s.tracker.Sweep)
		}
	}
}

// tick wakes running attempts, stops those whose lease has ended, and drops those that were never collected. It reports whether the server
// is not needed any more.
func (s *server) tick(now time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ticks++
	s.detectStall(now)
	running := 0
	for id, a := range s.attempts {
		ended := a.hasEnded()
		if !ended {
			running++
		}
		since := now - max(s.contact, a.startClock)
		switch {
		case ended:
			if since > a.spec.Lease+leaseRetention {
				s.log.Warn("finished attempt was never collected, dropping it", slog.String("attempt", id.String()))
				s.drop(id)
			}
		case since > a.spec.Lease && a.spec.Lease > 0:
			if s.worker.Load() == nil || s.stalledFor < a.spec.Lease/2 { // else its frame about a contact may be waiting
				a.stop(run.ErrLeaseEnded, muster.Kill{})
			}
		case a.idlePolls.Load() < idlePollTicks || s.ticks%idlePollEvery == 0:
			wake.Set(a.wake)
		}
	}
	switch noWorker := s.worker.Load() == nil; {
	case noWorker && s.closed && running == 0:
		return true
	case !noWorker || len(s.attempts) > 0:
		s.idleTicks = 0
		return false
	}
	s.idleTicks++
	s.closed = s.closed || s.idleTicks > idleExitTicks
	return s.closed
}

// detectStall notes whether this process was stopped since the last tick: then frames of a connected worker are handled before leases end. The
// lock is held.
func (s *server) detectStall(now time.Duration) {
	gap := now - s.lastTick
	if s.lastTick == 0 {
		gap = 0
	}
	s.lastTick = now
	switch {
	case gap > max(stallThreshold, s.stalledFor): // a process that is slow at each tick must not extend leases forever
		s.stalledFor, s.stallGrace = gap, stallGraceTicks
	case s.stallGrace > 0:
		s.stallGrace--
	default:
		s.stalledFor = 0
	}
}

// stopAll stops all tasks as each one's kill settings say, and accepts no new ones: the machine shuts down, or the shim received a signal.
func (s *server) stopAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, a := range s.attempts {
		a.stop(&errShutDown, muster.Kill{})
	}
}

// abandonTasks accepts no new tasks. Without a worker it kills all tasks: the next worker would not find this server, and the tasks would run
// twice.
func (s *server) abandonTasks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.log.Error("directory of this shim deleted: no new tasks, existing ones end when the worker disconnects")
	}
	if s.worker.Load() != nil {
		return
	}
	for id, a := range s.attempts {
		if a.hasEnded() {
			s.drop(id)
		} else {
			a.forget()
		}
	}
}

var errShutDown = run.Stopped{Outcome: muster.AttemptLost, Reason: muster.WorkerShutdown, Message: "the worker's machine, or the task's supervisor (shim), was shut down"}

// killAll kills all tasks and waits for their end, except for processes that the kernel cannot end.
func (s *server) killAll() {
	s.mu.Lock()
	s.closed = true
	for _, a := range s.attempts {
		a.forget()
	}
	s.mu.Unlock()
	s.wg.Wait()
	_ = s.null.Close()
}

// serve serves one worker until it disconnects or another one connects. Its tasks continue.
func (s *server) serve(conn net.Conn) {
	files := &fileConn{Conn: conn}
	defer files.close()
	if conn = files; s.wrapConn != nil {
		conn = s.wrapConn(conn)
	}
	ss := &session{server: s, flushRequests: make(chan struct{}, 1), drained: make(chan struct{})}
	ss.out = wire.NewOutbox(conn, ss.queueUpdates)
	defer ss.out.Close(wire.ErrClosed)
	in := wire.NewFrameReader(conn)
	var exec *wire.ExecFrame
	err := fault.Catch(func() (err error) {
		exec, err = s.handshake(conn, in, ss)
		return err
	})
	if exec != nil {
		s.protect("executing a command in a task", func() { s.serveExec(conn, in, files.take(), exec) })
		return
	}
	if err != nil {
		s.worker.CompareAndSwap(ss, nil)
		close(ss.drained)
		s.log.Warn("connection rejected", slog.Any("error", err))
		return
	}
	var g errgroup.Group
	g.Go(func() error { ss.out.Run(); return nil })
	g.Go(func() error { ss.flushLoop(); return nil })
	err = fault.Catch(func() error { return ss.readLoop(in) })
	for _, err := range []error{err, ss.out.Err()} {
		if _, ok := errors.AsType[*fault.PanicError](err); ok {
			logPanic(s.log, err, slog.String("doing", "serving the worker"))
		}
	}
	close(ss.drained)
	ss.out.Close(wire.ErrClosed)
	s.worker.CompareAndSwap(ss, nil)
	ss.stopFlushLoop()
	_ = g.Wait()
	s.log.Debug("the worker disconnected", slog.Any("error", err))
}

var (
	errShuttingDown = errors.New("the shim is exiting")
	errBadKey       = errors.New("wrong key")
)

// maxHelloSize is the maximum size in bytes of the first frame, of an unknown client: that of a command with its environment.
const maxHelloSize = 512 << 10

// handshake makes the connection that of the one worker, and sends it all attempts. For a connection of a command it only returns its frame.
func (s *server) handshake(conn net.Conn, in *wire.FrameReader, ss *session) (*wire.ExecFrame, error) {
	_ = conn.SetReadDeadline(time.Now().Add(helloTimeout)) // an error only removes the limit
	var f wire.ToShim
	in.MaxSize = maxHelloSize
	if err := in.Next(&f); err != nil {
		return nil, err
	}
	in.MaxSize = wire.MaxFrame
	if f.Hello == nil || subtle.ConstantTimeCompare([]byte(f.Hello.Key), []byte(s.key)) != 1 {
		return nil, errBadKey
	}
	_ = conn.SetReadDeadline(time.Time{})
	if f.Exec != nil {
		return f.Exec, nil
	}
	s.displace()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && len(s.attempts) == 0 {
		return nil, errShuttingDown
	}
	s.idleTicks = 0
	s.contact = max(s.contact, f.Hello.Contact)
	if err := ss.out.Send(&wire.ToWorker{Welcome: &wire.Welcome{Protocol: wire.Protocol, Build: s.build, Pid: s.self, Contact: s.contact, Exec: true}}); err != nil {
		return nil, err
	}
	if prev := s.worker.Swap(ss); prev != nil {
		_ = prev.out.Send(&wire.ToWorker{Displaced: true}) // it may have disconnected
		prev.out.Finish()
	}
	for _, a := range s.attempts {
		a.try(doingNotify, func() { a.sendSnapshot(ss) })
	}
	return nil, ss.out.Send(&wire.ToWorker{Ready: true})
}

// displace notifies the connected worker that another one has connected, and waits until all frames that it sent are handled: the next one
// relies on them, such as on reports.
func (s *server) displace() {
	prev := s.worker.Load()
	if prev == nil {
		return
	}
	_ = prev.out.Send(&wire.ToWorker{Displaced: true}) // it may have disconnected
	tick := time.NewTicker(displaceTimeout / displaceTicks)
	defer tick.Stop()
	for range displaceTicks { // after that it is hung
		select {
		case <-prev.drained:
			return
		case <-tick.C:
		}
	}
}

func (s *server) setContact(at time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contact = max(s.contact, at)
}

func (s *server) find(id muster.AttemptID) *attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempts[id]
}

// forget drops attempts that have ended, and kills the others.
func (s *server) forget(ids []muster.AttemptID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		a := s.attempts[id]
		if a == nil {
			continue
		}
		if a.hasEnded() {
			s.drop(id)
			continue
		}
		a.forget()
	}
}

// drop removes an attempt that has ended. The lock is held.
func (s *server) drop(id muster.AttemptID) {
	delete(s.attempts, id)
	if l, ok := s.logs.(interface {
		CloseAttempt(a muster.AttemptID) error
	}); ok {
		_ = l.CloseAttempt(id) // nothing is buffered
	}
}
