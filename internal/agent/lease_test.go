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

func TestLeaseEndsWhileTheServerIsAway(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		short, usual, ended := w.run(0, grace(time.Minute)), w.run(1), w.run(2, grace(time.Minute))
		time.Sleep(5 * time.Second)
		w.desk.away(true)
		ended.finish()
		time.Sleep(40 * time.Second)
		if short.ctx.Err() != nil {
			t.Fatal("killed before its grace has passed")
		}
		time.Sleep(30 * time.Second)
		if why := run.StoppedBy(short.ctx); short.ctx.Err() == nil || why != errLeaseEnded {
			t.Fatalf("after its grace: %v", why)
		}
		w.desk.forgetFrames()
		w.desk.away(false)
		time.Sleep(time.Minute)
		if held := w.desk.held(1); !slices.Equal(held, []muster.AttemptID{usual.id, ended.id}) {
			t.Errorf("came back with %v: not the killed one, but the one that had ended before", held)
		}
		h := w.desk.heard()
		if len(h.Finished) != 1 || h.Finished[0].Attempt != ended.id {
			t.Errorf("reported %+v", h.Finished)
		}
		w.desk.away(true)
		time.Sleep(11 * time.Minute)
		if usual.ctx.Err() == nil {
			t.Error("the default grace of 10 minutes did not end")
		}
	})
}

// A worker that was stopped or suspended must look at its leases before it says or
// believes anything.
func TestThaw(t *testing.T) {
	for _, tc := range []struct {
		name string
		wake func(w *world, s *show)
	}{
		{"the task ended meanwhile", func(_ *world, s *show) { s.finish() }},
		{"the task goes on", func(*world, *show) {}},
		{"the task prints", func(w *world, s *show) { w.print(s, 0, []byte("late")) }},
		{"an old frame is read first", func(w *world, s *show) {
			w.desk.say(&link.ToWorker{Pong: true})
			synctest.Wait()
			s.finish()
		}},
		{"the server cancels it", func(w *world, s *show) {
			w.desk.say(&link.ToWorker{Cancel: []link.Cancel{{Attempt: s.id}}})
		}},
		{"the connection broke, too", func(w *world, s *show) {
			w.desk.away(true)
			s.finish()
			w.desk.away(false)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				t := w.t
				s := w.run(0)
				time.Sleep(time.Minute)
				w.desk.forgetFrames()
				w.sleep.Store(int64(11 * time.Minute))
				tc.wake(w, s)
				time.Sleep(time.Minute)
				h := w.desk.heard()
				if len(h.Finished)+len(h.Started) != 0 { // its log is kept all the same
					t.Errorf("said %+v of an attempt that had outlived its lease", h)
				}
				if h.Renew != nil && len(h.Renew.Held) > 0 {
					t.Errorf("renewed %v", h.Renew.Held)
				}
				if n, held := w.agent.roster.count(); n+held != 0 {
					t.Errorf("%d run, %d held", n, held)
				}
			})
		})
	}
}

func TestShortSuspendIsForgiven(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		s := w.run(0)
		w.sleep.Store(int64(9 * time.Minute))
		time.Sleep(30 * time.Second)
		s.finish()
		if h := w.desk.heard(); len(h.Finished) != 1 {
			t.Errorf("reported %+v", h.Finished)
		}
	})
}

func TestShortGraceOutlastsAConnectedLife(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		time.Sleep(9 * time.Second) // just before a heartbeat: the last contact is old
		s := w.run(0, grace(2*time.Second))
		time.Sleep(5 * time.Minute)
		if s.ctx.Err() != nil {
			t.Fatalf("killed while the server answered: %v", run.StoppedBy(s.ctx))
		}
		s.finish()
		if h := w.desk.heard(); len(h.Finished) != 1 {
			t.Errorf("reported %+v", h.Finished)
		}
	})
}

func TestHeartbeats(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		w.cfg.Load = nil
		s := w.run(0)
		w.desk.forgetFrames()
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		beats := 0
		for _, f := range w.desk.frames {
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

// A report that leaves in the same frame as the heartbeat, or before, has ended the
// attempt for the server: renewing it would have it dropped.
func TestReportedIsNotRenewed(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		w.desk.set(func(d *desk) { d.quiet = true })
		w.run(0).finish()
		time.Sleep(time.Minute)
		if h := w.desk.heard(); len(h.Renew.Held) != 0 || len(h.Finished) != 1 {
			t.Errorf("renewed %v after the report", h.Renew.Held)
		}
	})
}

// A worker that stood still receives what the server assigned meanwhile, when the server has given it up: the lease counts from
// the last contact that came before the assignment. It is not started, and once the server has answered again the next one is.
func TestAnAssignmentWhoseLeaseHasEnded(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		time.Sleep(time.Second)
		w.desk.forgetFrames()
		w.sleep.Add(int64(20 * time.Second)) // the machine was suspended, and the assignment lay in the socket
		id := w.assign(0, grace(15*time.Second))
		select {
		case <-w.puppet.began:
			t.Error("it was started after its lease")
		default:
		}
		if h := w.desk.heard(); len(h.Rejected) != 1 || h.Rejected[0].Attempt != id {
			t.Errorf("rejected %+v", h.Rejected)
		}
		time.Sleep(time.Second)
		w.run(1, grace(15*time.Second))
	})
}

// The lease of an assignment counts from the contact before it, as the server's does, and not from its arrival.
func TestALeaseBeginsWithTheContactBeforeTheAssignment(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		w.desk.away(true)
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithCancelCause(t.Context())
		spec := &muster.TaskSpec{Disconnect: muster.Disconnect{Grace: muster.Duration(15 * time.Second)}}
		_, no := w.agent.roster.take(attemptID(0), spec, muster.Grant{Slots: 1}, cancel)
		if no != nil {
			t.Fatalf("rejected: %s", no.Message)
		}
		time.Sleep(3 * time.Second)
		if ctx.Err() != nil {
			t.Errorf("13 s after the last contact, with a lease of 15 s: %v", context.Cause(ctx))
		}
		time.Sleep(4 * time.Second)
		if why := context.Cause(ctx); why != errLeaseEnded { //nolint:errorlint // it is this very error
			t.Errorf("17 s after the last contact, with a lease of 15 s: %v", why)
		}
		w.agent.roster.finish(w.agent.roster.held[attemptID(0)], &muster.Report{Outcome: muster.AttemptLost})
	})
}

// A pong counts for the ping that it answers, also where the server answers later than the next heartbeat: the server's lease
// counts from when it heard that one.
func TestAPongCountsForItsPing(t *testing.T) {
	var now time.Duration
	r := newRoster(link.Offer{}, func() time.Duration { return now }, slog.New(slog.DiscardHandler))
	now = time.Second
	r.welcome(&link.Welcome{Heartbeat: muster.Duration(5 * time.Second)}, now)
	var unanswered []time.Duration // of the pings
	for range 4 {
		for range 2 { // heartbeats until the server answers the oldest ping
			now += 5 * time.Second
			var f link.ToServer
			r.sayRenew(&f, nil, now)
			if f.Ping {
				unanswered = append(unanswered, now)
			}
		}
		now += time.Second
		if len(unanswered) == 0 {
			t.Fatal("it does not ping")
		}
		if contact := r.heard(true); contact != unanswered[0] {
			t.Errorf("at %v the answer to the ping of %v counts from %v", now, unanswered[0], contact)
		}
		unanswered = unanswered[1:]
	}
}
