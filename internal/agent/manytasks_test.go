package agent

import (
	"log/slog"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/link"
)

// TestManyTasksShareFrames has tasks that each report progress and write a line to their logs four times a second, at any moments, and counts
// frames and parts of logs. The server acknowledges each part.
func TestManyTasksShareFrames(t *testing.T) {
	const report, duration, line = 250 * time.Millisecond, 20 * time.Second, 100
	for tasks, want := range map[int]struct {
		frames, parts int           // per second, at most; parts for each task
		latency       time.Duration // of a line, at most
	}{
		1:    {frames: 8, parts: 4, latency: 2 * logFrameInterval},
		5:    {frames: 40, parts: 4, latency: 100 * time.Millisecond},
		100:  {frames: 12, parts: 2, latency: maxLogDelay + 2*progressGrid},
		1000: {frames: 12, parts: 2, latency: maxLogDelay + 2*progressGrid},
	} {
		now := time.Hour
		tbl := newAttemptTable(muster.Offer{Resources: muster.Resources{Slots: tasks}}, func() time.Duration { return now }, slog.New(slog.DiscardHandler))
		tbl.connected, tbl.nextHeartbeat = true, 100*time.Hour
		ats := make([]*attempt, tasks)
		for i := range ats {
			at, rejected := tbl.admit(&run.Task{Attempt: attemptID(i), Spec: &muster.TaskSpec{}, Grant: muster.Grant{Slots: 1}}, func(error) {})
			if rejected != nil {
				t.Fatal(rejected)
			}
			ats[i] = at
		}
		last := map[muster.AttemptID]float64{}
		unsentSince := map[muster.AttemptID]time.Duration{}
		frames, parts, messages, due, latency := 0, 0, 0, now, time.Duration(0)
		began := now
		for ; now < began+duration+2*time.Second; now += time.Millisecond {
			for i, at := range ats {
				phase := time.Duration(i) * report / time.Duration(tasks)
				if since := now - began; since < duration && since >= phase && (since-phase)%report < time.Millisecond {
					at.Progress(muster.Progress{Progress: new(since.Seconds() / 60)})
					at.LogGrew(at.logSize + line)
					if unsentSince[at.id] == 0 {
						unsentSince[at.id] = now
					}
				}
			}
			select {
			case <-tbl.wake:
				due = now
			default:
			}
			for now >= due {
				f, ranges, wait := tbl.nextFrame(nil)
				if due = now + wait; f == nil {
					break
				}
				if now > began+2*time.Second && now < began+duration { // after the starts
					frames++
					parts += len(ranges)
					messages += len(f.Progress)
				}
				for _, p := range f.Progress {
					last[p.Attempt] = *p.Progress
				}
				for _, l := range ranges {
					latency = max(latency, now-unsentSince[l.at.id])
					delete(unsentSince, l.at.id)
					tbl.logAck(link.LogAck{Attempt: l.at.id, Size: l.offset + l.n})
				}
			}
		}
		seconds := int((duration - 2*time.Second) / time.Second)
		if frames > want.frames*seconds || parts > want.parts*tasks*seconds || messages > 2*tasks*seconds {
			t.Errorf("%d tasks: %d frames, %d parts of logs and %d messages of progress in %d s", tasks, frames, parts, messages, seconds)
		}
		if latency > want.latency {
			t.Errorf("%d tasks: a line waits for %s, more than %s", tasks, latency, want.latency)
		}
		for _, at := range ats {
			if at.logAcked != at.logSize || at.logSize == 0 || last[at.id] < (duration-report-report).Seconds()/60 {
				t.Errorf("%d tasks: the last line or the last progress of %s was not sent: %d of %d bytes", tasks, at.id, at.logAcked, at.logSize)
				break
			}
		}
	}
}
