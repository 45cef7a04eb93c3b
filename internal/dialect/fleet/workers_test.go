package fleet_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/testkit"
)

// An id belongs to the key that registered it, until its worker has left.
func TestTwoKeysOneID(t *testing.T) {
	w := newEnv(t, nil)
	own := newFacts("one")
	own.Key = "k-mine"
	worker := w.register(own)
	foreign := newFacts("one")
	foreign.Key = "k-theirs"
	if _, err := w.fleet.Register(t.Context(), foreign); muster.CodeOf(err) != muster.Forbidden {
		t.Fatalf("another key took the id over: %v", err)
	}
	if got := w.register(own); got != worker {
		t.Error("the same key registered another worker")
	}
	if err := worker.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := w.fleet.Register(t.Context(), foreign); err != nil || got.Facts().Key != "k-theirs" {
		t.Errorf("the id of a worker that has left cannot be used: %v", err)
	}
}

func TestBadFacts(t *testing.T) {
	w := newEnv(t, nil)
	for name, change := range map[string]func(*fleet.Facts){
		"no id":       func(f *fleet.Facts) { f.ID = "" },
		"a long id":   func(f *fleet.Facts) { f.ID = strings.Repeat("x", 300) },
		"control":     func(f *fleet.Facts) { f.Name = "a\x1b[31m" },
		"no utf-8":    func(f *fleet.Facts) { f.Name = "\xff" },
		"many tags":   func(f *fleet.Facts) { f.Tags = make([]string, 1000) },
		"cpus":        func(f *fleet.Facts) { f.Resources.CPUs = -1 },
		"price":       func(f *fleet.Facts) { f.Price = -1 },
		"double gpus": func(f *fleet.Facts) { f.Resources.GPUs = []muster.GPU{{UUID: "a"}, {UUID: "a"}} },
	} {
		f := newFacts("bad")
		change(&f)
		if _, err := w.fleet.Register(t.Context(), f); muster.CodeOf(err) != muster.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list := w.fleet.Workers(); len(list) != 0 {
		t.Errorf("%d bad workers are there", len(list))
	}
}

// The server sees a change of facts, and the worker keeps its tasks.
func TestChangedFacts(t *testing.T) {
	w := newEnv(t, nil)
	worker := w.register(newFacts("one"))
	job := w.submit(nil)
	task := w.waitOffered(worker)
	if err := task.MarkStarted(); err != nil {
		t.Fatal(err)
	}
	if err := task.Progress(muster.Progress{Progress: new(0.25)}); err != nil {
		t.Fatal(err)
	}
	changed := newFacts("one")
	changed.Name, changed.Labels, changed.Tags, changed.Kinds, changed.Lacks = "uno", map[string]string{"location": "here"}, []string{"fast"}, []string{"script"}, []string{"cancel"}
	w.register(changed)
	testkit.Await(w.t, "the new facts are shown", func() bool {
		got, err := w.client.Worker(t.Context(), "uno")
		return err == nil && got.Labels["location"] == "here" && got.Labels["dialect"] == "tiny" && strings.Join(got.Tags, " ") == "dialect:tiny fast" && len(got.Kinds) == 1 && slices.Equal(slices.Sorted(slices.Values(got.UnsupportedFeatures)), []string{"cancel", "exec", "secrets", "stdin"})
	})
	if err := task.Finish(t.Context(), fleet.FinalReport{Outcome: muster.AttemptSucceeded}); err != nil {
		t.Fatal(err)
	}
	if got := w.waitState(job, muster.Succeeded); got.Attempt != 1 || got.Progress == nil {
		t.Errorf("it took %d attempts, progress %v", got.Attempt, got.Progress)
	}
}

// With MaxTasks 1 a worker has one task at a time, also of tasks with cpus.
func TestOneTaskAtATime(t *testing.T) {
	w := newEnv(t, nil)
	f := newFacts("one")
	f.Resources.MaxTasks = 1
	worker := w.register(f)
	named := func(s *muster.Spec) { s.Tasks[0].Resources.CPUs = 1 }
	jobs := []muster.Job{w.submit(named), w.submit(nil), w.submit(named)}
	for range jobs {
		task := w.waitOffered(worker)
		if n := len(worker.Tasks()); n != 1 {
			t.Errorf("the worker holds %d tasks", n)
		}
		if err := task.Finish(t.Context(), fleet.FinalReport{Outcome: muster.AttemptSucceeded}); err != nil {
			t.Fatal(err)
		}
	}
	for _, job := range jobs {
		w.waitState(job, muster.Succeeded)
	}
}

// A drained worker finishes its tasks and gets no others until it registers again.
func TestADrain(t *testing.T) {
	w := newEnv(t, nil)
	worker := w.register(newFacts("one"))
	job := w.submit(nil)
	task := w.waitOffered(worker)
	if _, err := w.client.DrainWorker(t.Context(), "one", nil); err != nil {
		t.Fatal(err)
	}
	next := w.submit(nil)
	if err := task.Finish(t.Context(), fleet.FinalReport{Outcome: muster.AttemptSucceeded}); err != nil {
		t.Fatal(err)
	}
	w.waitState(job, muster.Succeeded)
	testkit.Await(w.t, "the worker is out", func() bool { return worker.Err() != nil })
	worker.Touch(nil)
	if got := w.task(next).State; got != muster.Queued {
		t.Errorf("the next task is %s", got)
	}
	w.register(newFacts("one"))
	if err := w.waitOffered(worker).Finish(t.Context(), fleet.FinalReport{Outcome: muster.AttemptSucceeded}); err != nil {
		t.Fatal(err)
	}
	w.waitState(next, muster.Succeeded)
}

// The tasks of a worker that leaves are requeued.
func TestLeave(t *testing.T) {
	w := newEnv(t, nil)
	worker := w.register(newFacts("one"))
	job := w.submit(nil)
	task := w.waitOffered(worker)
	if err := task.MarkStarted(); err != nil {
		t.Fatal(err)
	}
	if err := worker.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(task.Err(), fleet.ErrReturned) || worker.Err() == nil || len(worker.Tasks()) != 0 {
		t.Errorf("after it left: %v, %v", task.Err(), worker.Err())
	}
	testkit.Await(w.t, "the worker has left", func() bool { return w.workerState("one") == muster.WorkerGone })
	w.waitState(job, muster.Queued)
	worker = w.register(newFacts("one"))
	if err := w.waitOffered(worker).Finish(t.Context(), fleet.FinalReport{Outcome: muster.AttemptSucceeded}); err != nil {
		t.Fatal(err)
	}
	w.waitState(job, muster.Succeeded)
}

// A requeued task is assigned again.
func TestRequeue(t *testing.T) {
	w := newEnv(t, nil)
	worker := w.register(newFacts("one"))
	job := w.submit(nil)
	task := w.waitOffered(worker)
	if err := task.MarkStarted(); err != nil {
		t.Fatal(err)
	}
	if err := task.Requeue("its worker was started again"); err != nil {
		t.Fatal(err)
	}
	var next *fleet.Task
	testkit.Await(w.t, "it is assigned again", func() bool {
		tasks := worker.Tasks()
		if len(tasks) == 0 {
			return false
		}
		next = tasks[0]
		return true
	})
	if next.ID() == task.ID() {
		t.Error("the new attempt has the id of the old one")
	}
	if err := next.Finish(t.Context(), fleet.FinalReport{Outcome: muster.AttemptSucceeded}); err != nil {
		t.Fatal(err)
	}
	w.waitState(job, muster.Succeeded)
}

// A worker that an administrator removed is unknown, and joins as a new one.
func TestRemoval(t *testing.T) {
	w := newEnv(t, func(c *fleet.Config) { c.SilenceTimeout = 300 * time.Millisecond })
	worker := w.register(newFacts("one"))
	testkit.Await(w.t, "it is unreachable", func() bool { return w.workerState("one") == muster.WorkerUnreachable })
	before, err := w.client.Worker(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	testkit.Await(w.t, "it is removed", func() bool { return w.client.RemoveWorker(t.Context(), "one") == nil })
	worker.Touch(nil)
	testkit.Await(w.t, "the fleet does not know it", func() bool { return w.fleet.Worker("one") == nil })
	if worker.Err() == nil {
		t.Error("a removed worker is active")
	}
	rejoined := w.register(newFacts("one"))
	testkit.Await(w.t, "it is active again", func() bool { rejoined.Touch(nil); return w.workerState("one") == muster.WorkerActive })
	if after, err := w.client.Worker(t.Context(), "one"); err != nil || after.ID == before.ID {
		t.Errorf("it came back as %s: %v", after.ID, err)
	}
}

// A worker that was removed while it was drained or unreachable joins again with its first registration: some never send a second.
func TestRemovalOfAnInactiveWorker(t *testing.T) {
	for name, leave := range map[string]func(w *env, worker *fleet.Worker){
		"drained": func(w *env, worker *fleet.Worker) {
			if _, err := w.client.DrainWorker(t.Context(), "one", nil); err != nil {
				t.Fatal(err)
			}
			testkit.Await(w.t, "it is out", func() bool { worker.Touch(nil); return worker.Err() != nil })
		},
		"silent": func(w *env, _ *fleet.Worker) {
			testkit.Await(w.t, "it is unreachable", func() bool { return w.workerState("one") == muster.WorkerUnreachable })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t, func(c *fleet.Config) { c.SilenceTimeout = 300 * time.Millisecond })
			worker := w.register(newFacts("one"))
			testkit.Await(w.t, "it is active", func() bool { worker.Touch(nil); return w.workerState("one") == muster.WorkerActive })
			leave(w, worker)
			testkit.Await(w.t, "it is removed", func() bool { return w.client.RemoveWorker(t.Context(), "one") == nil })
			again := w.register(newFacts("one"))
			testkit.Await(w.t, "it is active again", func() bool { again.Touch(nil); return w.workerState("one") == muster.WorkerActive })
			if again.Err() != nil || w.fleet.Worker("one") != again {
				t.Errorf("the worker that registered is %v", again.Err())
			}
		})
	}
}

// Constraints apply to new sessions.
func TestConstrain(t *testing.T) {
	w := newEnv(t, nil)
	worker := w.register(newFacts("one"))
	shown := func(want string) func() bool {
		return func() bool {
			got, err := w.client.Worker(t.Context(), "one")
			return err == nil && got.Constrained == want
		}
	}
	worker.Constrain("test", "its operator switched it off")
	testkit.Await(w.t, "it is constrained", shown("its operator switched it off"))
	f := newFacts("one")
	f.Version = "2"
	w.register(f)
	testkit.Await(w.t, "it is constrained in its next session", func() bool {
		got, err := w.client.Worker(t.Context(), "one")
		return err == nil && got.Version == "tiny 2" && got.Constrained == "its operator switched it off"
	})
	worker.Constrain("test", "")
	testkit.Await(w.t, "it is free", shown(""))
}

// Tasks of kinds or projects that the gateway does not have stay in the queue.
func TestWhatIsNotTaken(t *testing.T) {
	w := newEnv(t, func(c *fleet.Config) { c.Kinds = []string{"script", "noop"} })
	f := newFacts("one")
	f.Kinds = []string{"echo", "script", "noop"}
	worker := w.register(f)
	testkit.Await(w.t, "it is active", func() bool { return w.workerState("one") == muster.WorkerActive })
	got, err := w.client.Worker(t.Context(), "one")
	if err != nil || strings.Join(got.Kinds, " ") != "script" {
		t.Errorf("it takes %q, %v", got.Kinds, err)
	}
	other := w.submit(func(s *muster.Spec) {
		s.Project = "secret"
		s.Tasks[0] = muster.TaskSpec{Kind: "script", Script: &muster.Script{Text: "true"}}
	})
	echo := w.submit(nil)
	accepted := w.submit(func(s *muster.Spec) {
		s.Tasks[0] = muster.TaskSpec{Kind: "script", Script: &muster.Script{Text: "true"}}
	})
	if err := w.waitOffered(worker).Finish(t.Context(), fleet.FinalReport{Outcome: muster.AttemptSucceeded}); err != nil {
		t.Fatal(err)
	}
	w.waitState(accepted, muster.Succeeded)
	for _, job := range []muster.Job{other, echo} {
		if got := w.task(job).State; got != muster.Queued {
			t.Errorf("job %d is %s", job.ID, got)
		}
	}
}

// The number of workers is limited; one that left is evicted.
func TestMaxWorkers(t *testing.T) {
	w := newEnv(t, func(c *fleet.Config) { c.MaxWorkers = 2 })
	first := w.register(newFacts("one"))
	w.register(newFacts("two"))
	if _, err := w.fleet.Register(t.Context(), newFacts("three")); muster.CodeOf(err) != muster.Conflict {
		t.Fatalf("a worker too many: %v", err)
	}
	if err := first.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.register(newFacts("three"))
	if w.fleet.Worker("one") != nil {
		t.Error("the one that left is still known")
	}
}

// 200 idle workers need few resources, and all of them work.
func TestManyWorkers(t *testing.T) {
	const many = 200
	w := newEnv(t, nil)
	w.register(newFacts("first"))
	testkit.Await(w.t, "the first is active", func() bool { return w.workerState("first") == muster.WorkerActive })
	fds, heap := descriptors(), memoryInUse()
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() { w.register(newFacts(fmt.Sprint("worker-", i))) })
	}
	all.Wait()
	testkit.Await(w.t, "all are active", func() bool {
		list, err := w.client.Workers(t.Context())
		n := 0
		for i := range list {
			if list[i].State == muster.WorkerActive {
				n++
			}
		}
		return err == nil && n == many+1
	})
	moreFDs, more := descriptors()-fds, memoryInUse()-heap
	t.Logf("a worker takes %.2f descriptors and %d KiB", float64(moreFDs)/many, more/many>>10)
	if moreFDs > many/2 {
		t.Errorf("%d workers use %d descriptors", many, moreFDs)
	}
	if most := int64(many * 400 << 10); more > most && !raceEnabled {
		t.Errorf("%d workers use %d MiB", many, more>>20)
	}
	job := w.submit(func(s *muster.Spec) {
		s.Tasks[0].Array = &muster.Array{Ranges: []muster.Range{{First: 1, Last: many, Step: 1}}}
		s.Tasks[0].Disconnect.Grace = muster.Duration(time.Hour) // the machine may be busy
	})
	for _, worker := range w.fleet.Workers() {
		all.Go(func() {
			for {
				select {
				case <-worker.Changed():
				case <-t.Context().Done():
					return
				}
				for _, task := range worker.Tasks() {
					err := task.Finish(t.Context(), fleet.FinalReport{Outcome: muster.AttemptSucceeded, Result: json.RawMessage(`1`)})
					// On a busy machine a session may break before an assignment is acknowledged: the task then has another attempt.
					if err != nil && !errors.Is(err, fleet.ErrAbandoned) && t.Context().Err() == nil {
						t.Errorf("%v", err)
					}
				}
			}
		})
	}
	started := time.Now()
	got, err := w.client.Wait(t.Context(), job.ID)
	if err != nil || got.State != muster.JobSucceeded {
		t.Errorf("the job is %s, %v", got.State, err)
	}
	t.Logf("%d tasks on %d workers took %s", many, many, time.Since(started))
}

func descriptors() int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(list)
}

func memoryInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
