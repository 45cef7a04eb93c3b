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

// adopted returns the tasks of the first process that the second one runs, by number.
func (e *env) adopted() map[int]*fakeTask {
	e.t.Helper()
	synctest.Wait()
	tasks := map[int]*fakeTask{}
	for len(e.executor.started) > 0 {
		s := <-e.executor.started
		if s.task.Recovered == nil {
			e.t.Errorf("task %s is not adopted, but started", s.id)
		}
		tasks[s.id.Task.Num] = s
	}
	return tasks
}

// Tasks survive a crash of the worker: the next process holds them, reserves their resources, continues their logs and reports their ends.
func TestTasksSurviveACrash(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		full := func(s *muster.TaskSpec) {
			s.Run = &muster.Command{Shell: "echo"}
			s.Env = map[string]string{"A": "b"}
			s.Disconnect.Grace = muster.Duration(time.Hour)
		}
		first, second := e.run(0, full), e.run(1)
		e.print(first, 0, []byte("one "))
		time.Sleep(time.Second)
		e.print(first, 4, []byte("two "))
		e.crash()
		e.server.forgetFrames()
		e.supervisor.change(first.id, func(h *run.Recovered) { h.LogSize, h.Frozen = 8, true })
		e.start()
		again := e.adopted()
		if len(again) != 2 {
			t.Fatalf("%d of 2 tasks are adopted", len(again))
		}
		if frozen, thawed := e.supervisor.frozen[first.id]; frozen || !thawed {
			t.Error("a recovered task is still frozen")
		}
		got := *again[0].task
		got.Recovered = nil
		if d := cmp.Diff(*first.task, got); d != "" {
			t.Errorf("the recovered task differs: %s", d)
		}
		if held := e.server.held(1); !slices.Equal(held, []muster.AttemptID{first.id, second.id}) {
			t.Errorf("the second process has %v", held)
		}
		for i := range 3 {
			e.assign(2 + i)
		}
		time.Sleep(time.Second)
		if h := e.server.received(); len(h.Rejected) != 1 {
			t.Errorf("rejected %v: two of four slots are in use", h.Rejected)
		}
		e.print(again[0], 8, []byte("three"))
		again[0].finish()
		time.Sleep(time.Second)
		h := e.server.received()
		if len(h.Finished) != 1 || h.Finished[0].Attempt != first.id || h.Finished[0].StartedAt != 5000 || h.Finished[0].LogSize != 13 {
			t.Errorf("reported %+v", h.Finished)
		}
		if log := e.server.log(first.id); log != "one two three" {
			t.Errorf("the log is %q", log)
		}
		if n := e.supervisor.count(); n != 3 {
			t.Errorf("the shim still has %d attempts, want the recovered one and two new ones", n)
		}
		e.server.send(&link.ToWorker{Cancel: []link.Cancel{{Attempt: second.id}}})
		time.Sleep(time.Second)
		if h := e.server.received(); len(h.Finished) != 2 || h.Finished[1].Outcome != muster.AttemptCancelled {
			t.Errorf("an adopted task is cancelled: %+v", h.Finished)
		}
	})
}

// An attempt that ended while no worker ran, or whose report was not stored before the crash, is reported once.
func TestTasksThatEndWithoutAWorkerAreReported(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		ended, settled := e.run(0, grace(time.Minute)), e.run(1)
		e.crash()
		e.server.forgetFrames()
		e.supervisor.change(ended.id, func(h *run.Recovered) { h.Exit = &run.Exit{Code: 3} })
		e.supervisor.change(settled.id, func(h *run.Recovered) {
			h.Report = &muster.Report{Attempt: settled.id, Outcome: muster.AttemptSucceeded, FinishedAt: 7}
		})
		time.Sleep(10 * time.Minute) // longer than the grace; the task had ended in time
		e.server.set(func(d *fakeServer) { d.holdAcks = true })
		e.start()
		again := e.adopted()
		if len(again) != 1 || again[0] == nil || again[0].task.Recovered.Exit == nil {
			t.Fatalf("recovered: %v, want the one without a report", again)
		}
		again[0].finish()
		time.Sleep(time.Second)
		if h := e.server.received(); len(h.Finished) != 2 {
			t.Errorf("reported %+v", h.Finished)
		}
		if e.savedReports() != 2 || e.supervisor.count() != 0 {
			t.Errorf("without an acknowledgement: %d reports on disk, %d attempts at the shim", e.savedReports(), e.supervisor.count())
		}
		e.server.send(&link.ToWorker{FinishedAck: []muster.AttemptID{ended.id, settled.id}})
		time.Sleep(time.Second)
		if _, held := e.agent.table.count(); held+e.savedReports()+e.supervisor.count() != 0 {
			t.Errorf("after the acknowledgement: %d attempts, %d on disk and %d at the shim", held, e.savedReports(), e.supervisor.count())
		}
	})
}

// A worker that starts after a lease has ended kills the attempt and does not report it.
func TestRecoveryPreservesTheLease(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		short, usual, killed := e.run(0, grace(time.Minute)), e.run(1), e.run(2, grace(time.Minute))
		time.Sleep(30 * time.Second)
		e.crash()
		e.supervisor.change(killed.id, func(h *run.Recovered) { h.Exit = &run.Exit{Code: 137, Stopped: run.ErrLeaseEnded} })
		e.server.forgetFrames()
		e.server.setDown(true)
		time.Sleep(2 * time.Minute)
		e.start()
		again := e.adopted()
		for _, s := range []*fakeTask{short, killed} {
			if now := again[s.id.Task.Num]; now == nil || run.StopCause(now.ctx) != run.ErrLeaseEnded {
				t.Errorf("%s runs after its lease has ended", s.id)
			}
		}
		if again[1] == nil || again[1].ctx.Err() != nil {
			t.Error("the other one does not run")
		}
		e.server.setDown(false)
		time.Sleep(time.Minute)
		if held := e.server.held(e.server.sessions() - 1); !slices.Equal(held, []muster.AttemptID{usual.id}) {
			t.Errorf("the hello lists %v", held)
		}
		if h := e.server.received(); len(h.Finished) != 0 || e.supervisor.count() != 1 {
			t.Errorf("reported %v; the shim has %d", h.Finished, e.supervisor.count())
		}
		// The restart does not extend the lease while the server is unreachable.
		e.crash()
		e.server.setDown(true)
		time.Sleep(9 * time.Minute)
		e.start()
		if s := e.adopted()[1]; s == nil || s.ctx.Err() != nil {
			t.Fatal("killed before its grace has passed")
		}
		time.Sleep(2 * time.Minute)
		if e.supervisor.count() != 0 {
			t.Error("the restart of the worker extended the lease")
		}
	})
}

// An attempt that cannot be recovered is ended and forgotten, and the server starts it again.
func TestRecoveryOfUnusableAttempts(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		garbled, other, fine := e.run(0), e.run(1), e.run(2)
		e.crash()
		e.supervisor.change(garbled.id, func(h *run.Recovered) { h.Start.State = []byte(`{`) })
		e.supervisor.change(other.id, func(h *run.Recovered) {
			task := *other.task
			task.Spec = &muster.TaskSpec{Kind: "container"}
			h.Start.State, _ = task.State()
		})
		e.cfg.Resources = muster.Resources{Slots: 1}
		e.start()
		if again := e.adopted(); len(again) != 1 || again[2] == nil {
			t.Errorf("adopted %v", again)
		}
		time.Sleep(time.Second)
		if held := e.server.held(1); !slices.Equal(held, []muster.AttemptID{fine.id}) || e.supervisor.count() != 1 {
			t.Errorf("has %v, and %d at the shim", held, e.supervisor.count())
		}
		e.assign(3)
		if h := e.server.received(); len(h.Rejected) != 1 {
			t.Errorf("rejected %v: the machine now has one slot, which is in use", h.Rejected)
		}
	})
}

// An upgrade leaves running tasks to the next process, returns tasks that have not started, and sends no goodbye.
func TestDetach(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		running := e.run(0)
		e.executor.noProcess.Store(true)
		preparing := e.run(1)
		e.agent.Detach()
		if err := <-e.ended; !errors.Is(err, run.ErrDetach) {
			t.Fatalf("ended with %v", err)
		}
		synctest.Wait()
		h := e.server.received()
		if h.Goodbye != nil || e.server.closedCleanly() {
			t.Error("it sent goodbye: the server drops its tasks")
		}
		if len(h.Finished) != 1 || h.Finished[0].Attempt != preparing.id || h.Finished[0].Reason != muster.Preempted {
			t.Errorf("reported %+v", h.Finished)
		}
		e.executor.noProcess.Store(false)
		e.start()
		again := e.adopted()
		if len(again) != 1 || again[0] == nil || again[0].id != running.id {
			t.Fatalf("the next process recovered %v", again)
		}
		if held := e.server.held(1); !slices.Equal(held, []muster.AttemptID{running.id}) || e.savedReports() != 0 {
			t.Errorf("it has %v and %d reports", held, e.savedReports())
		}
	})
}

// A worker with running tasks does not exit because of unexpected answers.
func TestRecoveryToleratesUnexpectedResponses(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		s := e.run(0)
		e.crash()
		e.server.set(func(d *fakeServer) { d.refuse = muster.Errorf(muster.NotFound, "the server answered 404") })
		e.start()
		time.Sleep(2 * time.Minute)
		e.server.set(func(d *fakeServer) { d.refuse = nil })
		time.Sleep(time.Minute)
		if held := e.server.held(e.server.sessions() - 1); !slices.Equal(held, []muster.AttemptID{s.id}) {
			t.Errorf("has %v", held)
		}
	})
}
