package agent

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/link"
)

// A constrained worker reports this in its hello, before it can be assigned a task, and in its rejections, so that the server retries as soon
// as it is ready.
func TestHelloReportsReadiness(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		if why := e.server.hello(0).Constrained; why != "" {
			t.Errorf("the first hello has %q", why)
		}
		e.agent.Constrain("machine", "it probes its machine")
		e.assign(0)
		if h := e.server.received(); len(h.Rejected) != 1 || !h.Rejected[0].Constrained || h.Rejected[0].Message != "it probes its machine" {
			t.Errorf("rejected %+v", h.Rejected)
		}
		e.server.setDown(true)
		e.server.setDown(false)
		time.Sleep(time.Minute)
		if why := e.server.hello(1).Constrained; why != "it probes its machine" {
			t.Errorf("the second hello has %q", why)
		}
		e.agent.Constrain("machine", "")
		e.run(1).finish()
	})
}

// A server that lost its data assigns numbers again that attempts here still have which are being stopped, or whose logs are being sent. The
// new attempt is rejected until they are removed; it is not mistaken for the old one.
func TestAttemptWithTheIDOfAnAbandonedOne(t *testing.T) {
	t.Parallel()
	now := time.Hour
	offer := muster.Offer{Resources: muster.Resources{Slots: 2}}
	id := attemptID(0)
	task := &run.Task{Attempt: id, Grant: muster.Grant{Slots: 1}, Spec: &muster.TaskSpec{}, Assigned: now}
	for _, ended := range []bool{false, true} {
		r := newAttemptTable(offer, func() time.Duration { return now }, slog.New(slog.DiscardHandler))
		stops := 0
		old, rejection := r.admit(task, func(error) { stops++ })
		if old == nil {
			t.Fatal(rejection)
		}
		if ended {
			old.logSize = 100
			r.finish(old, &muster.Report{Outcome: muster.AttemptSucceeded})
		}
		r.onWelcome(&link.Welcome{Heartbeat: muster.Duration(time.Second), Stop: []muster.AttemptID{id}}, now)
		for range 2 {
			at, rejection := r.admit(task, func(error) {})
			if at != nil || rejection == nil || !rejection.Constrained || rejection.Attempt != id {
				t.Fatalf("ended %t: admitted as %v, rejected with %+v", ended, at, rejection)
			}
		}
		if ended {
			r.logAck(link.LogAck{Attempt: id, Size: 100})
		} else {
			r.finish(old, &muster.Report{Outcome: muster.AttemptLost})
		}
		if at, rejection := r.admit(task, func(error) {}); at == nil || at == old {
			t.Fatalf("ended %t: afterwards the new attempt is rejected with %+v", ended, rejection)
		}
		if want := 1; !ended && stops != want {
			t.Errorf("the old attempt was stopped %d times", stops)
		}
	}
}

// A grace that is shorter than the time to the next heartbeat does not end an attempt of a connected worker: the heartbeat is sent earlier.
func TestShortGraceOnConnectedWorker(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		time.Sleep(time.Second)
		s := e.run(0, grace(3*time.Second))
		time.Sleep(time.Minute)
		if s.ctx.Err() != nil {
			t.Fatalf("it was ended: %v", context.Cause(s.ctx))
		}
		e.server.setDown(true)
		time.Sleep(5 * time.Second)
		if s.ctx.Err() == nil {
			t.Error("it runs without the server after its grace")
		}
	})
}
