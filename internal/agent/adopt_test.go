package agent

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/link"
)

// adopted returns what the second life runs of the first one's tasks, by number.
func (w *world) adopted() map[int]*show {
	w.t.Helper()
	synctest.Wait()
	shows := map[int]*show{}
	for len(w.puppet.began) > 0 {
		s := <-w.puppet.began
		if s.task.Held == nil {
			w.t.Errorf("task %s is not adopted, but started", s.id)
		}
		shows[s.id.Task.Num] = s
	}
	return shows
}

// Tasks go on over a crash of the worker: the next life says that it holds them,
// takes their capacity, goes on with their logs and reports their ends.
func TestTasksOutliveACrash(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		full := func(s *muster.TaskSpec) {
			s.Run = &muster.Command{Shell: "echo"}
			s.Env = map[string]string{"A": "b"}
			s.Disconnect.Grace = muster.Duration(time.Hour)
		}
		first, second := w.run(0, full), w.run(1)
		w.print(first, 0, []byte("one "))
		time.Sleep(time.Second)
		w.print(first, 4, []byte("two "))
		w.crash()
		w.desk.forgetFrames()
		w.shelf.change(first.id, func(h *run.Held) { h.LogSize, h.Frozen = 8, true })
		w.start()
		again := w.adopted()
		if len(again) != 2 {
			t.Fatalf("%d of 2 tasks are adopted", len(again))
		}
		if frozen, thawed := w.shelf.frozen[first.id]; frozen || !thawed {
			t.Error("a frozen task stays frozen without whoever froze it")
		}
		got := *again[0].task
		got.Held = nil
		if d := cmp.Diff(*first.task, got); d != "" {
			t.Errorf("the task is another one now: %s", d)
		}
		if held := w.desk.held(1); !slices.Equal(held, []muster.AttemptID{first.id, second.id}) {
			t.Errorf("the second life says that it holds %v", held)
		}
		for i := range 3 {
			w.assign(2 + i)
		}
		time.Sleep(time.Second)
		if h := w.desk.heard(); len(h.Rejected) != 1 {
			t.Errorf("rejected %v: two slots of four are taken", h.Rejected)
		}
		w.print(again[0], 8, []byte("three"))
		again[0].finish()
		time.Sleep(time.Second)
		h := w.desk.heard()
		if len(h.Finished) != 1 || h.Finished[0].Attempt != first.id || h.Finished[0].StartedAt != 5000 || h.Finished[0].LogSize != 13 {
			t.Errorf("reported %+v", h.Finished)
		}
		if log := w.desk.log(first.id); log != "one two three" {
			t.Errorf("the log is %q", log)
		}
		if n := w.shelf.holds(); n != 3 {
			t.Errorf("the supervisor still holds %d attempts, want the adopted one and two new ones", n)
		}
		w.desk.say(&link.ToWorker{Cancel: []link.Cancel{{Attempt: second.id}}})
		time.Sleep(time.Second)
		if h := w.desk.heard(); len(h.Finished) != 2 || h.Finished[1].Outcome != muster.AttemptCancelled {
			t.Errorf("an adopted task is cancelled: %+v", h.Finished)
		}
	})
}

// An attempt that ended in the time without a worker, or whose report the crash
// kept from the disk, is reported once.
func TestEndsWithoutAWorkerAreReported(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		ended, settled := w.run(0, grace(time.Minute)), w.run(1)
		w.crash()
		w.desk.forgetFrames()
		w.shelf.change(ended.id, func(h *run.Held) { h.Exit = &run.Exit{Code: 3} })
		w.shelf.change(settled.id, func(h *run.Held) {
			h.Report = &muster.Report{Attempt: settled.id, Outcome: muster.AttemptSucceeded, FinishedAt: 7}
		})
		time.Sleep(10 * time.Minute) // longer than the grace: its end was in time
		w.desk.set(func(d *desk) { d.quiet = true })
		w.start()
		again := w.adopted()
		if len(again) != 1 || again[0] == nil || again[0].task.Held.Exit == nil {
			t.Fatalf("taken up: %v, want the one without a report", again)
		}
		again[0].finish()
		time.Sleep(time.Second)
		if h := w.desk.heard(); len(h.Finished) != 2 {
			t.Errorf("reported %+v", h.Finished)
		}
		if w.kept() != 2 || w.shelf.holds() != 0 {
			t.Errorf("without an acknowledgement %d reports are on disk, and %d attempts at the supervisor, too", w.kept(), w.shelf.holds())
		}
		w.desk.say(&link.ToWorker{FinishedAck: []muster.AttemptID{ended.id, settled.id}})
		time.Sleep(time.Second)
		if _, held := w.agent.roster.count(); held+w.kept()+w.shelf.holds() != 0 {
			t.Errorf("after the acknowledgement %d are held, %d on disk and %d at the supervisor", held, w.kept(), w.shelf.holds())
		}
	})
}

// A worker that was away for longer than the lease says nothing of what it left,
// and ends it.
func TestAdoptionHeedsTheLease(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		short, usual, killed := w.run(0, grace(time.Minute)), w.run(1), w.run(2, grace(time.Minute))
		time.Sleep(30 * time.Second)
		w.crash()
		w.shelf.change(killed.id, func(h *run.Held) { h.Exit = &run.Exit{Code: 137, Stopped: errLeaseEnded} })
		w.desk.forgetFrames()
		w.desk.away(true)
		time.Sleep(2 * time.Minute)
		w.start()
		again := w.adopted()
		for _, s := range []*show{short, killed} {
			if now := again[s.id.Task.Num]; now == nil || run.StoppedBy(now.ctx) != errLeaseEnded {
				t.Errorf("%s goes on after its lease", s.id)
			}
		}
		if again[1] == nil || again[1].ctx.Err() != nil {
			t.Error("the other one does not go on")
		}
		w.desk.away(false)
		time.Sleep(time.Minute)
		if held := w.desk.held(w.desk.sessions() - 1); !slices.Equal(held, []muster.AttemptID{usual.id}) {
			t.Errorf("says that it holds %v", held)
		}
		if h := w.desk.heard(); len(h.Finished) != 0 || w.shelf.holds() != 1 {
			t.Errorf("reported %v; the supervisor holds %d", h.Finished, w.shelf.holds())
		}
		// The new life gives no new lease while the server stays away.
		w.crash()
		w.desk.away(true)
		time.Sleep(9 * time.Minute)
		w.start()
		if s := w.adopted()[1]; s == nil || s.ctx.Err() != nil {
			t.Fatal("killed before its grace has passed")
		}
		time.Sleep(2 * time.Minute)
		if w.shelf.holds() != 0 {
			t.Error("it outlives its lease by the restart of its worker")
		}
	})
}

// What cannot be taken up is ended and forgotten, and the server starts it anew.
func TestAdoptionOfWhatCannotBe(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		garbled, other, fine := w.run(0), w.run(1), w.run(2)
		w.crash()
		w.shelf.change(garbled.id, func(h *run.Held) { h.Start.State = []byte(`{`) })
		w.shelf.change(other.id, func(h *run.Held) {
			task := *other.task
			task.Spec = &muster.TaskSpec{Kind: "container"}
			h.Start.State, _ = task.State()
		})
		w.cfg.Resources = muster.Resources{Slots: 1}
		w.start()
		if again := w.adopted(); len(again) != 1 || again[2] == nil {
			t.Errorf("adopted %v", again)
		}
		time.Sleep(time.Second)
		if held := w.desk.held(1); !slices.Equal(held, []muster.AttemptID{fine.id}) || w.shelf.holds() != 1 {
			t.Errorf("holds %v, and %d at the supervisor", held, w.shelf.holds())
		}
		w.assign(3)
		if h := w.desk.heard(); len(h.Rejected) != 1 {
			t.Errorf("rejected %v: the machine became smaller, and its one slot is taken", h.Rejected)
		}
	})
}

// An upgrade leaves what runs to the next life, hands back what does not run
// yet, and says no goodbye.
func TestLeave(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		running := w.run(0)
		w.puppet.bare.Store(true)
		preparing := w.run(1)
		w.agent.Leave()
		if err := <-w.ended; !errors.Is(err, run.ErrLeave) {
			t.Fatalf("ended with %v", err)
		}
		synctest.Wait()
		h := w.desk.heard()
		if h.Goodbye != nil || w.desk.leftInOrder() {
			t.Error("it said goodbye: the server gives its tasks up")
		}
		if len(h.Finished) != 1 || h.Finished[0].Attempt != preparing.id || h.Finished[0].Reason != muster.Preempted {
			t.Errorf("reported %+v", h.Finished)
		}
		w.puppet.bare.Store(false)
		w.start()
		again := w.adopted()
		if len(again) != 1 || again[0] == nil || again[0].id != running.id {
			t.Fatalf("the next life took up %v", again)
		}
		if held := w.desk.held(1); !slices.Equal(held, []muster.AttemptID{running.id}) || w.kept() != 0 {
			t.Errorf("it holds %v, and %d reports", held, w.kept())
		}
	})
}

// With tasks that run, strange answers on the way are not the end of a new life.
func TestAdoptionOutlastsStrangeAnswers(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		s := w.run(0)
		w.crash()
		w.desk.set(func(d *desk) { d.refuse = muster.Errorf(muster.NotFound, "the server answered 404") })
		w.start()
		time.Sleep(2 * time.Minute)
		w.desk.set(func(d *desk) { d.refuse = nil })
		time.Sleep(time.Minute)
		if held := w.desk.held(w.desk.sessions() - 1); !slices.Equal(held, []muster.AttemptID{s.id}) {
			t.Errorf("holds %v", held)
		}
	})
}
