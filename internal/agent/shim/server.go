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
)

const (
	tickInterval    = 250 * time.Millisecond // at $MUSTER_EVENTS and at leases
	idlePollTicks   = 40                     // without anything in $MUSTER_EVENTS, then it is looked at
	idlePollEvery   = 4                      // looks only: most tasks never write to it
	reapTicks       = 4                      // looks
	dirCheckTicks   = 4                      // looks
	idleExitTicks   = 20                     // without a worker and without a task, then there is no use
	helloTimeout    = 10 * time.Second       // for a worker to say who it is
	displaceTimeout = time.Second            // for the words of the worker before it
	displaceTicks   = 4                      // of displaceTimeout: this process may itself have stood still for longer
	stallThreshold  = time.Second            // between two looks
	stallGraceTicks = 4                      // looks in which what a worker said before is heard
	leaseRetention  = 10 * time.Minute       // beyond its lease that an exited attempt is kept
)

// server stands by attempts, whoever asks it to.
type server struct {
	logs    run.Logs
	pidFile *proctree.PIDFile
	build   string
	key     string // that a worker must know, "" for none
	self    run.Pid
	log     *slog.Logger

	reapsOrphans bool        // run ends what escaped from control groups, and reaps orphans: all children are tasks
	dirDeleted   func() bool // whether no worker can find this server any more; nil if there is no such time
	helper       []string    // the command of this program that is netns.Helped, nil for none

	wrapConn func(net.Conn) net.Conn // puts something around connections with workers, as tests do; nil for nothing

	tracker  *proctree.Tracker
	oom      proctree.OOMDetector
	null     *os.File
	timeouts containerrun.Timeouts
	buffers  output.Buffers
	wg       sync.WaitGroup
	worker   atomic.Pointer[session] // the connected one, or nil

	mu         sync.Mutex
	attempts   map[muster.AttemptID]*attempt
	contact    time.Duration // the last one, by run.Clock
	ticks      int
	lastTick   time.Duration // when look was called last, by run.Clock
	stalledFor time.Duration // how long this process stood still lately, 0 for not
	stallGrace int           // looks until what the worker said meanwhile counts as heard
	idleTicks  int           // looks since when nobody is connected and nothing is held
	closed     bool
}

func newServer(logs run.Logs, pidFile *proctree.PIDFile, build, key string, log *slog.Logger) (*server, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "no standard input for tasks: %w", err)
	}
	s := &server{
		logs: logs, pidFile: pidFile, build: build, key: key, log: log, null: null,
		timeouts: containerrun.DefaultTimeouts, tracker: proctree.New(log), attempts: map[muster.AttemptID]*attempt{},
	}
	s.self = s.tracker.Self()
	return s, nil
}

// run looks after what is held until ctx ends, or, if it may, until it is of no use
// any more.
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
			s.protect("it gave up its tasks", s.abandonTasks)
		}
		s.protect("it looked after all attempts", func() { done = s.tick(run.BootClock()) })
		if done && mayEnd {
			return
		}
		if s.reapsOrphans && n%reapTicks == 0 {
			// What a task leaves to this process counts as the task's until then.
			s.protect("it reaped orphans", s.tracker.Sweep)
		}
	}
}

// tick pokes what runs, ends what has outlived its lease, and drops what nobody came
// for. It reports whether the server has been of no use for a while.
func (s *server) tick(now time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ticks++
	s.detectStall(now)
	running := 0
	for id, a := range s.attempts {
		running += boolToInt(!a.hasEnded())
		since := now - max(s.contact, a.startClock)
		switch {
		case a.hasEnded():
			if since > a.spec.Lease+leaseRetention {
				s.log.Warn("nobody came for an attempt that has ended", slog.String("attempt", id.String()))
				s.drop(id)
			}
		case since > a.spec.Lease && a.spec.Lease > 0:
			if s.worker.Load() == nil || s.stalledFor < a.spec.Lease/2 { // else it may have said that it has contact
				a.stop(&errLeaseEnded, muster.Kill{})
			}
		case a.idlePolls.Load() < idlePollTicks || s.ticks%idlePollEvery == 0:
			trySend(a.wake)
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

// detectStall notes whether this process stood still since the last look, frozen or without a turn: then what a
// connected worker said meanwhile is heard before leases end. The lock is held.
func (s *server) detectStall(now time.Duration) {
	gap := now - s.lastTick
	if s.lastTick == 0 {
		gap = 0
	}
	s.lastTick = now
	switch {
	case gap > max(stallThreshold, s.stalledFor): // a process that is slow at each look puts no lease off for ever
		s.stalledFor, s.stallGrace = gap, stallGraceTicks
	case s.stallGrace > 0:
		s.stallGrace--
	default:
		s.stalledFor = 0
	}
}

// stopAll stops everything as each task asks for, and takes nothing new: the machine is
// shut down, or somebody wants the shim gone.
func (s *server) stopAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, a := range s.attempts {
		a.stop(&errShutDown, muster.Kill{})
	}
}

// abandonTasks takes nothing new, and without a worker it kills everything: the next worker does not find this server, so
// the tasks would run twice, and nobody would hear how they end.
func (s *server) abandonTasks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.log.Error("the folder of this shim was deleted: it takes no new tasks, and ends those that it has when its worker is gone")
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

var errShutDown = run.Stopped{Outcome: muster.AttemptLost, Reason: muster.WorkerShutdown, Message: "the worker's machine, or the shim that stood by the task, was shut down"}

var errLeaseEnded = run.Stopped{Outcome: muster.AttemptLost, Reason: muster.WorkerLost, Message: "its lease ended while the server was away"}

// killAll ends everything that is held and waits for it, though not for what the
// kernel cannot end.
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

// serve talks to one worker until it goes or another one comes. What it started
// goes on.
func (s *server) serve(conn net.Conn) {
	if s.wrapConn != nil {
		conn = s.wrapConn(conn)
	}
	ss := &session{server: s, flushRequests: make(chan struct{}, 1), drained: make(chan struct{})}
	ss.out = wire.NewOutbox(conn, ss.queueUpdates)
	defer ss.out.Close(wire.ErrClosed)
	in := wire.NewFrameReader(conn)
	if err := fault.Catch(func() error { return s.handshake(conn, in, ss) }); err != nil {
		s.worker.CompareAndSwap(ss, nil)
		close(ss.drained)
		s.log.Warn("a connection is refused", slog.Any("error", err))
		return
	}
	var g errgroup.Group
	g.Go(func() error { ss.out.Run(); return nil })
	g.Go(func() error { ss.flushLoop(); return nil })
	err := fault.Catch(func() error { return ss.readLoop(in) })
	for _, err := range []error{err, ss.out.Err()} {
		if _, ok := errors.AsType[*fault.PanicError](err); ok {
			logPanic(s.log, err, slog.String("doing", "it talked to the worker"))
		}
	}
	close(ss.drained)
	ss.out.Close(wire.ErrClosed)
	s.worker.CompareAndSwap(ss, nil)
	ss.stopFlushLoop()
	_ = g.Wait()
	s.log.Debug("the worker is gone", slog.Any("error", err))
}

var (
	errShuttingDown = errors.New("the shim is about to end")
	errBadKey       = errors.New("whoever connected does not know the key")
)

// maxHelloSize is the most bytes of a frame of somebody who has not said who he is.
const maxHelloSize = 4 << 10

// handshake makes the connection the one worker's, and tells it what is held.
func (s *server) handshake(conn net.Conn, in *wire.FrameReader, ss *session) error {
	_ = conn.SetReadDeadline(time.Now().Add(helloTimeout)) // without one it takes longer
	var f wire.ToShim
	in.MaxSize = maxHelloSize
	if err := in.Next(&f); err != nil {
		return err
	}
	in.MaxSize = wire.MaxFrame
	if f.Hello == nil || subtle.ConstantTimeCompare([]byte(f.Hello.Key), []byte(s.key)) != 1 {
		return errBadKey
	}
	_ = conn.SetReadDeadline(time.Time{})
	s.displace()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && len(s.attempts) == 0 {
		return errShuttingDown
	}
	s.idleTicks = 0
	s.contact = max(s.contact, f.Hello.Contact)
	if err := ss.out.Send(&wire.ToWorker{Welcome: &wire.Welcome{Protocol: wire.Protocol, Build: s.build, Pid: s.self, Contact: s.contact}}); err != nil {
		return err
	}
	if prev := s.worker.Swap(ss); prev != nil {
		_ = prev.out.Send(&wire.ToWorker{Displaced: true}) // it may be gone already
		prev.out.Finish()
	}
	for _, a := range s.attempts {
		a.try(doingNotify, func() { a.sendSnapshot(ss) })
	}
	return ss.out.Send(&wire.ToWorker{Ready: true})
}

// displace tells the connected worker that another one has come, and waits until all that it
// said is heard: one that was killed has said things that the next one builds on, such
// as what it settled.
func (s *server) displace() {
	prev := s.worker.Load()
	if prev == nil {
		return
	}
	_ = prev.out.Send(&wire.ToWorker{Displaced: true}) // it may be gone already
	tick := time.NewTicker(displaceTimeout / displaceTicks)
	defer tick.Stop()
	for range displaceTicks { // then it lives, and hangs
		select {
		case <-prev.drained:
			return
		case <-tick.C:
		}
	}
}

// setContact takes up when the server last knew of the worker.
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

// forget drops attempts that have ended, and kills others.
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

// drop forgets an attempt that has ended. The lock is held.
func (s *server) drop(id muster.AttemptID) {
	delete(s.attempts, id)
	if l, ok := s.logs.(interface {
		CloseAttempt(a muster.AttemptID) error
	}); ok {
		_ = l.CloseAttempt(id) // nothing is buffered
	}
}

// trySend puts one into c unless it holds one.
func trySend(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
