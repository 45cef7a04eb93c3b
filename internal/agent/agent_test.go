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

// inWorld runs a test in a bubble with a connected worker, and ends it.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		test(w)
		select {
		case err := <-w.ended:
			w.ended <- err
		default:
			if err := w.end(); err != nil {
				t.Errorf("the worker ended with %v", err)
			}
		}
		w.desk.away(true)
		w.desk.serving.Wait()
	})
}

func TestTaskLife(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		w.desk.set(func(d *desk) { d.quiet = true })
		s := w.run(0)
		s.sink.Started(5000)
		w.print(s, 0, []byte("hello\n"))
		half := 0.5
		s.sink.Progress(muster.Progress{Progress: &half})
		time.Sleep(time.Second)
		s.finish()
		time.Sleep(time.Second)
		h := w.desk.heard()
		if len(h.Accepted) != 1 || len(h.Started) != 1 || len(h.Progress) != 1 || len(h.Finished) != 1 {
			t.Fatalf("said %+v", h)
		}
		if r := h.Finished[0]; r.Attempt != s.id || r.Outcome != muster.AttemptSucceeded || r.LogSize != 6 || r.StartedAt != 5000 {
			t.Errorf("reported %+v", r)
		}
		if w.desk.log(s.id) != "hello\n" {
			t.Errorf("log %q", w.desk.log(s.id))
		}
		if _, held := w.agent.roster.count(); held != 1 || w.kept() != 1 {
			t.Errorf("a report without acknowledgement: %d held, %d on disk", held, w.kept())
		}
		if size, _ := w.logs.Size(t.Context(), s.id); size != 6 {
			t.Errorf("the local log has %d bytes before the acknowledgement", size)
		}
		w.desk.say(&link.ToWorker{FinishedAck: []muster.AttemptID{s.id}})
		time.Sleep(time.Second)
		if _, held := w.agent.roster.count(); held != 0 || w.kept() != 0 {
			t.Errorf("after the acknowledgement: %d held, %d on disk", held, w.kept())
		}
		if size, _ := w.logs.Size(t.Context(), s.id); size != 0 {
			t.Errorf("the local log still has %d bytes", size)
		}
	})
}

func TestInstantTasksAreOneFrame(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		f := &link.ToWorker{Specs: []link.GroupSpec{{Ref: 1, UID: "j1", Name: "g", Spec: muster.TaskSpec{Kind: muster.KindNoop}}}}
		for i := range 100 {
			f.Assign = append(f.Assign, link.Assign{Attempt: attemptID(i), Ref: 1, Grant: muster.Grant{Slots: 1}})
		}
		synctest.Wait()
		w.desk.forgetFrames()
		w.desk.say(f)
		h := w.desk.heard()
		if len(h.Finished) != 100 || len(h.Accepted)+len(h.Started)+len(h.Rejected) != 0 {
			t.Fatalf("%d finished, %d accepted, %d started, %d rejected", len(h.Finished), len(h.Accepted), len(h.Started), len(h.Rejected))
		}
		if len(w.desk.frames) != 1 {
			t.Errorf("%d frames for what came in one", len(w.desk.frames))
		}
		time.Sleep(time.Second)
		if _, held := w.agent.roster.count(); held != 0 || w.kept() != 0 {
			t.Errorf("%d held and %d on disk after the acknowledgement", held, w.kept())
		}
	})
}

func TestAcknowledgedReportsNeverTouchTheDisk(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		before := w.keep.db.Stats()
		w.run(0).finish()
		time.Sleep(time.Second)
		if h := w.desk.heard(); len(h.Finished) != 1 {
			t.Fatalf("said %+v", h)
		}
		if diff := w.keep.db.Stats(); diff.TxStats.GetWrite() != before.TxStats.GetWrite() {
			t.Error("the keep was written for a report that was acknowledged at once")
		}
	})
}

// A server that does not heed what the worker's owner allows gets nothing started.
func TestRefusesWhatTheOwnerDoesNotAllow(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		if err := w.end(); err != nil {
			t.Fatal(err)
		}
		w.cfg.Allow = &muster.Allow{Images: []string{"ghcr.io/acme/*"}, Env: []string{"SEED"}}
		w.start()
		if d := cmp.Diff(w.cfg.Allow, w.desk.hello(1).Allow); d != "" {
			t.Errorf("the server is told: %s", d)
		}
		w.assign(0, func(s *muster.TaskSpec) { s.Env = map[string]string{"SEED": "1", "LD_PRELOAD": "/x.so"} })
		w.assign(1, func(s *muster.TaskSpec) { s.Image = "ghcr.io/evil/miner" }) // not normalized
		w.assign(2, func(s *muster.TaskSpec) { s.Kind, s.Image = "container", "ghcr.io/evil/miner" })
		w.assign(3, func(s *muster.TaskSpec) {
			s.Image, s.Isolation = "ghcr.io/acme/train", muster.IsolationContainer
			s.Container = &muster.Container{Mounts: []muster.Mount{{Source: "/etc", Target: "/x"}}}
		})
		w.assign(4, func(s *muster.TaskSpec) { s.Image, s.Isolation = "ghcr.io/acme/train", muster.IsolationContainer })
		var why []string
		h := w.desk.heard()
		for _, r := range h.Rejected {
			why = append(why, r.Message)
		}
		want := []string{
			"its owner does not allow tasks to set the variable LD_PRELOAD",
			"its owner does not allow the image ghcr.io/evil/miner",
			"its owner does not allow the image ghcr.io/evil/miner",
			"its owner does not allow containers to read and change /etc",
			"this worker runs no containers",
		}
		if d := cmp.Diff(want, why); d != "" {
			t.Error(d)
		}
		if len(h.Accepted) != 0 || len(w.puppet.began) != 0 {
			t.Errorf("accepted %v, began %d", h.Accepted, len(w.puppet.began))
		}
		w.run(5, func(s *muster.TaskSpec) { s.Env = map[string]string{"SEED": "1"} }).finish()
	})
}

// What an earlier life took goes on, though its kind is taken no more.
func TestKindsThatTheOwnerDoesNotTakeAnyMore(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		w.run(0)
		w.crash()
		w.desk.forgetFrames()
		w.cfg.Kinds = []string{muster.KindNoop, "test"}
		w.start()
		hello := w.desk.hello(1)
		if !slices.Equal(hello.Kinds, []string{muster.KindNoop}) || !slices.Equal(hello.Held, []muster.AttemptID{attemptID(0)}) {
			t.Errorf("the hello offers %v and holds %v", hello.Kinds, hello.Held)
		}
		w.assign(1)
		if h := w.desk.heard(); len(h.Rejected) != 1 || h.Rejected[0].Message != "this worker does not run tasks of kind process" {
			t.Errorf("rejected %+v", h.Rejected)
		}
		w.adopted()[0].finish()
		time.Sleep(time.Second)
		if h := w.desk.heard(); len(h.Finished) != 1 {
			t.Errorf("said %+v", h)
		}
	})
}

func TestRejects(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		for i := range 4 {
			w.run(i)
		}
		w.assign(4)
		w.agent.cfg.Lacks = []string{muster.FeatureCancel, muster.FeatureFiles, muster.FeatureEnv}
		w.assign(7, func(s *muster.TaskSpec) { s.Outputs, s.Env = []string{"*"}, map[string]string{"A": ""} })
		w.assign(5, func(s *muster.TaskSpec) { s.Kind = "container" })
		w.desk.say(&link.ToWorker{Assign: []link.Assign{{Attempt: attemptID(6), Ref: 99}}})
		h := w.desk.heard()
		var why []string
		for _, r := range h.Rejected {
			why = append(why, r.Message)
		}
		want := []string{
			"no free slot: 4 of 4 are taken", "this worker cannot carry env", "this worker does not run tasks of kind container", "the server did not say what the task is",
		}
		if !slices.Equal(why, want) {
			t.Errorf("rejected with %q, want %q", why, want)
		}
		time.Sleep(startHold)
		w.assign(0) // again
		time.Sleep(startHold)
		if h := w.desk.heard(); len(h.Accepted) != 5 || len(w.puppet.began) != 0 {
			t.Errorf("an assignment that came twice: accepted %v, started %d more", h.Accepted, len(w.puppet.began))
		}
	})
}

func TestStops(t *testing.T) {
	for _, tc := range []struct {
		name   string
		spec   func(*muster.TaskSpec)
		stop   func(w *world, s *show)
		want   muster.Outcome
		reason muster.Reason
	}{
		{"cancelled", nil, func(w *world, s *show) {
			w.desk.say(&link.ToWorker{Cancel: []link.Cancel{{Attempt: s.id, Reason: muster.CancelledByUser}}})
		}, muster.AttemptCancelled, muster.CancelledByUser},
		{"dropped", nil, func(w *world, s *show) {
			w.desk.say(&link.ToWorker{Cancel: []link.Cancel{{Attempt: s.id, Drop: true}}})
		}, muster.AttemptOpen, ""},
		{"preempted by the server", nil, func(w *world, s *show) {
			w.desk.say(&link.ToWorker{Cancel: []link.Cancel{{Attempt: s.id, Reason: muster.Preempted}}})
		}, muster.AttemptFailed, muster.Preempted},
		{"preempted by the worker", nil, func(w *world, s *show) { w.agent.Preempt(s.id, "the owner is back") }, muster.AttemptFailed, muster.Preempted},
		{"a bug", nil, func(_ *world, s *show) { s.done <- muster.Report{} }, muster.AttemptFailed, muster.WorkerInternal},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				t := w.t
				change := tc.spec
				if change == nil {
					change = func(*muster.TaskSpec) {}
				}
				s := w.run(0, change)
				tc.stop(w, s)
				time.Sleep(5 * time.Second)
				h := w.desk.heard()
				if tc.want == muster.AttemptOpen {
					if len(h.Finished) != 0 {
						t.Errorf("reported %+v, want nothing", h.Finished)
					}
				} else if len(h.Finished) != 1 || h.Finished[0].Outcome != tc.want || h.Finished[0].Reason != tc.reason {
					t.Errorf("reported %+v", h.Finished)
				}
				if n, held := w.agent.roster.count(); n+held != 0 {
					t.Errorf("%d run and %d are held afterwards", n, held)
				}
			})
		})
	}
}

func TestProgressIsSlowedDownAndTheLastOneArrives(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		s := w.run(0)
		var p float64
		for i := range 1000 {
			p = float64(i) / 1000
			step := strings.Repeat("x", i%7)
			s.sink.Progress(muster.Progress{Progress: new(p), Step: &step, Metrics: map[string]float64{"loss": p}})
			time.Sleep(time.Millisecond)
		}
		h := w.desk.heard()
		if n := len(h.Progress); n < 2 || n > 3 {
			t.Errorf("%d progress messages in a second, want at most 2 after the first", n)
		}
		time.Sleep(time.Second)
		if h = w.desk.heard(); *h.Progress[len(h.Progress)-1].Progress != p {
			t.Error("the latest progress did not arrive")
		}
		s.sink.Progress(muster.Progress{Progress: new(1.0)})
		s.sink.Progress(muster.Progress{Metrics: map[string]float64{"acc": 1}})
		s.finish()
		h = w.desk.heard()
		last := h.Progress[len(h.Progress)-1]
		if len(h.Finished) != 1 || *last.Progress != 1 || last.Metrics["acc"] != 1 {
			t.Errorf("the last progress before the end is %+v", last)
		}
	})
}

func TestReconnectGoesOn(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		running, ending := w.run(0), w.run(1)
		running.sink.Started(1)
		w.print(running, 0, []byte("one "))
		time.Sleep(time.Second)
		w.desk.away(true)
		w.print(running, 4, []byte("two"))
		ending.finish()
		time.Sleep(time.Second)
		if w.kept() != 1 {
			t.Error("a report that came up without a connection is not on disk")
		}
		w.desk.forgetFrames()
		w.desk.away(false)
		time.Sleep(time.Minute)
		if held := w.desk.held(1); !slices.Equal(held, []muster.AttemptID{running.id, ending.id}) {
			t.Errorf("the second hello holds %v", held)
		}
		h := w.desk.heard()
		if len(h.Finished) != 1 || h.Finished[0].Attempt != ending.id || len(h.Started) != 1 {
			t.Errorf("said %+v", h)
		}
		if got := w.desk.log(running.id); got != "one two" {
			t.Errorf("log %q", got)
		}
		if w.kept() != 0 {
			t.Error("the report is still on disk after its acknowledgement")
		}
		if !slices.Equal(h.Renew.Held, []muster.AttemptID{running.id}) {
			t.Errorf("renewed %v", h.Renew.Held)
		}
	})
}

func TestReportOutlivesACrash(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		w.desk.set(func(d *desk) { d.quiet, d.deaf = true, true })
		s := w.run(0)
		w.print(s, 0, []byte("last words"))
		s.finish()
		time.Sleep(time.Second)
		w.crash()
		w.desk.set(func(d *desk) { d.quiet, d.deaf = false, false; d.logs = map[muster.AttemptID][]byte{}; d.frames = nil })
		w.start()
		time.Sleep(time.Minute)
		h := w.desk.heard()
		if len(h.Finished) != 1 || h.Finished[0].Attempt != s.id || h.Finished[0].LogSize != 10 {
			t.Fatalf("the second life reported %+v", h.Finished)
		}
		if w.desk.log(s.id) != "last words" {
			t.Errorf("log %q", w.desk.log(s.id))
		}
		if size, _ := w.logs.Size(t.Context(), s.id); w.kept() != 0 || size != 0 {
			t.Errorf("%d reports and %d log bytes are left", w.kept(), size)
		}
	})
}

func TestWelcomeStops(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		w.desk.set(func(d *desk) { d.quiet, d.deaf = true, true })
		running, ended := w.run(0), w.run(1)
		w.print(ended, 0, []byte("tail"))
		ended.finish()
		time.Sleep(time.Second)
		w.desk.away(true)
		w.desk.set(func(d *desk) {
			d.quiet, d.deaf, d.frames = false, false, nil
			d.logs = map[muster.AttemptID][]byte{}
			d.stop = []muster.AttemptID{running.id, ended.id}
		})
		w.desk.away(false)
		time.Sleep(time.Minute)
		if why := run.StoppedBy(running.ctx); why != errDropped {
			t.Errorf("the stopped attempt ended by %v", why)
		}
		if h := w.desk.heard(); len(h.Finished) != 0 {
			t.Errorf("reported %+v of stopped attempts", h.Finished)
		}
		if got := w.desk.log(ended.id); got != "tail" {
			t.Errorf("the log of the attempt that had ended is %q", got)
		}
		if n, held := w.agent.roster.count(); n+held+w.kept() != 0 {
			t.Errorf("%d run, %d held, %d on disk", n, held, w.kept())
		}
	})
}

func TestShutdownWaitsThenHandsBack(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		quick, slow := w.run(0), w.run(1)
		begun := time.Now()
		w.stop()
		synctest.Wait()
		w.assign(2)
		time.Sleep(10 * time.Second)
		quick.finish()
		if err := <-w.ended; err != nil {
			t.Fatal(err)
		}
		w.ended <- nil
		if took := time.Since(begun); took < 30*time.Second || took > 35*time.Second {
			t.Errorf("the shutdown took %s, want its grace of 30s", took)
		}
		h := w.desk.heard()
		if h.Ready == nil || h.Ready.Constrained == "" || len(h.Rejected) != 1 || h.Goodbye == nil || !w.desk.leftInOrder() {
			t.Errorf("said ready %+v, rejected %v, goodbye %v", h.Ready, h.Rejected, h.Goodbye)
		}
		if len(h.Finished) != 2 || h.Finished[0].Attempt != quick.id || h.Finished[1].Attempt != slow.id ||
			h.Finished[1].Outcome != muster.AttemptLost || h.Finished[1].Reason != muster.WorkerShutdown {
			t.Errorf("reported %+v", h.Finished)
		}
	})
}

func TestHurry(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		w.run(0)
		begun := time.Now()
		if err := w.end(); err != nil {
			t.Fatal(err)
		}
		w.ended <- nil
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
		if h := w.desk.heard(); len(h.Finished) != 1 || h.Goodbye == nil {
			t.Errorf("said %+v", h)
		}
		if n := w.shelf.holds(); n != 0 {
			t.Errorf("the supervisor still holds %d attempts of a worker that has left", n)
		}
	})
}

func TestShutdownWithoutServer(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		s := w.run(0)
		w.desk.away(true)
		w.stop()
		time.Sleep(time.Second)
		s.finish()
		if err := <-w.ended; err != nil {
			t.Fatal(err)
		}
		w.ended <- nil
		if w.kept() != 1 {
			t.Error("the report of the last task is lost")
		}
	})
}

func TestDrainedWorkerLeaves(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		w.desk.say(&link.ToWorker{Drain: true})
		if err := <-w.ended; err != nil {
			t.Fatal(err)
		}
		w.ended <- nil
		if h := w.desk.heard(); h.Goodbye == nil {
			t.Error("it left without a goodbye")
		}
	})
}

func TestRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		err  *muster.Error
		want string
	}{
		"unknown key":      {muster.Errorf(muster.Unauthenticated, "no such key"), "start the worker again with --token"},
		"removed":          {muster.Errorf(muster.Forbidden, "the key was revoked"), "delete "},
		"another process":  {muster.Errorf(muster.Conflict, "another session took over"), "copies of one data dir"},
		"another version":  {muster.Errorf(muster.Invalid, "link version 2"), "link version 2"},
		"no muster server": {muster.Errorf(muster.NotFound, "the server answered 404"), "404"},
		"foreign address":  {muster.Errorf(muster.Forbidden, "may not name 203.0.113.1"), "refuses this worker (may not name 203.0.113.1)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.desk.refuse = tc.err
				w.start()
				err := <-w.ended
				if muster.CodeOf(err) != tc.err.Code || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("ended with %v, want %s about %q", err, tc.err.Code, tc.want)
				}
			})
		})
	}
}

func TestKnownWorkerOutlastsStrangeAnswers(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		s := w.run(0)
		w.desk.set(func(d *desk) { d.refuse = muster.Errorf(muster.NotFound, "the server answered 404") })
		w.desk.away(true)
		time.Sleep(2 * time.Minute)
		w.desk.set(func(d *desk) { d.refuse = nil })
		w.desk.away(false)
		time.Sleep(time.Minute)
		s.finish()
		if h := w.desk.heard(); len(h.Finished) != 1 {
			t.Errorf("reported %+v", h.Finished)
		}
	})
}

func TestPanicIsAReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cfg.Executors = []run.Executor{bomb{}}
		w.start()
		w.assign(0)
		h := w.desk.heard()
		if len(h.Finished) != 1 || h.Finished[0].Reason != muster.WorkerInternal || !strings.Contains(h.Finished[0].Message, "boom") {
			t.Errorf("reported %+v", h.Finished)
		}
		if err := w.end(); err != nil {
			t.Error(err)
		}
		w.desk.serving.Wait()
	})
}

type bomb struct{}

func (bomb) Kind() string { return "process" }

func (bomb) Run(context.Context, *run.Task, run.Sink) muster.Report { panic(errors.New("boom")) }

// A report or a progress that the link would refuse must not end the session,
// again and again: the attempt fails, and the worker goes on.
func TestWhatTheLinkRefusesIsNotSaid(t *testing.T) {
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
			inWorld(t, func(w *world) {
				s := w.run(0)
				s.sink.Progress(muster.Progress{Progress: new(7.0)})
				s.done <- tc.report
				time.Sleep(time.Second)
				if h := w.desk.heard(); len(h.Finished) != 1 || h.Finished[0].Reason != tc.reason || len(h.Progress) != 0 {
					w.t.Errorf("reported %+v", h.Finished)
				}
			})
		})
	}
}

// Big reports are spread over frames that the link carries.
func TestBigReportsFitIntoFrames(t *testing.T) {
	inWorld(t, func(w *world) {
		result := []byte(`"` + strings.Repeat("<", muster.MaxResultSize-2) + `"`)
		w.desk.away(true)
		w.agent.roster.mu.Lock()
		for i := range 200 {
			r := &muster.Report{Attempt: attemptID(i), Outcome: muster.AttemptSucceeded, Result: result, FinishedAt: 1}
			at := &attempt{id: r.Attempt, roster: w.agent.roster, report: r}
			at.complete(r)
			w.agent.roster.held[at.id] = at
		}
		w.agent.roster.mu.Unlock()
		w.desk.away(false)
		time.Sleep(time.Minute)
		if _, held := w.agent.roster.count(); held != 0 || w.desk.sessions() != 2 {
			w.t.Errorf("%d reports are left after %d sessions", held, w.desk.sessions())
		}
	})
}
