package fleet_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/testkit"
)

// Reports of a foreign worker are those of the task: start, progress, log, artifacts, result.
func TestATaskGoesThrough(t *testing.T) {
	w := newEnv(t, nil)
	worker := w.register(newFacts("one"))
	testkit.Await(w.t, "the worker is shown as active", func() bool { return w.workerState("one") == muster.WorkerActive })
	job := w.submit(nil)
	task := w.waitOffered(worker)
	if task.Started() || string(task.Run().Spec.Input) != `{"n":1}` || w.fleet.Task(task.ID()) != task {
		t.Fatalf("the offered task is not what was submitted: %+v", task.Run().Spec)
	}
	if err := task.MarkStarted(); err != nil {
		t.Fatal(err)
	}
	if err := task.Progress(muster.Progress{Progress: new(0.5), Step: new("half"), Metrics: map[string]float64{"loss": 2}}); err != nil {
		t.Fatal(err)
	}
	testkit.Await(w.t, "progress is shown", func() bool { p := w.task(job).Progress; return p != nil && *p == 0.5 })
	if err := task.Log(t.Context(), "first line", "second line"); err != nil {
		t.Fatal(err)
	}
	if err := task.AddArtifact(t.Context(), "out/model.bin", strings.NewReader("weights"), 100); err != nil {
		t.Fatal(err)
	}
	if err := task.AddArtifact(t.Context(), "big", strings.NewReader("weights"), 3); muster.CodeOf(err) != muster.TooLarge {
		t.Errorf("an artifact that is too big: %v", err)
	}
	for _, name := range []string{"", "../up", "/abs", "a/../b", ".", "a\\b", "a\x00", "C:/a", "a\u202eb", "out", "out/model.bin/x"} {
		if err := task.AddArtifact(t.Context(), name, strings.NewReader("x"), 3); muster.CodeOf(err) != muster.Invalid {
			t.Errorf("an artifact named %q: %v", name, err)
		}
	}
	for _, loss := range []float64{1.5, 1} { // faster than they are kept
		if err := task.Progress(muster.Progress{Metrics: map[string]float64{"loss": loss}}); err != nil {
			t.Fatal(err)
		}
	}
	end := fleet.FinalReport{Outcome: muster.AttemptSucceeded, Result: json.RawMessage(`{"loss": 1}`)}
	if err := task.Finish(t.Context(), end); err != nil {
		t.Fatal(err)
	}
	got := w.task(job) // Finish has returned: the server has it
	if got.State != muster.Succeeded || string(got.Result) != `{"loss":1}` && string(got.Result) != `{"loss": 1}` {
		t.Errorf("the task is %s with %s", got.State, got.Result)
	}
	var metrics wire.Metrics
	testkit.Await(w.t, "the log with its points is on the server", func() bool {
		var err error
		metrics, err = w.client.Metrics(t.Context(), muster.TaskID{Job: job.ID}, 0)
		if err != nil || len(metrics.Attempts) != 1 {
			return false
		}
		points := metrics.Attempts[0].Points
		return len(points) > 1 && points[len(points)-1].Metrics["loss"] == 1
	})
	points := metrics.Attempts[0].Points
	if first := points[0]; *first.Progress != 0.5 || *first.Step != "half" || first.Metrics["loss"] != 2 {
		t.Errorf("the points are %+v", points)
	}
	if !errors.Is(task.Err(), fleet.ErrReported) || w.fleet.Task(task.ID()) != nil {
		t.Errorf("the finished task is not done: %v", task.Err())
	}
	if err := task.Finish(t.Context(), end); !errors.Is(err, fleet.ErrReported) || muster.CodeOf(err) != muster.Conflict {
		t.Errorf("a second report: %v", err)
	}
	if err := w.fleet.ReportLate(task.ID()); !errors.Is(err, fleet.ErrReported) {
		t.Errorf("a late report: %v", err)
	}
	if err := w.fleet.ReportLate("nobody"); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("a report of an unknown task: %v", err)
	}
	testkit.Await(w.t, "the log is on the server", func() bool {
		var lines []string
		for line, err := range w.client.Logs(t.Context(), muster.TaskID{Job: job.ID}, client.LogOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, strings.TrimSuffix(string(line.Data), "\n"))
		}
		return strings.Join(lines, "|") == "first line|second line"
	})
	files, err := w.client.Artifacts(t.Context(), muster.TaskID{Job: job.ID})
	if err != nil || len(files) != 1 || files[0].Name != "out/model.bin" || files[0].Size != 7 {
		t.Errorf("artifacts: %+v, %v", files, err)
	}
}

// A failure has a reason and a message.
func TestAFailure(t *testing.T) {
	w := newEnv(t, nil)
	worker := w.register(newFacts("one"))
	job := w.submit(nil)
	task := w.waitOffered(worker)
	for _, bad := range []fleet.FinalReport{{}, {Outcome: "dance"}, {Outcome: muster.AttemptLost}, {Outcome: muster.AttemptSucceeded, Result: json.RawMessage("{")},
		{Outcome: muster.AttemptSucceeded, Result: json.RawMessage(`"` + strings.Repeat("x", muster.MaxResultSize) + `"`)}} {
		if err := task.Finish(t.Context(), bad); muster.CodeOf(err) != muster.Invalid {
			t.Errorf("a report %+.60v: %v", bad, err)
		}
	}
	if err := task.Finish(t.Context(), fleet.FinalReport{Outcome: muster.AttemptFailed, Reason: muster.ExitCode, Message: "it broke", ExitCode: new(3)}); err != nil {
		t.Fatal(err)
	}
	got := w.waitState(job, muster.Failed)
	if got.Reason != muster.ExitCode || got.Message != "it broke" {
		t.Errorf("the task failed for %s: %s", got.Reason, got.Message)
	}
}

// A cancelled task is done at once, and its worker is constrained until it is idle.
func TestACancellation(t *testing.T) {
	w := newEnv(t, nil)
	worker := w.register(newFacts("one"))
	for i, free := range []func(id string){
		func(id string) {
			if err := w.fleet.ReportLate(id); !errors.Is(err, fleet.ErrCancelled) {
				t.Errorf("a late report of what was cancelled: %v", err)
			}
		},
		func(string) { worker.MarkIdle() },
	} {
		job := w.submit(nil)
		task := w.waitOffered(worker)
		if err := task.MarkStarted(); err != nil {
			t.Fatal(err)
		}
		if _, err := w.client.Cancel(t.Context(), job.ID, nil); err != nil {
			t.Fatal(err)
		}
		w.waitState(job, muster.Cancelled)
		<-task.Done()
		if !errors.Is(task.Err(), fleet.ErrCancelled) {
			t.Errorf("%d: the task is done: %v", i, task.Err())
		}
		if err := task.Finish(t.Context(), fleet.FinalReport{Outcome: muster.AttemptSucceeded}); !errors.Is(err, fleet.ErrCancelled) {
			t.Errorf("%d: a report of what was cancelled: %v", i, err)
		}
		shown := func() string {
			got, err := w.client.Worker(t.Context(), "one")
			if err != nil {
				t.Fatal(err)
			}
			return got.Constrained
		}
		testkit.Await(w.t, "the worker is constrained", func() bool { return strings.Contains(shown(), "cannot be stopped") })
		free(task.ID())
		testkit.Await(w.t, "the worker is free", func() bool { return shown() == "" })
	}
}

// A cancelled task that did not start is no orphan.
func TestACancellationBeforeTheStart(t *testing.T) {
	w := newEnv(t, nil)
	worker := w.register(newFacts("one"))
	job := w.submit(nil)
	task := w.waitOffered(worker)
	if _, err := w.client.Cancel(t.Context(), job.ID, nil); err != nil {
		t.Fatal(err)
	}
	w.waitState(job, muster.Cancelled)
	<-task.Done()
	next := w.submit(nil)
	if err := w.waitOffered(worker).Finish(t.Context(), fleet.FinalReport{Outcome: muster.AttemptSucceeded}); err != nil {
		t.Fatal(err)
	}
	w.waitState(next, muster.Succeeded)
}

// The timeout counts from the start on the foreign worker, and ends the attempt.
func TestATimeout(t *testing.T) {
	w := newEnv(t, nil)
	worker := w.register(newFacts("one"))
	job := w.submit(func(s *muster.Spec) { s.Tasks[0].Timeout = muster.Duration(time.Second) })
	task := w.waitOffered(worker)
	if err := task.MarkStarted(); err != nil {
		t.Fatal(err)
	}
	got := w.waitState(job, muster.TimedOut)
	if got.Reason != muster.Timeout || !errors.Is(task.Err(), fleet.ErrTimedOut) {
		t.Errorf("it ended for %s: %v", got.Reason, task.Err())
	}
}

// A worker without contact is unreachable, then another one gets its task, and its late report has no effect.
func TestSilence(t *testing.T) {
	w := newEnv(t, func(c *fleet.Config) { c.SilenceTimeout = time.Second })
	worker := w.register(newFacts("one"))
	job := w.submit(func(s *muster.Spec) { s.Tasks[0].Disconnect.Grace = muster.Duration(3 * time.Second) })
	task := w.waitOffered(worker)
	if err := task.MarkStarted(); err != nil {
		t.Fatal(err)
	}
	testkit.Await(w.t, "the worker is unreachable", func() bool { return w.workerState("one") == muster.WorkerUnreachable })
	if w.task(job).State != muster.Running {
		t.Errorf("the task is %s while its lease runs", w.task(job).State)
	}
	two := w.register(newFacts("two"))
	beat := time.NewTicker(100 * time.Millisecond)
	defer beat.Stop()
	testkit.Await(w.t, "the other worker has it", func() bool { two.Touch(nil); return len(two.Tasks()) > 0 })
	if err := task.Finish(t.Context(), fleet.FinalReport{Outcome: muster.AttemptSucceeded, Result: json.RawMessage(`"late"`)}); !errors.Is(err, fleet.ErrAbandoned) {
		t.Errorf("a late report: %v", err)
	}
	if err := w.fleet.ReportLate(task.ID()); !errors.Is(err, fleet.ErrAbandoned) {
		t.Errorf("a late report: %v", err)
	}
	if err := two.Tasks()[0].Finish(t.Context(), fleet.FinalReport{Outcome: muster.AttemptSucceeded, Result: json.RawMessage(`"right"`)}); err != nil {
		t.Fatal(err)
	}
	if got := w.waitState(job, muster.Succeeded); string(got.Result) != `"right"` {
		t.Errorf("the result is %s", got.Result)
	}
	worker.Touch(nil)
	testkit.Await(w.t, "the worker is back", func() bool { return w.workerState("one") == muster.WorkerActive })
}

// A worker that reconnects in time continues its task.
func TestAShortSilence(t *testing.T) {
	w := newEnv(t, func(c *fleet.Config) { c.SilenceTimeout = 500 * time.Millisecond })
	worker := w.register(newFacts("one"))
	job := w.submit(nil)
	task := w.waitOffered(worker)
	if err := task.MarkStarted(); err != nil {
		t.Fatal(err)
	}
	testkit.Await(w.t, "the worker is unreachable", func() bool { return w.workerState("one") == muster.WorkerUnreachable })
	worker.Touch(nil)
	if err := task.Finish(t.Context(), fleet.FinalReport{Outcome: muster.AttemptSucceeded}); err != nil {
		t.Fatal(err)
	}
	if got := w.waitState(job, muster.Succeeded); got.Attempt != 1 {
		t.Errorf("it took %d attempts", got.Attempt)
	}
}

// BusyTimeout applies to a worker that runs a task.
func TestABusyWorkerMayBeSilent(t *testing.T) {
	w := newEnv(t, func(c *fleet.Config) { c.SilenceTimeout, c.BusyTimeout = 300*time.Millisecond, time.Hour })
	worker := w.register(newFacts("one"))
	w.submit(nil)
	var task *fleet.Task
	testkit.Await(w.t, "a task is offered", func() bool {
		worker.Touch(nil)
		if tasks := worker.Tasks(); len(tasks) > 0 {
			task = tasks[0]
		}
		return task != nil
	})
	if err := task.MarkStarted(); err != nil {
		t.Fatal(err)
	}
	testkit.Await(w.t, "the busy worker is active", func() bool { return w.workerState("one") == muster.WorkerActive })
	w.register(newFacts("idle"))
	testkit.Await(w.t, "the idle worker is unreachable", func() bool { return w.workerState("idle") == muster.WorkerUnreachable })
	if state := w.workerState("one"); state != muster.WorkerActive {
		t.Errorf("the busy worker is %s", state)
	}
}

// After a restart of the server a task continues under its id, and its report counts.
func TestARestartInTheMiddle(t *testing.T) {
	for name, end := range map[string]func(w *env){
		"in order":    func(w *env) { w.stop() },
		"as by kill9": (*env).crash,
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t, nil)
			worker := w.register(newFacts("one"))
			job := w.submit(nil)
			task := w.waitOffered(worker)
			if err := task.MarkStarted(); err != nil {
				t.Fatal(err)
			}
			if err := task.Log(t.Context(), "before"); err != nil {
				t.Fatal(err)
			}
			if err := task.AddArtifact(t.Context(), "a", strings.NewReader("a"), 10); err != nil {
				t.Fatal(err)
			}
			second := w.submit(nil) // offered, not begun
			testkit.Await(w.t, "both are held", func() bool { return len(worker.Tasks()) == 2 })
			id := task.ID()
			end(w)
			w.start()
			task = w.fleet.Task(id)
			if task == nil || !task.Started() {
				t.Fatalf("the task is not known any more: %+v", task)
			}
			worker = w.fleet.Worker("one")
			if list := worker.Tasks(); len(list) != 2 || list[1] != task || list[0].Started() {
				t.Fatalf("the worker holds %d tasks", len(list))
			}
			worker.Touch(nil)
			if err := task.Log(t.Context(), "after"); err != nil {
				t.Fatal(err)
			}
			if err := task.Finish(t.Context(), fleet.FinalReport{Outcome: muster.AttemptSucceeded, Result: json.RawMessage(`1`)}); err != nil {
				t.Fatal(err)
			}
			if got := w.waitState(job, muster.Succeeded); got.Attempt != 1 {
				t.Errorf("it took %d attempts", got.Attempt)
			}
			if files, err := w.client.Artifacts(t.Context(), muster.TaskID{Job: job.ID}); err != nil || len(files) != 1 {
				t.Errorf("artifacts: %+v, %v", files, err)
			}
			if err := w.waitOffered(worker).Finish(t.Context(), fleet.FinalReport{Outcome: muster.AttemptSucceeded}); err != nil {
				t.Fatal(err)
			}
			if got := w.waitState(second, muster.Succeeded); got.Attempt != 1 {
				t.Errorf("the second took %d attempts", got.Attempt)
			}
		})
	}
}

// A task's files are fetched once, and removed with it.
func TestFiles(t *testing.T) {
	w := newEnv(t, nil)
	worker := w.register(newFacts("one"))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.py"), []byte("print(1)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tree, err := w.client.UploadFolder(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.submit(func(s *muster.Spec) {
		s.Tasks[0] = muster.TaskSpec{Kind: "script", Files: tree, Script: &muster.Script{Text: "cat main.py"}}
	})
	task := w.waitOffered(worker)
	folder, err := task.FetchInputs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again, err := task.FetchInputs(t.Context())
	if b, _ := os.ReadFile(filepath.Join(folder, "main.py")); string(b) != "print(1)\n" || again != folder || err != nil {
		t.Errorf("the folder has %q; then %s, %v", b, again, err)
	}
	if err := task.Finish(t.Context(), fleet.FinalReport{Outcome: muster.AttemptSucceeded}); err != nil {
		t.Fatal(err)
	}
	testkit.Await(w.t, "the directory is removed", func() bool { _, err := os.Stat(folder); return errors.Is(err, os.ErrNotExist) })
	if _, err := task.FetchInputs(t.Context()); !errors.Is(err, fleet.ErrReported) {
		t.Errorf("inputs of a finished task: %v", err)
	}
	if err := task.AddArtifact(t.Context(), "a", io.LimitReader(nil, 0), 1); !errors.Is(err, fleet.ErrReported) {
		t.Errorf("an artifact of a finished task: %v", err)
	}
}
