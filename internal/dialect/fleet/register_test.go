package fleet_test

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/testkit"
)

func withKey(id, key string) fleet.Facts {
	f := newFacts(id)
	f.Key = key
	return f
}

// A worker of an open gateway keeps its tasks after keys become required.
func TestFirstKey(t *testing.T) {
	w := newEnv(t, nil)
	worker := w.register(newFacts("one"))
	job := w.submit(nil)
	task := w.waitOffered(worker)
	if err := task.MarkStarted(); err != nil {
		t.Fatal(err)
	}
	id := task.ID()
	w.stop()
	w.start()
	worker = w.register(withKey("one", "k-first"))
	if list := worker.Tasks(); len(list) != 1 || list[0].ID() != id || worker.Facts().Key != "k-first" {
		t.Fatalf("it has %d tasks and the key %q", len(list), worker.Facts().Key)
	}
	for name, key := range map[string]string{"another key": "k-second", "no key": ""} {
		_, err := w.fleet.Register(t.Context(), withKey("one", key))
		if muster.CodeOf(err) != muster.Forbidden || !strings.Contains(err.Error(), "muster workers remove one") {
			t.Errorf("%s took over an active worker: %v", name, err)
		}
	}
	if err := worker.Tasks()[0].Finish(t.Context(), fleet.FinalReport{Outcome: muster.AttemptSucceeded}); err != nil {
		t.Fatal(err)
	}
	w.waitState(job, muster.Succeeded)
}

// The id of an unreachable worker without tasks can be registered with another key, but not without a key.
func TestRotatedKey(t *testing.T) {
	w := newEnv(t, func(c *fleet.Config) { c.SilenceTimeout = 300 * time.Millisecond })
	worker := w.register(withKey("one", "k-old"))
	testkit.Await(w.t, "it is active", func() bool { worker.Touch(nil); return w.workerState("one") == muster.WorkerActive })
	job := w.submit(func(s *muster.Spec) { s.Tasks[0].Disconnect.Grace = muster.Duration(time.Hour) })
	testkit.Await(w.t, "it holds the task", func() bool { worker.Touch(nil); return len(worker.Tasks()) > 0 })
	waitUnreachable := func() {
		testkit.Await(w.t, "it is unreachable", func() bool { return w.workerState("one") == muster.WorkerUnreachable })
	}
	waitUnreachable()
	if _, err := w.fleet.Register(t.Context(), withKey("one", "k-new")); muster.CodeOf(err) != muster.Forbidden {
		t.Fatalf("another key took over a worker with a task: %v", err)
	}
	task := worker.Tasks()[0]
	if err := task.Finish(t.Context(), fleet.FinalReport{Outcome: muster.AttemptSucceeded}); err != nil {
		t.Fatal(err)
	}
	w.waitState(job, muster.Succeeded)
	waitUnreachable()
	if _, err := w.fleet.Register(t.Context(), newFacts("one")); muster.CodeOf(err) != muster.Forbidden {
		t.Fatalf("no key took over a worker with one: %v", err)
	}
	if got := w.register(withKey("one", "k-new")); got != worker || got.Facts().Key != "k-new" {
		t.Errorf("the key is %q", got.Facts().Key)
	}
	testkit.Await(w.t, "it is active again", func() bool { worker.Touch(nil); return w.workerState("one") == muster.WorkerActive })
}

// A registration that cannot be written changes nothing, and is as good as a first one when it comes again.
func TestRegistrationOnABrokenDisk(t *testing.T) {
	w := newEnv(t, nil)
	worker := w.register(newFacts("one"))
	testkit.Await(w.t, "it is active", func() bool { return w.workerState("one") == muster.WorkerActive })
	if err := worker.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	mend := w.fleet.BreakDisk(t)
	_, err := w.fleet.Register(t.Context(), newFacts("one"))
	mend()
	if muster.CodeOf(err) != muster.Unavailable || worker.Err() == nil {
		t.Fatalf("the registration: %v; the worker: %v", err, worker.Err())
	}
	w.register(newFacts("one"))
	testkit.Await(w.t, "it is active again", func() bool { return w.workerState("one") == muster.WorkerActive })
}

// An orphan is on disk before the record of its task is removed.
func TestOrphansAreWrittenFirst(t *testing.T) {
	w := newEnv(t, nil)
	worker := w.register(newFacts("one"))
	job := w.submit(nil)
	task := w.waitOffered(worker)
	if err := task.MarkStarted(); err != nil {
		t.Fatal(err)
	}
	release := worker.BlockWrites()
	if _, err := w.client.Cancel(t.Context(), job.ID, nil); err != nil {
		release()
		t.Fatal(err)
	}
	<-task.Done()
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if held, _ := w.fleet.OnDisk(t, task.ID()); !held {
			t.Error("the task was removed from disk before")
			break
		}
	}
	release()
	testkit.Await(w.t, "the task is removed from disk", func() bool { held, over := w.fleet.OnDisk(t, task.ID()); return !held && over })
}
