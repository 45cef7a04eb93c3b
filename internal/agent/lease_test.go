package agent

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/link"
)

func grace(d time.Duration) func(*muster.TaskSpec) {
	return func(s *muster.TaskSpec) { s.Disconnect.Grace = muster.Duration(d) }
}

func TestLeaseEndsWhileTheServerIsUnreachable(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		short, usual, ended := e.run(0, grace(time.Minute)), e.run(1), e.run(2, grace(time.Minute))
		time.Sleep(5 * time.Second)
		e.server.setDown(true)
		ended.finish()
		time.Sleep(40 * time.Second)
		if short.ctx.Err() != nil {
			t.Fatal("killed before its grace has passed")
		}
		time.Sleep(30 * time.Second)
		if why := run.StopCause(short.ctx); short.ctx.Err() == nil || why != run.ErrLeaseEnded {
			t.Fatalf("after its grace: %v", why)
		}
		e.server.forgetFrames()
		e.server.setDown(false)
		time.Sleep(time.Minute)
		if held := e.server.held(1); !slices.Equal(held, []muster.AttemptID{usual.id, ended.id}) {
			t.Errorf("attempts after the reconnect: %v, want only the one that had ended before", held)
		}
		h := e.server.received()
		if len(h.Finished) != 1 || h.Finished[0].Attempt != ended.id {
			t.Errorf("reported %+v", h.Finished)
		}
		e.server.setDown(true)
		time.Sleep(11 * time.Minute)
		if usual.ctx.Err() == nil {
			t.Error("the default grace of 10 minutes did not end")
		}
	})
}

// A worker that was stopped or suspended must check its leases before it sends or handles a frame.
func TestLeasesAreCheckedAfterAFreeze(t *testing.T) {
	for _, tc := range []struct {
		name string
		wake func(e *env, s *fakeTask)
	}{
		{"the task ended meanwhile", func(_ *env, s *fakeTask) { s.finish() }},
		{"the task continues", func(*env, *fakeTask) {}},
		{"the task prints", func(e *env, s *fakeTask) { e.print(s, 0, []byte("late")) }},
		{"an old frame is read first", func(e *env, s *fakeTask) {
			e.server.send(&link.ToWorker{Pong: true})
			synctest.Wait()
			s.finish()
		}},
		{"the server cancels it", func(e *env, s *fakeTask) {
			e.server.send(&link.ToWorker{Cancel: []link.Cancel{{Attempt: s.id}}})
		}},
		{"the connection broke, too", func(e *env, s *fakeTask) {
			e.server.setDown(true)
			s.finish()
			e.server.setDown(false)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inEnv(t, func(e *env) {
				t := e.t
				s := e.run(0)
				time.Sleep(time.Minute)
				e.server.forgetFrames()
				e.suspended.Store(int64(11 * time.Minute))
				tc.wake(e, s)
				time.Sleep(time.Minute)
				h := e.server.received()
				if len(h.Finished)+len(h.Started) != 0 { // its log is still kept
					t.Errorf("sent %+v for an attempt whose lease had ended", h)
				}
				if h.Renew != nil && len(h.Renew.Held) > 0 {
					t.Errorf("renewed %v", h.Renew.Held)
				}
				if n, held := e.agent.table.count(); n+held != 0 {
					t.Errorf("%d running, %d attempts", n, held)
				}
			})
		})
	}
}

func TestShortSuspendKeepsTheLease(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		s := e.run(0)
		e.suspended.Store(int64(9 * time.Minute))
		time.Sleep(30 * time.Second)
		s.finish()
		if h := e.server.received(); len(h.Finished) != 1 {
			t.Errorf("reported %+v", h.Finished)
		}
	})
}

func TestShortGraceWhileConnected(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		time.Sleep(9 * time.Second) // just before a heartbeat: the last contact is old
		s := e.run(0, grace(2*time.Second))
		time.Sleep(5 * time.Minute)
		if s.ctx.Err() != nil {
			t.Fatalf("killed while the server answered: %v", run.StopCause(s.ctx))
		}
		s.finish()
		if h := e.server.received(); len(h.Finished) != 1 {
			t.Errorf("reported %+v", h.Finished)
		}
	})
}

func TestHeartbeats(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		e.cfg.Load = nil
		s := e.run(0)
		e.server.forgetFrames()
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		beats := 0
		for _, f := range e.server.frames {
			if f.Renew != nil {
				beats++
				if !f.Ping || !slices.Equal(f.Renew.Held, []muster.AttemptID{s.id}) {
					t.Errorf("heartbeat %+v", f)
				}
			}
		}
		if beats != 6 {
			t.Errorf("%d heartbeats in a minute, want one every 10s", beats)
		}
	})
}

// A report that is sent in the frame of a heartbeat, or before it, has ended the attempt for the server: to renew it would drop it.
func TestReportedAttemptIsNotRenewed(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		e.server.set(func(d *fakeServer) { d.holdAcks = true })
		e.run(0).finish()
		time.Sleep(time.Minute)
		if h := e.server.received(); len(h.Renew.Held) != 0 || len(h.Finished) != 1 {
			t.Errorf("renewed %v after the report", h.Renew.Held)
		}
	})
}

// A stopped worker receives an assignment after the server has declared the attempt lost: the lease counts from the last contact before the
// assignment. The attempt is not started; once the server has responded again, the next one is.
func TestAssignmentWithEndedLease(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		time.Sleep(time.Second)
		e.server.forgetFrames()
		e.suspended.Add(int64(20 * time.Second)) // the machine was suspended, and the assignment waited in the socket
		id := e.assign(0, grace(15*time.Second))
		select {
		case <-e.executor.started:
			t.Error("it was started after its lease")
		default:
		}
		if h := e.server.received(); len(h.Rejected) != 1 || h.Rejected[0].Attempt != id {
			t.Errorf("rejected %+v", h.Rejected)
		}
		time.Sleep(time.Second)
		e.run(1, grace(15*time.Second))
	})
}

// The lease of an assignment counts from the contact before it, as the server's lease does, and not from its arrival.
func TestLeaseBeginsAtTheContactBeforeTheAssignment(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		e.server.setDown(true)
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithCancelCause(t.Context())
		spec := &muster.TaskSpec{Disconnect: muster.Disconnect{Grace: muster.Duration(15 * time.Second)}}
		_, rejection := e.agent.table.admit(&run.Task{Attempt: attemptID(0), Spec: spec, Grant: muster.Grant{Slots: 1}, Assigned: e.agent.table.clock()}, cancel)
		if rejection != nil {
			t.Fatalf("rejected: %s", rejection.Message)
		}
		time.Sleep(3 * time.Second)
		if ctx.Err() != nil {
			t.Errorf("13 s after the last contact, with a lease of 15 s: %v", context.Cause(ctx))
		}
		time.Sleep(4 * time.Second)
		if why := context.Cause(ctx); why != run.ErrLeaseEnded { //nolint:errorlint // it is this very error
			t.Errorf("17 s after the last contact, with a lease of 15 s: %v", why)
		}
		e.agent.table.finish(e.agent.table.held[attemptID(0)], &muster.Report{Outcome: muster.AttemptLost})
	})
}

// A pong counts for the ping that it answers, even if it arrives after the next heartbeat: the server's lease counts from that ping.
func TestPongExtendsTheLeaseFromItsPing(t *testing.T) {
	var now time.Duration
	r := newAttemptTable(muster.Offer{}, func() time.Duration { return now }, slog.New(slog.DiscardHandler))
	now = time.Second
	r.onWelcome(&link.Welcome{Heartbeat: muster.Duration(5 * time.Second)}, now)
	var unanswered []time.Duration // of the pings
	for range 4 {
		for range 2 { // heartbeats until the server answers the oldest ping
			now += 5 * time.Second
			var f link.ToServer
			r.addRenew(&f, nil, now)
			if f.Ping {
				unanswered = append(unanswered, now)
			}
		}
		now += time.Second
		if len(unanswered) == 0 {
			t.Fatal("no ping was sent")
		}
		if _, contact := r.onContact(true); contact != unanswered[0] {
			t.Errorf("at %v the answer to the ping of %v counts from %v", now, unanswered[0], contact)
		}
		unanswered = unanswered[1:]
	}
}
