package agent

import (
	"bytes"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/link"
)

func TestLogsShareTheWindow(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		e.server.set(func(d *fakeServer) { d.holdLogAcks = true })
		flood, drop := e.run(0), e.run(1)
		big := bytes.Repeat([]byte("0123456789abcdef"), 4<<20/16)
		e.print(flood, 0, big)
		time.Sleep(time.Second)
		e.server.set(func(d *fakeServer) {
			if d.maxUnacked > logWindow {
				t.Errorf("%d bytes are unacknowledged, more than %d", d.maxUnacked, logWindow)
			}
			d.holdLogAcks, d.unacked = false, 0
		})
		e.print(drop, 0, []byte("small\n"))
		e.server.send(&link.ToWorker{LogAck: []link.LogAck{{Attempt: flood.id, Size: logWindow}}})
		time.Sleep(logFrameInterval * 2)
		if e.server.log(drop.id) != "small\n" {
			t.Error("a small log waits behind a big one")
		}
		time.Sleep(time.Second)
		if got := e.server.log(flood.id); got != string(big) {
			t.Errorf("%d bytes of %d arrived, or others", len(got), len(big))
		}
	})
}

func TestLogLostByTheServerIsResent(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		s := e.run(0)
		e.print(s, 0, []byte("one two "))
		time.Sleep(time.Second)
		e.server.set(func(d *fakeServer) { d.logs[s.id] = d.logs[s.id][:4] })
		e.print(s, 8, []byte("three"))
		time.Sleep(time.Second)
		if got := e.server.log(s.id); got != "one two three" {
			t.Errorf("log %q", got)
		}
	})
}

func TestUnacknowledgedLogIsResent(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		s := e.run(0)
		e.server.set(func(d *fakeServer) { d.holdLogAcks = true })
		e.print(s, 0, []byte("unheard"))
		time.Sleep(time.Second)
		e.server.set(func(d *fakeServer) { d.holdLogAcks = false })
		s.finish()
		time.Sleep(time.Minute)
		if _, held := e.agent.table.count(); held != 0 {
			t.Error("an attempt without an acknowledgement is never removed")
		}
	})
}

func TestUnreadableLogIsAbandoned(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		s := e.run(0)
		s.reporter.LogGrew(100) // the log does not exist
		s.finish()
		time.Sleep(time.Minute)
		if n, held := e.agent.table.count(); n+held != 0 {
			t.Errorf("%d running, %d attempts", n, held)
		}
	})
}

// In any order of growth, acknowledgements and losses, the count of unacknowledged bytes is exact, and no bytes beyond the log are sent.
func TestLogWindowAccounting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Hour
		r := newAttemptTable(muster.Offer{Resources: muster.Resources{Slots: 10}}, func() time.Duration { return now }, nil)
		r.connected, r.nextHeartbeat = true, time.Hour*100
		var ats []*attempt
		for i := range 3 {
			at, _ := r.admit(&run.Task{Attempt: attemptID(i), Spec: &muster.TaskSpec{}}, func(error) {})
			ats = append(ats, at)
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			at := rapid.SampledFrom(ats).Draw(t, "attempt")
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				at.LogGrew(at.logSize + rapid.Int64Range(1, 1<<20).Draw(t, "grew"))
			case 1:
				now += time.Second
				_, ranges, _ := r.nextFrame(nil)
				for _, l := range ranges {
					if l.n <= 0 || l.offset+l.n > l.at.logSize {
						t.Fatalf("sends %d bytes from %d of a log of %d", l.n, l.offset, l.at.logSize)
					}
				}
			case 2:
				r.logAck(link.LogAck{
					Attempt: at.id, Size: rapid.Int64Range(0, at.logSize).Draw(t, "ack"),
					Pause: rapid.SampledFrom([]muster.Duration{0, 0, muster.Duration(time.Second)}).Draw(t, "pause"),
				})
			case 3:
				r.rewindLogs()
			case 4:
				if at.report == nil && !at.dropped {
					r.finish(at, &muster.Report{Outcome: muster.AttemptSucceeded})
					r.finishedAck([]muster.AttemptID{at.id})
				}
			}
			var onTheWay int64
			for _, at := range r.held {
				onTheWay += at.logSent - at.logAcked
				if at.logAcked > at.logSent || at.logSent > at.logSize {
					t.Fatalf("acknowledged %d, sent %d, size %d", at.logAcked, at.logSent, at.logSize)
				}
				if at.logSent < at.logSize && !at.logQueued {
					t.Fatalf("the rest of a log is not queued")
				}
			}
			if onTheWay != r.inflight || r.inflight > logWindow {
				t.Fatalf("%d bytes are unacknowledged, %d are counted, %d are allowed", onTheWay, r.inflight, int64(logWindow))
			}
		}
	})
}
