package agent

import (
	"bytes"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

func TestLogsShareTheWindow(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		w.desk.set(func(d *desk) { d.deaf = true })
		flood, drop := w.run(0), w.run(1)
		big := bytes.Repeat([]byte("0123456789abcdef"), 4<<20/16)
		w.print(flood, 0, big)
		time.Sleep(time.Second)
		w.desk.set(func(d *desk) {
			if d.most > logWindow {
				t.Errorf("%d bytes wait for their acknowledgement, more than %d", d.most, logWindow)
			}
			d.deaf, d.unacked = false, 0
		})
		w.print(drop, 0, []byte("small\n"))
		w.desk.say(&link.ToWorker{LogAck: []link.LogAck{{Attempt: flood.id, Size: logWindow}}})
		time.Sleep(logEvery * 2)
		if w.desk.log(drop.id) != "small\n" {
			t.Error("a small log waits behind a big one")
		}
		time.Sleep(time.Second)
		if got := w.desk.log(flood.id); got != string(big) {
			t.Errorf("%d bytes of %d arrived, or others", len(got), len(big))
		}
	})
}

func TestLogThatTheServerLostIsSentAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		s := w.run(0)
		w.print(s, 0, []byte("one two "))
		time.Sleep(time.Second)
		w.desk.set(func(d *desk) { d.logs[s.id] = d.logs[s.id][:4] })
		w.print(s, 8, []byte("three"))
		time.Sleep(time.Second)
		if got := w.desk.log(s.id); got != "one two three" {
			t.Errorf("log %q", got)
		}
	})
}

func TestLogIsSentAgainWithoutAcknowledgement(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		s := w.run(0)
		w.desk.set(func(d *desk) { d.deaf = true })
		w.print(s, 0, []byte("unheard"))
		time.Sleep(time.Second)
		w.desk.set(func(d *desk) { d.deaf = false })
		s.finish()
		time.Sleep(time.Minute)
		if _, held := w.agent.roster.count(); held != 0 {
			t.Error("an attempt is held forever for the want of an acknowledgement")
		}
	})
}

func TestLogThatCannotBeReadIsAbandoned(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		s := w.run(0)
		s.sink.LogGrew(100) // of which there is nothing
		s.finish()
		time.Sleep(time.Minute)
		if n, held := w.agent.roster.count(); n+held != 0 {
			t.Errorf("%d run, %d held", n, held)
		}
	})
}

// Whatever the order of growth, acknowledgements and losses, the account of bytes
// on their way is exact, and nothing beyond the log is sent.
func TestLogAccounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Hour
		r := newRoster(link.Offer{Resources: muster.Resources{Slots: 10}}, func() time.Duration { return now }, nil)
		r.connected, r.beatAt = true, time.Hour*100
		var ats []*attempt
		for i := range 3 {
			at, _ := r.take(attemptID(i), &muster.TaskSpec{}, muster.Grant{}, func(error) {})
			ats = append(ats, at)
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			at := rapid.SampledFrom(ats).Draw(t, "attempt")
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				at.LogGrew(at.logSize + rapid.Int64Range(1, 1<<20).Draw(t, "grew"))
			case 1:
				now += time.Second
				_, ranges, _ := r.next(nil)
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
				if at.report == nil && !at.gone {
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
				if at.logSent < at.logSize && !at.logging {
					t.Fatalf("the rest of a log waits for nothing")
				}
			}
			if onTheWay != r.inflight || r.inflight > logWindow {
				t.Fatalf("%d bytes are on their way, %d are counted, %d are allowed", onTheWay, r.inflight, int64(logWindow))
			}
		}
	})
}
