package sched_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

const second = muster.Duration(time.Second)

// twinEnv applies the same events to two schedulers, and checks after each that they decide the same, that their invariants hold, and that the
// committed rows result in the same state.
type twinEnv struct {
	t        *rapid.T
	now      muster.Time
	state    *sched.State
	twin     *sched.State
	store    *memStore
	sessions map[muster.WorkerID]bool
	assigned map[muster.WorkerID][]muster.AttemptID // attempts that were sent to workers
	results  map[muster.TaskID]int
}

func (w *twinEnv) apply(ev sched.Event) error {
	err := w.state.Apply(w.now, ev)
	twinErr := w.twin.Apply(w.now, ev)
	if fmt.Sprint(err) != fmt.Sprint(twinErr) {
		w.t.Fatalf("the same event returned %v and %v", err, twinErr)
	}
	if muster.CodeOf(err) == muster.Internal && err != nil {
		w.t.Fatalf("%T: %v", ev, err)
	}
	return err
}

// flush ends a batch.
func (w *twinEnv) flush() {
	w.state.Place(w.now)
	w.twin.Place(w.now)
	fx, twin := w.state.Flush(), w.twin.Flush()
	if !reflect.DeepEqual(fx, twin) {
		w.t.Fatalf("equal histories had unequal effects:\n%s", cmp.Diff(fx, twin))
	}
	if err := w.store.commit(fx.Rows); err != nil {
		w.t.Fatal(err)
	}
	for _, cmd := range fx.Commands {
		if !w.sessions[cmd.To()] {
			w.t.Fatalf("a command for %s, which has no session: %#v", cmd.To(), cmd)
		}
		if a, ok := cmd.(sched.Assign); ok {
			w.assigned[a.Worker] = append(w.assigned[a.Worker], a.Attempt)
		}
	}
	w.check()
}

func (w *twinEnv) check() {
	if err := w.state.Check(); err != nil {
		w.t.Fatal(err)
	}
	snap := w.store.snapshot()
	for i := range snap.Tasks {
		t := &snap.Tasks[i]
		x, err := w.state.Explain(w.now, t.ID)
		if (err == nil) == t.State.Final() || err == nil && (x.State != t.State || x.Summary == "") {
			w.t.Fatalf("task %s is %s, explained as %+v, %v", t.ID, t.State, x, err)
		}
		w.checkPlaced(x)
	}
	for _, g := range snap.Groups {
		active := g.Counts[muster.Assigned] + g.Counts[muster.Running] + g.Counts[muster.Cancelling]
		if a := w.store.jobs[g.Job].Spec.Tasks[g.Index].Array; a != nil && a.Limit > 0 && active > int64(a.Limit) {
			w.t.Fatalf("%d tasks of stage %s run at once: its limit is %d", active, g.Name, a.Limit)
		}
		if x, err := w.state.Explain(w.now, muster.TaskID{Job: g.Job, Num: g.First + g.Materialized}); err == nil && g.Materialized < g.Size {
			w.checkPlaced(x)
		}
	}
	rebuilt, err := sched.Rebuild(config, w.now, snap)
	if err != nil {
		w.t.Fatal(err)
	}
	if live, again := w.state.Snapshot(), rebuilt.Snapshot(); !reflect.DeepEqual(live, again) {
		w.t.Fatalf("rebuilt from the committed rows is not the live state (-live +rebuilt):\n%s", cmp.Diff(live, again))
	}
}

// checkPlaced checks that after a Place no task remains queued that a worker could run now.
func (w *twinEnv) checkPlaced(x muster.Explanation) {
	if x.State == muster.Queued && x.NotUntil == 0 && strings.HasPrefix(x.Summary, "can start now") {
		w.t.Fatalf("task %s was not placed, although it fits: %+v", x.Task, x)
	}
}

var config = sched.Config{CrashLimit: 2}

func drawSpec(t *rapid.T) *muster.Spec {
	priority := rapid.IntRange(0, 2).Draw(t, "priority")
	s := &muster.Spec{Name: "job", Project: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "project"), Priority: &priority}
	if rapid.IntRange(0, 2).Draw(t, "stops") == 0 {
		s.OnFailure, s.MaxFailures = muster.OnFailureStop, rapid.IntRange(0, 2).Draw(t, "max failures")
	}
	stages := rapid.IntRange(1, 4).Draw(t, "stages")
	for i := range stages {
		ts := muster.TaskSpec{Name: fmt.Sprintf("s%d", i), Kind: muster.KindNoop}
		if rapid.IntRange(0, 3).Draw(t, "gang") == 0 {
			ts.Gang = &muster.Gang{Size: rapid.IntRange(1, 5).Draw(t, "members"), OnLoss: rapid.SampledFrom([]string{"", muster.GangEnd}).Draw(t, "on loss")}
		} else if n := rapid.IntRange(1, 6).Draw(t, "size"); n > 1 {
			ts.Array = &muster.Array{Ranges: []muster.Range{{First: 0, Last: int64(n - 1), Step: 1}}, Limit: rapid.IntRange(0, 3).Draw(t, "limit")}
		}
		for k := range i {
			if rapid.IntRange(0, 2).Draw(t, "need") == 0 {
				ts.Needs = append(ts.Needs, s.Tasks[k].Name)
			}
		}
		if len(ts.Needs) > 0 {
			ts.When = rapid.SampledFrom([]string{"", "", muster.WhenFailed, muster.WhenAlways, "${" + ts.Needs[0] + ".0.exit_code} == 0"}).Draw(t, "when")
		}
		if len(ts.Needs) > 0 && rapid.Bool().Draw(t, "reads") {
			ts.Env = map[string]string{"CODE": "${" + ts.Needs[0] + ".0.exit_code}"}
			if n := s.Tasks[slices.IndexFunc(s.Tasks, func(x muster.TaskSpec) bool { return x.Name == ts.Needs[0] })]; !n.HasElements() {
				ts.Env["CODE"] = "${" + ts.Needs[0] + ".exit_code}"
			}
		}
		if rapid.Bool().Draw(t, "cpus") {
			ts.Resources.CPUs = 0.5 * float64(rapid.IntRange(1, 8).Draw(t, "half cpus"))
			ts.Resources.Memory = muster.Size(rapid.IntRange(0, 4).Draw(t, "GiB")) << 30
		}
		if rapid.IntRange(0, 3).Draw(t, "gpu") == 0 {
			ts.Resources.GPUs = muster.GPURequest{Count: rapid.IntRange(1, 2).Draw(t, "gpus"), Memory: 4 << 30, Share: rapid.Bool().Draw(t, "share")}
		}
		ts.Retries.Max = rapid.IntRange(0, 2).Draw(t, "retries")
		if rapid.IntRange(0, 3).Draw(t, "times out") == 0 {
			ts.QueueTimeout = 40 * second
		}
		if rapid.Bool().Draw(t, "short grace") {
			ts.Disconnect.Grace = 45 * second
		}
		s.Tasks = append(s.Tasks, ts)
	}
	return s
}

func (w *twinEnv) worker() muster.WorkerID {
	return muster.WorkerID(rapid.SampledFrom([]string{"w1", "w2", "w3"}).Draw(w.t, "worker"))
}

func (w *twinEnv) job() muster.JobID {
	return muster.JobID(rapid.Int64Range(1, max(int64(w.state.NextJob()-1), 1)).Draw(w.t, "job"))
}

func (w *twinEnv) spans() []muster.Span {
	if rapid.Bool().Draw(w.t, "all") {
		return nil
	}
	var list []muster.Span
	for range rapid.IntRange(1, 2).Draw(w.t, "spans") {
		first := rapid.IntRange(0, 12).Draw(w.t, "first")
		list = append(list, muster.Span{First: first, Last: first + rapid.IntRange(0, 3).Draw(w.t, "more")})
	}
	return list
}

// attempt draws an attempt that was sent to the worker, if there is one.
func (w *twinEnv) attempt(worker muster.WorkerID) (muster.AttemptID, bool) {
	if len(w.assigned[worker]) == 0 {
		return muster.AttemptID{}, false
	}
	return rapid.SampledFrom(w.assigned[worker]).Draw(w.t, "attempt"), true
}

func (w *twinEnv) held(worker muster.WorkerID) []muster.AttemptID {
	var held []muster.AttemptID
	for _, a := range w.assigned[worker] {
		if rapid.IntRange(0, 9).Draw(w.t, "forgotten") > 0 {
			held = append(held, a)
		}
	}
	return held
}

func (w *twinEnv) drop(worker muster.WorkerID, a muster.AttemptID) {
	w.assigned[worker] = slices.DeleteFunc(w.assigned[worker], func(b muster.AttemptID) bool { return a == b })
}

func (w *twinEnv) join(id muster.WorkerID) {
	held := w.held(id)
	row := muster.Worker{ID: id, Name: "name of " + string(id), Kinds: []string{muster.KindNoop}, Resources: muster.Resources{
		CPUs: float64(rapid.IntRange(2, 4).Draw(w.t, "cpus")), Memory: 8 << 30, Slots: 3,
		GPUs: []muster.GPU{{UUID: "g0-" + string(id), Vendor: "nvidia", Memory: 8 << 30}, {UUID: "g1-" + string(id), Index: 1, Vendor: "nvidia", Memory: 16 << 30}},
	}}
	if err := w.apply(sched.Joined{Worker: row, Held: held}); err != nil {
		w.t.Fatal(err)
	}
	w.sessions[id] = true
	keep, _ := w.state.Reconcile(id, held)
	w.assigned[id] = keep
}

func (w *twinEnv) finish(id muster.WorkerID, a muster.AttemptID) {
	r := muster.Report{Attempt: a, StartedAt: w.now - 5, FinishedAt: w.now}
	switch rapid.IntRange(0, 7).Draw(w.t, "outcome") {
	case 0:
		r.Outcome, r.Reason = muster.AttemptFailed, muster.ExitCode
	case 1:
		r.Outcome, r.Reason = muster.AttemptFailed, muster.DiskFull
	case 2:
		r.Outcome = muster.AttemptTimedOut
	case 3:
		r.Outcome = muster.AttemptCancelled
	default:
		r.Outcome = muster.AttemptSucceeded
	}
	code := rapid.IntRange(0, 1).Draw(w.t, "exit code")
	r.ExitCode = &code
	w.report(id, r)
}

func (w *twinEnv) succeed(id muster.WorkerID, a muster.AttemptID) {
	code := 0
	w.report(id, muster.Report{Attempt: a, Outcome: muster.AttemptSucceeded, ExitCode: &code, StartedAt: w.now - 5, FinishedAt: w.now})
}

func (w *twinEnv) report(id muster.WorkerID, r muster.Report) {
	a := r.Attempt
	late := len(w.store.late)
	err := w.apply(sched.Finished{Worker: id, Report: r})
	w.drop(id, a)
	w.flush()
	switch {
	case err != nil && len(w.store.late) != late+1:
		w.t.Fatalf("a late report of %s was not kept", a)
	case err == nil && w.store.tasks[a.Task].State == muster.Succeeded:
		if w.results[a.Task]++; w.results[a.Task] > 1 {
			w.t.Fatalf("task %s has two accepted results", a.Task)
		}
	}
}

func TestRandomHistories(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &twinEnv{
			t: t, now: 1_000_000, state: sched.New(config), twin: sched.New(config), store: newMemStore(),
			sessions: map[muster.WorkerID]bool{}, assigned: map[muster.WorkerID][]muster.AttemptID{}, results: map[muster.TaskID]int{},
		}
		t.Repeat(map[string]func(*rapid.T){
			"submit": func(t *rapid.T) {
				w.t = t
				if err := w.apply(sched.Submit{ID: w.state.NextJob(), Spec: drawSpec(t)}); err != nil {
					t.Fatal(err)
				}
				w.flush()
			},
			"cancel": func(t *rapid.T) {
				w.t = t
				_ = w.apply(sched.Cancel{Job: w.job(), Tasks: w.spans()})
				w.flush()
			},
			"retry": func(t *rapid.T) {
				w.t = t
				if id := w.job(); w.store.jobs[id].ID != 0 {
					_ = w.apply(w.store.retry(id, w.spans()))
					w.flush()
				}
			},
			"join": func(t *rapid.T) { w.t = t; w.join(w.worker()); w.flush() },
			"lose": func(t *rapid.T) {
				w.t = t
				id := w.worker()
				_ = w.apply(sched.Disconnected{Worker: id})
				w.sessions[id] = false
				w.flush()
			},
			"leave": func(t *rapid.T) {
				w.t = t
				id := w.worker()
				_ = w.apply(sched.ShutDown{Worker: id})
				w.sessions[id], w.assigned[id] = false, nil
				w.flush()
			},
			"renew": func(t *rapid.T) {
				w.t = t
				for _, id := range []muster.WorkerID{"w1", "w2", "w3"} {
					_ = w.apply(sched.Renewed{Worker: id, Held: w.held(id)})
				}
				w.flush()
			},
			"steer": func(t *rapid.T) {
				w.t = t
				on := rapid.Bool().Draw(t, "on")
				switch rapid.IntRange(0, 3).Draw(t, "what") {
				case 0:
					_ = w.apply(sched.Pause{Worker: w.worker(), On: on})
				case 1:
					_ = w.apply(sched.Drain{Worker: w.worker(), On: on})
				case 2:
					_ = w.apply(sched.Remove{Worker: w.worker()})
				default:
					_ = w.apply(sched.Ready{Worker: w.worker(), Constrained: map[bool]string{true: "on battery"}[on]})
				}
				w.flush()
			},
			"work": func(t *rapid.T) {
				w.t = t
				id := w.worker()
				a, ok := w.attempt(id)
				if !ok {
					return
				}
				switch rapid.IntRange(0, 4).Draw(t, "word") {
				case 0:
					_ = w.apply(sched.Accepted{Worker: id, Attempt: a})
				case 1:
					_ = w.apply(sched.Started{Worker: id, Attempt: a, At: w.now})
				case 2:
					if w.apply(sched.Rejected{Worker: id, Attempt: a, Message: "full"}) == nil {
						w.drop(id, a)
					}
				case 3:
					_ = w.apply(sched.Progressed{Worker: id, Progress: muster.Progress{Attempt: a, Metrics: map[string]float64{"loss": 1}, Artifacts: []muster.Artifact{{Name: "live/a"}}}})
				default:
					w.finish(id, a)
				}
				w.flush()
			},
			"finish": func(t *rapid.T) {
				w.t = t
				id := w.worker()
				if a, ok := w.attempt(id); ok {
					w.finish(id, a)
				}
			},
			"finish all": func(t *rapid.T) {
				w.t = t
				for _, id := range []muster.WorkerID{"w1", "w2", "w3"} {
					for _, a := range slices.Clone(w.assigned[id]) {
						w.succeed(id, a)
					}
				}
				w.flush()
			},
			"pass time": func(t *rapid.T) {
				w.t = t
				w.now = w.now.Add(muster.Duration(rapid.SampledFrom([]int{1, 5, 10, 20, 30, 60, 600, 3600}).Draw(t, "seconds")) * second)
				if err := w.apply(sched.Tick{}); err != nil {
					t.Fatal(err)
				}
				if at := w.state.NextTick(); at != 0 && at <= w.now {
					t.Fatalf("after a tick at %d something is due at %d", w.now, at)
				}
				w.flush()
			},
		})
	})
}
