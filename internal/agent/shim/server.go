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
	"github.com/muster-dev/muster/internal/agent/shim/fault"
	"github.com/muster-dev/muster/internal/agent/shim/kin"
	"github.com/muster-dev/muster/internal/agent/shim/output"
	"github.com/muster-dev/muster/internal/agent/shim/vessel"
	"github.com/muster-dev/muster/internal/agent/shim/wire"
)

const (
	lookEvery  = 250 * time.Millisecond // at $MUSTER_EVENTS and at leases
	quietLooks = 40                     // without anything in $MUSTER_EVENTS, then it is looked at
	quietEvery = 4                      // looks only: most tasks never write to it
	reapEvery  = 4                      // looks
	homeEvery  = 4                      // looks
	idleLooks  = 20                     // without a worker and without a task, then there is no use
	helloWait  = 10 * time.Second       // for a worker to say who it is
	partWait   = time.Second            // for the words of the worker before it
	partTicks  = 4                      // of partWait: this process may itself have stood still for longer
	standstill = time.Second            // between two looks
	hearLooks  = 4                      // looks in which what a worker said before is heard
	leaseSlack = 10 * time.Minute       // beyond its lease that an exited attempt is kept
)

// server stands by attempts, whoever asks it to.
type server struct {
	logs  run.Logs
	pids  *kin.Record
	build string
	key   string // that a worker must know, "" for none
	self  run.Pid
	log   *slog.Logger

	sweeps   bool        // run ends what escaped from control groups, and reaps orphans: all children are tasks
	homeless func() bool // whether no worker can find this server any more; nil if there is no such time
	helper   []string    // the command of this program that is netns.Helped, nil for none

	dress func(net.Conn) net.Conn // puts something around connections with workers, as tests do; nil for nothing

	kin      *kin.Kin
	oom      kin.OOM
	null     *os.File
	patience vessel.Patience
	buffers  output.Buffers
	wg       sync.WaitGroup
	worker   atomic.Pointer[session] // the connected one, or nil

	mu       sync.Mutex
	attempts map[muster.AttemptID]*attempt
	contact  time.Duration // the last one, by run.Clock
	looks    int
	looked   time.Duration // when look was called last, by run.Clock
	stood    time.Duration // how long this process stood still lately, 0 for not
	hearing  int           // looks until what the worker said meanwhile counts as heard
	idle     int           // looks since when nobody is connected and nothing is held
	closed   bool
}

func newServer(logs run.Logs, pids *kin.Record, build, key string, log *slog.Logger) (*server, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "no standard input for tasks: %w", err)
	}
	s := &server{
		logs: logs, pids: pids, build: build, key: key, log: log, null: null,
		patience: vessel.Usual, kin: kin.New(log), attempts: map[muster.AttemptID]*attempt{},
	}
	s.self = s.kin.Myself()
	return s, nil
}

// run looks after what is held until ctx ends, or, if it may, until it is of no use
// any more.
func (s *server) run(ctx context.Context, mayEnd bool) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		over := false
		if s.homeless != nil && n%homeEvery == 0 && s.homeless() {
			s.caught("it gave up its tasks", s.giveUp)
		}
		s.caught("it looked after all attempts", func() { over = s.look(run.Clock()) })
		if over && mayEnd {
			return
		}
		if s.sweeps && n%reapEvery == 0 {
			// What a task leaves to this process counts as the task's until then.
			s.caught("it reaped orphans", s.kin.Sweep)
		}
	}
}

// look pokes what runs, ends what has outlived its lease, and drops what nobody came
// for. It reports whether the server has been of no use for a while.
func (s *server) look(now time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	s.noteStandstill(now)
	running := 0
	for id, a := range s.attempts {
		running += b2i(!a.over())
		since := now - max(s.contact, a.since)
		switch {
		case a.over():
			if since > a.s.Lease+leaseSlack {
				s.log.Warn("nobody came for an attempt that has ended", slog.String("attempt", id.String()))
				s.drop(id)
			}
		case since > a.s.Lease && a.s.Lease > 0:
			if s.worker.Load() == nil || s.stood < a.s.Lease/2 { // else it may have said that it has contact
				a.stop(&errLeaseEnded, muster.Kill{})
			}
		case a.quiet.Load() < quietLooks || s.looks%quietEvery == 0:
			token(a.poke)
		}
	}
	switch alone := s.worker.Load() == nil; {
	case alone && s.closed && running == 0:
		return true
	case !alone || len(s.attempts) > 0:
		s.idle = 0
		return false
	}
	s.idle++
	s.closed = s.closed || s.idle > idleLooks
	return s.closed
}

// noteStandstill notes whether this process stood still since the last look, frozen or without a turn: then what a
// connected worker said meanwhile is heard before leases end. The lock is held.
func (s *server) noteStandstill(now time.Duration) {
	gap := now - s.looked
	if s.looked == 0 {
		gap = 0
	}
	s.looked = now
	switch {
	case gap > max(standstill, s.stood): // a process that is slow at each look puts no lease off for ever
		s.stood, s.hearing = gap, hearLooks
	case s.hearing > 0:
		s.hearing--
	default:
		s.stood = 0
	}
}

// drain stops everything as each task asks for, and takes nothing new: the machine is
// shut down, or somebody wants the shim gone.
func (s *server) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, a := range s.attempts {
		a.stop(&errShutDown, muster.Kill{})
	}
}

// giveUp takes nothing new, and without a worker it kills everything: the next worker does not find this server, so
// the tasks would run twice, and nobody would hear how they end.
func (s *server) giveUp() {
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
		if a.over() {
			s.drop(id)
		} else {
			a.forget()
		}
	}
}

var errShutDown = run.Stopped{Outcome: muster.AttemptLost, Reason: muster.WorkerShutdown, Message: "the worker's machine, or the shim that stood by the task, was shut down"}

var errLeaseEnded = run.Stopped{Outcome: muster.AttemptLost, Reason: muster.WorkerLost, Message: "its lease ended while the server was away"}

// kill ends everything that is held and waits for it, though not for what the
// kernel cannot end.
func (s *server) kill() {
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
	if s.dress != nil {
		conn = s.dress(conn)
	}
	ss := &session{server: s, soon: make(chan struct{}, 1), heard: make(chan struct{})}
	ss.out = wire.NewOutbox(conn, ss.gather)
	defer ss.out.Close(wire.ErrClosed)
	in := wire.NewFrames(conn)
	if err := fault.Catch(func() error { return s.greet(conn, in, ss) }); err != nil {
		s.worker.CompareAndSwap(ss, nil)
		close(ss.heard)
		s.log.Warn("a connection is refused", slog.Any("error", err))
		return
	}
	var g errgroup.Group
	g.Go(func() error { ss.out.Run(); return nil })
	g.Go(func() error { ss.hurryUp(); return nil })
	err := fault.Catch(func() error { return ss.listen(in) })
	for _, err := range []error{err, ss.out.Err()} {
		if _, ok := errors.AsType[*fault.PanicError](err); ok {
			logPanic(s.log, err, slog.String("doing", "it talked to the worker"))
		}
	}
	close(ss.heard)
	ss.out.Close(wire.ErrClosed)
	s.worker.CompareAndSwap(ss, nil)
	ss.end()
	_ = g.Wait()
	s.log.Debug("the worker is gone", slog.Any("error", err))
}

var (
	errEnding = errors.New("the shim is about to end")
	errKey    = errors.New("whoever connected does not know the key")
)

// maxHello is the most bytes of a frame of somebody who has not said who he is.
const maxHello = 4 << 10

// greet makes the connection the one worker's, and tells it what is held.
func (s *server) greet(conn net.Conn, in *wire.Frames, ss *session) error {
	_ = conn.SetReadDeadline(time.Now().Add(helloWait)) // without one it takes longer
	var f wire.ToShim
	in.Most = maxHello
	if err := in.Next(&f); err != nil {
		return err
	}
	in.Most = wire.MaxFrame
	if f.Hello == nil || subtle.ConstantTimeCompare([]byte(f.Hello.Key), []byte(s.key)) != 1 {
		return errKey
	}
	_ = conn.SetReadDeadline(time.Time{})
	s.part()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && len(s.attempts) == 0 {
		return errEnding
	}
	s.idle = 0
	s.contact = max(s.contact, f.Hello.Contact)
	if err := ss.out.Put(&wire.ToWorker{Welcome: &wire.Welcome{Protocol: wire.Protocol, Build: s.build, Pid: s.self, Contact: s.contact}}); err != nil {
		return err
	}
	if before := s.worker.Swap(ss); before != nil {
		_ = before.out.Put(&wire.ToWorker{Bye: true}) // it may be gone already
		before.out.Finish()
	}
	for _, a := range s.attempts {
		a.try(telling, func() { a.tellHeld(ss) })
	}
	return ss.out.Put(&wire.ToWorker{Ready: true})
}

// part tells the connected worker that another one has come, and waits until all that it
// said is heard: one that was killed has said things that the next one builds on, such
// as what it settled.
func (s *server) part() {
	before := s.worker.Load()
	if before == nil {
		return
	}
	_ = before.out.Put(&wire.ToWorker{Bye: true}) // it may be gone already
	late := time.NewTicker(partWait / partTicks)
	defer late.Stop()
	for range partTicks { // then it lives, and hangs
		select {
		case <-before.heard:
			return
		case <-late.C:
		}
	}
}

// touch takes up when the server last knew of the worker.
func (s *server) touch(at time.Duration) {
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
		if a.over() {
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
		Shut(a muster.AttemptID) error
	}); ok {
		_ = l.Shut(id) // nothing is buffered
	}
}

// token puts one into c unless it holds one.
func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
