package engine_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/engine"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/testkit"
)

// cachedSpec is a job of one task that uses the cache.
func cachedSpec(project string) *muster.Spec {
	return (&muster.Spec{Project: project, Tasks: []muster.TaskSpec{{Kind: muster.KindNoop, Cache: muster.DefaultCacheLifetime}}}).Normalize()
}

func (r *env) submitCached(t *testing.T, project string) muster.TaskID {
	t.Helper()
	id, err := r.Submit(t.Context(), cachedSpec(project), store.IdempotencyKey{})
	if err != nil {
		t.Fatal(err)
	}
	return muster.TaskID{Job: id}
}

func (r *env) taskRow(t *testing.T, id muster.TaskID) muster.Task {
	t.Helper()
	task, err := r.store.Task(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// runCached runs a task that uses the cache, and returns it with the hash of its artifact.
func (r *env) runCached(t *testing.T, p *testSession) (muster.TaskID, string) {
	t.Helper()
	hash := r.put(t, []byte("model"))
	id := r.submitCached(t, "")
	report := succeeded(p.next(t, "an assignment", assigns).Assign[0].Attempt)
	report.Result, report.Artifacts = []byte(`{"a":1}`), []muster.Artifact{{Name: "m.pt", Size: 5, SHA256: hash}}
	if err := p.Handle(t.Context(), &link.ToServer{Finished: []muster.Report{report}}); err != nil {
		t.Fatal(err)
	}
	r.awaitEnd(t, id.Job)
	return id, hash
}

func wantHit(t *testing.T, task muster.Task, origin muster.TaskID, hash string) {
	t.Helper()
	if task.State != muster.Succeeded || !task.Cached || task.Origin != origin || task.Attempt != 0 || string(task.Result) != `{"a":1}` || len(task.Artifacts) != 1 || task.Artifacts[0].SHA256 != hash {
		t.Errorf("task %s: %+v; want the result of %s", task.ID, task, origin)
	}
}

// A result that was committed is found after a restart, without a worker; a task of another project does not find it.
func TestIdenticalTaskTakesTheResult(t *testing.T) {
	r := start(t)
	origin, hash := r.runCached(t, r.connect(t))
	if row := r.taskRow(t, origin); row.Cached || row.Cache == nil {
		t.Errorf("the task that ran: %+v", row)
	}
	r = r.restart(t)
	hit := r.submitCached(t, "") // returns after the commit
	wantHit(t, r.taskRow(t, hit), origin, hash)
	if other := r.taskRow(t, r.submitCached(t, "other")); other.State != muster.Queued {
		t.Errorf("a task of another project is %s", other.State)
	}
	plain, err := r.Submit(t.Context(), (&muster.Spec{Tasks: []muster.TaskSpec{{Kind: muster.KindNoop}}}).Normalize(), store.IdempotencyKey{})
	if err != nil {
		t.Fatal(err)
	}
	if task := r.taskRow(t, muster.TaskID{Job: plain}); task.State != muster.Queued {
		t.Errorf("a task without cache is %s", task.State)
	}
	if e, _, err := r.store.CacheEntry(t.Context(), muster.DefaultProject, r.taskRow(t, hit).Cache.Key); err != nil || e.Hits != 1 {
		t.Errorf("the entry has %d hits, %v", e.Hits, err)
	}
}

// artifact calls f with the file of a blob.
func (r *env) artifact(t *testing.T, hash string, f func(path string) error) {
	t.Helper()
	found := false
	err := filepath.WalkDir(filepath.Join(r.dir, "blobs"), func(path string, _ os.DirEntry, err error) error {
		if name := filepath.Base(path); err == nil && (name == hash || name == hash[2:]) {
			found = true
			return f(path)
		}
		return err
	})
	if err != nil || !found {
		t.Fatalf("the file of %s was found: %t, %v", hash, found, err)
	}
}

// A result whose artifact is gone is not used.
func TestResultWithoutItsFilesIsNotUsed(t *testing.T) {
	r := start(t)
	_, hash := r.runCached(t, r.connect(t))
	r.artifact(t, hash, os.Remove)
	if task := r.taskRow(t, r.submitCached(t, "")); task.Cached {
		t.Errorf("the task has a result without its artifact: %+v", task)
	}
}

// An artifact of a result that is used is as young as a new one, so that the sweep keeps it until it finds the new reference.
func TestUseOfAResultKeepsItsFiles(t *testing.T) {
	r := start(t)
	_, hash := r.runCached(t, r.connect(t))
	now := r.blobs.Now()
	r.artifact(t, hash, func(path string) error { return os.Chtimes(path, now.Add(-2*time.Hour), now.Add(-2*time.Hour)) })
	r.submitCached(t, "")
	if _, removed, err := r.blobs.RemoveUnused(t.Context(), hash, now.Add(-time.Hour)); err != nil || removed {
		t.Errorf("the artifact was removed: %t, %v", removed, err)
	}
}

// A commit that fails leaves neither a result nor a hit; the second task waits until the first one has succeeded.
func TestIdenticalTaskWaitsForTheFirst(t *testing.T) {
	r := start(t)
	p := r.connect(t)
	hash := r.put(t, []byte("model"))
	first, second := r.submitCached(t, ""), r.submitCached(t, "")
	a := p.next(t, "an assignment", assigns).Assign[0].Attempt
	if a.Task != first {
		t.Fatalf("%s runs first", a)
	}
	x, err := r.Explain(t.Context(), second)
	if want := "waits for the result of task " + first.String() + ", which is identical, and runs by itself if that fails"; err != nil || x.Summary != want {
		t.Errorf("the second task %q, %v", x.Summary, err)
	}
	report := succeeded(a)
	report.Result, report.Artifacts = []byte(`{"a":1}`), []muster.Artifact{{Name: "m.pt", Size: 5, SHA256: hash}}
	r.fault.FailCommit(1)
	if err := p.Handle(t.Context(), &link.ToServer{Finished: []muster.Report{report}}); err == nil {
		p.next(t, "the end of the session", func(*link.ToWorker) bool { return r.Health() != nil || r.Sessions() == 0 })
	}
	testkit.Await(t, "the engine works again", func() bool { return r.Health() == nil })
	if task := r.taskRow(t, second); task.State != muster.Queued || task.Cached {
		t.Errorf("after the failed commit: %+v", task)
	}
	p = r.connect(t, a)
	if err := p.Handle(t.Context(), &link.ToServer{Finished: []muster.Report{report}}); err != nil {
		t.Fatal(err)
	}
	r.awaitEnd(t, second.Job)
	wantHit(t, r.taskRow(t, second), first, hash)
}

// If the first one fails, the second runs.
func TestIdenticalTaskRunsIfTheFirstFails(t *testing.T) {
	r := start(t)
	p := r.connect(t)
	first, second := r.submitCached(t, ""), r.submitCached(t, "")
	a := p.next(t, "an assignment", assigns).Assign[0].Attempt
	report := succeeded(a)
	report.Outcome, report.Reason = muster.AttemptFailed, muster.ExitCode
	if err := p.Handle(t.Context(), &link.ToServer{Finished: []muster.Report{report}}); err != nil {
		t.Fatal(err)
	}
	if b := p.next(t, "an assignment", assigns).Assign[0].Attempt; a.Task != first || b.Task != second {
		t.Errorf("%s ran, and then %s", a, b)
	}
	if err := p.Handle(t.Context(), &link.ToServer{Finished: []muster.Report{succeeded(muster.AttemptID{Task: second, N: 1})}}); err != nil {
		t.Fatal(err)
	}
	r.awaitEnd(t, second.Job)
	if task := r.taskRow(t, r.submitCached(t, "")); !task.Cached || task.Origin != second {
		t.Errorf("a third task: %+v", task)
	}
}

// A secret that was set again, and a kind that was changed, make another task.
func TestVersionsArePartOfTheKey(t *testing.T) {
	version := "1"
	r := start(t, func(cfg *engine.Config) {
		cfg.KindVersion = func(kind string, _ func() []muster.Worker) string { return kind + version }
	})
	was := r.taskRow(t, r.submitCached(t, "")).Cache
	version = "2"
	if is := r.taskRow(t, r.submitCached(t, "")).Cache; was.Key == is.Key {
		t.Errorf("the key %s is the same", is.Key)
	}
}
