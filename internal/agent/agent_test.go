package agent

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/link"
)

// inEnv runs a test in a bubble with a connected worker, and ends it.
func inEnv(t *testing.T, test func(e *env)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t)
		e.start()
		test(e)
		select {
		case err := <-e.ended:
			e.ended <- err
		default:
			if err := e.end(); err != nil {
				t.Errorf("the worker ended with %v", err)
			}
		}
		e.server.setDown(true)
		e.server.serving.Wait()
	})
}

func TestTaskLifecycle(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		e.server.set(func(d *fakeServer) { d.holdAcks = true })
		s := e.run(0)
		s.reporter.Started(5000)
		e.print(s, 0, []byte("hello\n"))
		half := 0.5
		s.reporter.Progress(muster.Progress{Progress: &half})
		time.Sleep(time.Second)
		s.finish()
		time.Sleep(time.Second)
		h := e.server.received()
		if len(h.Accepted) != 1 || len(h.Started) != 1 || len(h.Progress) != 1 || len(h.Finished) != 1 {
			t.Fatalf("got %+v", h)
		}
		if r := h.Finished[0]; r.Attempt != s.id || r.Outcome != muster.AttemptSucceeded || r.LogSize != 6 || r.StartedAt != 5000 {
			t.Errorf("reported %+v", r)
		}
		if e.server.log(s.id) != "hello\n" {
			t.Errorf("log %q", e.server.log(s.id))
		}
		if _, held := e.agent.table.count(); held != 1 || e.savedReports() != 1 {
			t.Errorf("a report without acknowledgement: %d attempts, %d on disk", held, e.savedReports())
		}
		if size, _ := e.logs.Size(t.Context(), s.id); size != 6 {
			t.Errorf("the local log has %d bytes before the acknowledgement", size)
		}
		e.server.send(&link.ToWorker{FinishedAck: []muster.AttemptID{s.id}})
		time.Sleep(time.Second)
		if _, held := e.agent.table.count(); held != 0 || e.savedReports() != 0 {
			t.Errorf("after the acknowledgement: %d attempts, %d on disk", held, e.savedReports())
		}
		if size, _ := e.logs.Size(t.Context(), s.id); size != 0 {
			t.Errorf("the local log still has %d bytes", size)
		}
	})
}

func TestShortTaskSendsOneFrame(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		f := &link.ToWorker{Specs: []link.GroupSpec{{Ref: 1, UID: "j1", Name: "g", Spec: muster.TaskSpec{Kind: muster.KindNoop}}}}
		for i := range 100 {
			f.Assign = append(f.Assign, link.Assign{Attempt: attemptID(i), Ref: 1, Grant: muster.Grant{Slots: 1}})
		}
		synctest.Wait()
		e.server.forgetFrames()
		e.server.send(f)
		h := e.server.received()
		if len(h.Finished) != 100 || len(h.Accepted)+len(h.Started)+len(h.Rejected) != 0 {
			t.Fatalf("%d finished, %d accepted, %d started, %d rejected", len(h.Finished), len(h.Accepted), len(h.Started), len(h.Rejected))
		}
		if len(e.server.frames) != 1 {
			t.Errorf("%d frames for what came in one", len(e.server.frames))
		}
		time.Sleep(time.Second)
		if _, held := e.agent.table.count(); held != 0 || e.savedReports() != 0 {
			t.Errorf("%d held and %d on disk after the acknowledgement", held, e.savedReports())
		}
	})
}

func TestAcknowledgedReportsAreNotStored(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		before := e.reports.db.Stats()
		e.run(0).finish()
		time.Sleep(time.Second)
		if h := e.server.received(); len(h.Finished) != 1 {
			t.Fatalf("got %+v", h)
		}
		if diff := e.reports.db.Stats(); diff.TxStats.GetWrite() != before.TxStats.GetWrite() {
			t.Error("a report that was acknowledged at once was written to disk")
		}
	})
}

// A worker rejects tasks that its owner does not allow, even if the server assigns them.
func TestRejectsTasksThatTheOwnerDisallows(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		if err := e.end(); err != nil {
			t.Fatal(err)
		}
		e.cfg.Allow = &muster.Allow{Images: []string{"ghcr.io/acme/*"}, Env: []string{"SEED"}}
		e.start()
		if d := cmp.Diff(e.cfg.Allow, e.server.hello(1).Allow); d != "" {
			t.Errorf("the hello offers: %s", d)
		}
		e.assign(0, func(s *muster.TaskSpec) { s.Env = map[string]string{"SEED": "1", "LD_PRELOAD": "/x.so"} })
		e.assign(1, func(s *muster.TaskSpec) { s.Image = "ghcr.io/evil/miner" }) // not normalized
		e.assign(2, func(s *muster.TaskSpec) { s.Kind, s.Image = "container", "ghcr.io/evil/miner" })
		e.assign(3, func(s *muster.TaskSpec) {
			s.Image, s.Isolation = "ghcr.io/acme/train", muster.IsolationContainer
			s.Container = &muster.Container{Mounts: []muster.Mount{{Source: "/etc", Target: "/x"}}}
		})
		e.assign(4, func(s *muster.TaskSpec) { s.Image, s.Isolation = "ghcr.io/acme/train", muster.IsolationContainer })
		var why []string
		h := e.server.received()
		for _, r := range h.Rejected {
			why = append(why, r.Message)
		}
		want := []string{
			"its owner does not allow tasks to set the variable LD_PRELOAD",
			"its owner does not allow the image ghcr.io/evil/miner",
			"its owner does not allow the image ghcr.io/evil/miner",
			"its owner does not allow containers to read and change /etc",
			"this worker does not run containers",
		}
		if d := cmp.Diff(want, why); d != "" {
			t.Error(d)
		}
		if len(h.Accepted) != 0 || len(e.executor.started) != 0 {
			t.Errorf("accepted %v, began %d", h.Accepted, len(e.executor.started))
		}
		e.run(5, func(s *muster.TaskSpec) { s.Env = map[string]string{"SEED": "1"} }).finish()
	})
}

// A recovered attempt continues although its kind is no longer accepted.
func TestDisabledKinds(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		e.run(0)
		e.crash()
		e.server.forgetFrames()
		e.cfg.Kinds = []string{muster.KindNoop, "test"}
		e.start()
		hello := e.server.hello(1)
		if !slices.Equal(hello.Kinds, []string{muster.KindNoop}) || !slices.Equal(hello.Held, []muster.AttemptID{attemptID(0)}) {
			t.Errorf("the hello offers %v and lists %v", hello.Kinds, hello.Held)
		}
		e.assign(1)
		if h := e.server.received(); len(h.Rejected) != 1 || h.Rejected[0].Message != "this worker does not run tasks of kind process" {
			t.Errorf("rejected %+v", h.Rejected)
		}
		e.adopted()[0].finish()
		time.Sleep(time.Second)
		if h := e.server.received(); len(h.Finished) != 1 {
			t.Errorf("got %+v", h)
		}
	})
}

func TestRejects(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		for i := range 4 {
			e.run(i)
		}
		e.assign(4)
		e.agent.cfg.Lacks = []string{muster.FeatureCancel, muster.FeatureFiles, muster.FeatureEnv}
		e.assign(7, func(s *muster.TaskSpec) { s.Outputs, s.Env = []string{"*"}, map[string]string{"A": ""} })
		e.assign(5, func(s *muster.TaskSpec) { s.Kind = "container" })
		e.server.send(&link.ToWorker{Assign: []link.Assign{{Attempt: attemptID(6), Ref: 99}}})
		h := e.server.received()
		var why []string
		for _, r := range h.Rejected {
			why = append(why, r.Message)
		}
		want := []string{
			"no free slot: 4 of 4 are in use", "this worker does not support env", "this worker does not run tasks of kind container", "the assignment refers to a stage spec that this session never received",
		}
		if !slices.Equal(why, want) {
			t.Errorf("rejected with %q, want %q", why, want)
		}
		time.Sleep(startDelay)
		e.assign(0) // again
		time.Sleep(startDelay)
		if h := e.server.received(); len(h.Accepted) != 5 || len(e.executor.started) != 0 {
			t.Errorf("a repeated assignment: accepted %v, started %d more", h.Accepted, len(e.executor.started))
		}
	})
}

func TestStops(t *testing.T) {
	for _, tc := range []struct {
		name   string
		spec   func(*muster.TaskSpec)
		stop   func(e *env, s *fakeTask)
		want   muster.Outcome
		reason muster.Reason
	}{
		{"cancelled", nil, func(e *env, s *fakeTask) {
			e.server.send(&link.ToWorker{Cancel: []link.Cancel{{Attempt: s.id, Reason: muster.CancelledByUser}}})
		}, muster.AttemptCancelled, muster.CancelledByUser},
		{"dropped", nil, func(e *env, s *fakeTask) {
			e.server.send(&link.ToWorker{Cancel: []link.Cancel{{Attempt: s.id, Drop: true}}})
		}, muster.AttemptOpen, ""},
		{"preempted by the server", nil, func(e *env, s *fakeTask) {
			e.server.send(&link.ToWorker{Cancel: []link.Cancel{{Attempt: s.id, Reason: muster.Preempted}}})
		}, muster.AttemptFailed, muster.Preempted},
		{"preempted by the worker", nil, func(e *env, s *fakeTask) { e.agent.Preempt(s.id, "the owner is back") }, muster.AttemptFailed, muster.Preempted},
		{"a bug", nil, func(_ *env, s *fakeTask) { s.done <- muster.Report{} }, muster.AttemptFailed, muster.WorkerInternal},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inEnv(t, func(e *env) {
				t := e.t
				change := tc.spec
				if change == nil {
					change = func(*muster.TaskSpec) {}
				}
				s := e.run(0, change)
				tc.stop(e, s)
				time.Sleep(5 * time.Second)
				h := e.server.received()
				if tc.want == muster.AttemptOpen {
					if len(h.Finished) != 0 {
						t.Errorf("reported %+v, want nothing", h.Finished)
					}
				} else if len(h.Finished) != 1 || h.Finished[0].Outcome != tc.want || h.Finished[0].Reason != tc.reason {
					t.Errorf("reported %+v", h.Finished)
				}
				if n, held := e.agent.table.count(); n+held != 0 {
					t.Errorf("%d run and %d are held afterwards", n, held)
				}
			})
		})
	}
}

func TestProgressIsThrottledAndTheLastArrives(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		s := e.run(0)
		var p float64
		for i := range 1000 {
			p = float64(i) / 1000
			step := strings.Repeat("x", i%7)
			s.reporter.Progress(muster.Progress{Progress: new(p), Step: &step, Metrics: map[string]float64{"loss": p}})
			time.Sleep(time.Millisecond)
		}
		h := e.server.received()
		if n := len(h.Progress); n < 2 || n > 3 {
			t.Errorf("%d progress messages in a second, want at most 2 after the first", n)
		}
		time.Sleep(time.Second)
		if h = e.server.received(); *h.Progress[len(h.Progress)-1].Progress != p {
			t.Error("the latest progress did not arrive")
		}
		s.reporter.Progress(muster.Progress{Progress: new(1.0)})
		s.reporter.Progress(muster.Progress{Metrics: map[string]float64{"acc": 1}})
		s.finish()
		h = e.server.received()
		last := h.Progress[len(h.Progress)-1]
		if len(h.Finished) != 1 || *last.Progress != 1 || last.Metrics["acc"] != 1 {
			t.Errorf("the last progress before the end is %+v", last)
		}
	})
}

func TestReconnectResumes(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		running, ending := e.run(0), e.run(1)
		running.reporter.Started(1)
		e.print(running, 0, []byte("one "))
		time.Sleep(time.Second)
		e.server.setDown(true)
		e.print(running, 4, []byte("two"))
		ending.finish()
		time.Sleep(time.Second)
		if e.savedReports() != 1 {
			t.Error("a report that was created without a connection is not on disk")
		}
		e.server.forgetFrames()
		e.server.setDown(false)
		time.Sleep(time.Minute)
		if held := e.server.held(1); !slices.Equal(held, []muster.AttemptID{running.id, ending.id}) {
			t.Errorf("the second hello lists %v", held)
		}
		h := e.server.received()
		if len(h.Finished) != 1 || h.Finished[0].Attempt != ending.id || len(h.Started) != 1 {
			t.Errorf("got %+v", h)
		}
		if got := e.server.log(running.id); got != "one two" {
			t.Errorf("log %q", got)
		}
		if e.savedReports() != 0 {
			t.Error("the report is still on disk after its acknowledgement")
		}
		if !slices.Equal(h.Renew.Held, []muster.AttemptID{running.id}) {
			t.Errorf("renewed %v", h.Renew.Held)
		}
	})
}

func TestReportSurvivesACrash(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		e.server.set(func(d *fakeServer) { d.holdAcks, d.holdLogAcks = true, true })
		s := e.run(0)
		e.print(s, 0, []byte("last words"))
		s.finish()
		time.Sleep(time.Second)
		e.crash()
		e.server.set(func(d *fakeServer) {
			d.holdAcks, d.holdLogAcks = false, false
			d.logs = map[muster.AttemptID][]byte{}
			d.frames = nil
		})
		e.start()
		time.Sleep(time.Minute)
		h := e.server.received()
		if len(h.Finished) != 1 || h.Finished[0].Attempt != s.id || h.Finished[0].LogSize != 10 {
			t.Fatalf("the second worker process reported %+v", h.Finished)
		}
		if e.server.log(s.id) != "last words" {
			t.Errorf("log %q", e.server.log(s.id))
		}
		if size, _ := e.logs.Size(t.Context(), s.id); e.savedReports() != 0 || size != 0 {
			t.Errorf("%d reports and %d log bytes remain", e.savedReports(), size)
		}
	})
}

func TestWelcomeStopsAttempts(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		e.server.set(func(d *fakeServer) { d.holdAcks, d.holdLogAcks = true, true })
		running, ended := e.run(0), e.run(1)
		e.print(ended, 0, []byte("tail"))
		ended.finish()
		time.Sleep(time.Second)
		e.server.setDown(true)
		e.server.set(func(d *fakeServer) {
			d.holdAcks, d.holdLogAcks, d.frames = false, false, nil
			d.logs = map[muster.AttemptID][]byte{}
			d.stop = []muster.AttemptID{running.id, ended.id}
		})
		e.server.setDown(false)
		time.Sleep(time.Minute)
		if why := run.StopCause(running.ctx); why != errAttemptDropped {
			t.Errorf("the stopped attempt ended with %v", why)
		}
		if h := e.server.received(); len(h.Finished) != 0 {
			t.Errorf("reported %+v of stopped attempts", h.Finished)
		}
		if got := e.server.log(ended.id); got != "tail" {
			t.Errorf("the log of the attempt that had ended is %q", got)
		}
		if n, held := e.agent.table.count(); n+held+e.savedReports() != 0 {
			t.Errorf("%d run, %d held, %d on disk", n, held, e.savedReports())
		}
	})
}

func TestShutdownWaitsThenReturnsTasks(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		quick, slow := e.run(0), e.run(1)
		begun := time.Now()
		e.stop()
		synctest.Wait()
		e.assign(2)
		time.Sleep(10 * time.Second)
		quick.finish()
		if err := <-e.ended; err != nil {
			t.Fatal(err)
		}
		e.ended <- nil
		if took := time.Since(begun); took < 30*time.Second || took > 35*time.Second {
			t.Errorf("the shutdown took %s, want its grace of 30s", took)
		}
		h := e.server.received()
		if h.Ready == nil || h.Ready.Constrained == "" || len(h.Rejected) != 1 || h.Goodbye == nil || !e.server.closedCleanly() {
			t.Errorf("sent ready %+v, rejected %v, goodbye %v", h.Ready, h.Rejected, h.Goodbye)
		}
		if len(h.Finished) != 2 || h.Finished[0].Attempt != quick.id || h.Finished[1].Attempt != slow.id ||
			h.Finished[1].Outcome != muster.AttemptLost || h.Finished[1].Reason != muster.WorkerShutdown {
			t.Errorf("reported %+v", h.Finished)
		}
	})
}

func TestForceShutdown(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		e.run(0)
		begun := time.Now()
		if err := e.end(); err != nil {
			t.Fatal(err)
		}
		e.ended <- nil
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
		if h := e.server.received(); len(h.Finished) != 1 || h.Goodbye == nil {
			t.Errorf("got %+v", h)
		}
		if n := e.supervisor.count(); n != 0 {
			t.Errorf("the shim still has %d attempts of a worker that sent goodbye", n)
		}
	})
}

func TestShutdownWithoutServer(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		s := e.run(0)
		e.server.setDown(true)
		e.stop()
		time.Sleep(time.Second)
		s.finish()
		if err := <-e.ended; err != nil {
			t.Fatal(err)
		}
		e.ended <- nil
		if e.savedReports() != 1 {
			t.Error("the report of the last task is lost")
		}
	})
}

func TestDrainedWorkerStops(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		e.server.send(&link.ToWorker{Drain: true})
		if err := <-e.ended; err != nil {
			t.Fatal(err)
		}
		e.ended <- nil
		if h := e.server.received(); h.Goodbye == nil {
			t.Error("it stopped without a goodbye")
		}
	})
}

func TestRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		err  *muster.Error
		want string
	}{
		"unknown key":      {muster.Errorf(muster.Unauthenticated, "no such key"), "restart the worker with --token"},
		"removed":          {muster.Errorf(muster.Forbidden, "the key was revoked"), "delete "},
		"another process":  {muster.Errorf(muster.Conflict, "another session took over"), "copies of one data dir"},
		"another version":  {muster.Errorf(muster.Invalid, "link version 2"), "link version 2"},
		"no muster server": {muster.Errorf(muster.NotFound, "the server answered 404"), "404"},
		"foreign address":  {muster.Errorf(muster.Forbidden, "may not name 203.0.113.1"), "refuses this worker (may not name 203.0.113.1)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEnv(t)
				e.server.refuse = tc.err
				e.start()
				err := <-e.ended
				if muster.CodeOf(err) != tc.err.Code || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("ended with %v, want %s about %q", err, tc.err.Code, tc.want)
				}
			})
		})
	}
}

func TestKnownWorkerToleratesUnexpectedResponses(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		s := e.run(0)
		e.server.set(func(d *fakeServer) { d.refuse = muster.Errorf(muster.NotFound, "the server answered 404") })
		e.server.setDown(true)
		time.Sleep(2 * time.Minute)
		e.server.set(func(d *fakeServer) { d.refuse = nil })
		e.server.setDown(false)
		time.Sleep(time.Minute)
		s.finish()
		if h := e.server.received(); len(h.Finished) != 1 {
			t.Errorf("reported %+v", h.Finished)
		}
	})
}

func TestPanicFailsTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t)
		e.cfg.Executors = []run.Executor{bomb{}}
		e.start()
		e.assign(0)
		h := e.server.received()
		if len(h.Finished) != 1 || h.Finished[0].Reason != muster.WorkerInternal || !strings.Contains(h.Finished[0].Message, "boom") {
			t.Errorf("reported %+v", h.Finished)
		}
		if err := e.end(); err != nil {
			t.Error(err)
		}
		e.server.serving.Wait()
	})
}

type bomb struct{}

func (bomb) Kind() string { return "process" }

func (bomb) Run(context.Context, *run.Task, run.Reporter) muster.Report { panic(errors.New("boom")) }

// A report or a progress that the link would refuse must not end every session: the attempt fails, and the worker continues.
func TestInvalidReportsAreNotSent(t *testing.T) {
	long := make([]muster.Artifact, 30_000)
	for i := range long {
		long[i] = muster.Artifact{Name: strings.Repeat("x", 200) + strconv.Itoa(i), SHA256: strings.Repeat("0", 64)}
	}
	for name, tc := range map[string]struct {
		report muster.Report
		reason muster.Reason
	}{
		"no JSON":            {muster.Report{Outcome: muster.AttemptSucceeded, Result: []byte("{")}, muster.WorkerInternal},
		"unknown outcome":    {muster.Report{Outcome: "fine"}, muster.WorkerInternal},
		"no hash":            {muster.Report{Outcome: muster.AttemptSucceeded, Artifacts: []muster.Artifact{{Name: "a"}}}, muster.WorkerInternal},
		"too many artifacts": {muster.Report{Outcome: muster.AttemptSucceeded, Artifacts: long}, muster.ResultInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			inEnv(t, func(e *env) {
				s := e.run(0)
				s.reporter.Progress(muster.Progress{Progress: new(7.0)})
				s.done <- tc.report
				time.Sleep(time.Second)
				if h := e.server.received(); len(h.Finished) != 1 || h.Finished[0].Reason != tc.reason || len(h.Progress) != 0 {
					e.t.Errorf("reported %+v", h.Finished)
				}
			})
		})
	}
}

// Large reports are distributed over frames that the link accepts.
func TestLargeReportsFitIntoFrames(t *testing.T) {
	inEnv(t, func(e *env) {
		result := []byte(`"` + strings.Repeat("<", muster.MaxResultSize-2) + `"`)
		e.server.setDown(true)
		e.agent.table.mu.Lock()
		for i := range 200 {
			r := &muster.Report{Attempt: attemptID(i), Outcome: muster.AttemptSucceeded, Result: result, FinishedAt: 1}
			at := &attempt{id: r.Attempt, table: e.agent.table, report: r}
			at.complete(r)
			e.agent.table.held[at.id] = at
		}
		e.agent.table.mu.Unlock()
		e.server.setDown(false)
		time.Sleep(time.Minute)
		if _, held := e.agent.table.count(); held != 0 || e.server.sessions() != 2 {
			e.t.Errorf("%d reports are left after %d sessions", held, e.server.sessions())
		}
	})
}

// TestAssignmentReachesTheExecutor checks that an executor gets all that the server sends with an assignment.
func TestAssignmentReachesTheExecutor(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		as := link.Assign{
			Attempt: attemptID(0), Ref: 1, Grant: muster.Grant{Slots: 1, CPUs: 2}, Element: "3",
			Inputs:     []muster.InputFile{{Path: "make/big.txt", SHA256: strings.Repeat("a", 64), Size: 5}},
			Checkpoint: strings.Repeat("b", 64), Gang: &muster.Membership{Size: 2, Rank: 1, Master: "10.0.0.1", Port: 4000},
		}
		e.server.send(&link.ToWorker{Specs: []link.GroupSpec{{Ref: 1, UID: "j1", Name: "g", Spec: muster.TaskSpec{Kind: "process"}}}, Assign: []link.Assign{as}})
		synctest.Wait()
		task := (<-e.executor.started).task
		got := link.Assign{Attempt: task.Attempt, Ref: 1, Grant: task.Grant, Element: task.Element, Inputs: task.Inputs, Checkpoint: task.Checkpoint, Gang: task.Gang}
		if diff := cmp.Diff(as, got); diff != "" {
			t.Errorf("the executor got another assignment (-sent +got):\n%s", diff)
		}
	})
}
