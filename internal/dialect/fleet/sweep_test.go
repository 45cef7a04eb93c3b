package fleet_test

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/testkit"
)

func (w *env) fleetDir() string { return filepath.Join(w.dir, "dialects", "tiny", "fleet") }

// logs lists the files with logs of the fleet's tasks.
func (w *env) logs() (list []string) {
	w.t.Helper()
	err := filepath.WalkDir(filepath.Join(w.fleetDir(), "logs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			list = append(list, filepath.Base(path))
		}
		return nil // what is removed meanwhile is not there
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

// reportDirs counts the workers that have reports of their own in the keep of a fleet that does not run.
func (w *env) reportDirs() int {
	w.t.Helper()
	reports, err := agent.OpenReportStore(w.fleetDir())
	if err != nil {
		w.t.Fatal(err)
	}
	byDir, err := reports.AttemptsByWorker()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := reports.Close(); err != nil {
		w.t.Fatal(err)
	}
	return len(byDir)
}

// silentWorker returns a task of a worker that fell silent, with a log that the server does not have.
func (w *env) silentWorker(id string) (*fleet.Worker, *fleet.Task) {
	w.t.Helper()
	worker := w.register(newFacts(id))
	testkit.Await(w.t, "it is active", func() bool { worker.Touch(nil); return w.workerState(id) == muster.WorkerActive })
	w.submit(func(s *muster.Spec) { s.Tasks[0].Disconnect.Grace = muster.Duration(time.Hour) })
	testkit.Await(w.t, "it holds the task", func() bool { worker.Touch(nil); return len(worker.Tasks()) > 0 })
	task := worker.Tasks()[0]
	if err := task.MarkStarted(); err != nil {
		w.t.Fatal(err)
	}
	testkit.Await(w.t, "it is unreachable", func() bool { return w.workerState(id) == muster.WorkerUnreachable })
	if err := task.Log(w.t.Context(), strings.Repeat("y", 100_000)); err != nil { // which is a sign of life
		w.t.Fatal(err)
	}
	testkit.Await(w.t, "it is unreachable again", func() bool { return w.workerState(id) == muster.WorkerUnreachable })
	return worker, task
}

// All files of a removed worker are deleted, and those of others are kept.
func TestRemovalLeavesNothing(t *testing.T) {
	w := newEnv(t, func(c *fleet.Config) { c.SilenceTimeout = 300 * time.Millisecond })
	other, kept := w.silentWorker("other")
	other.Constrain("test", "the next task is for the one that is removed")
	worker, task := w.silentWorker("one")
	if n := len(w.logs()); n != 2 {
		t.Fatalf("there are %d logs", n)
	}
	testkit.Await(w.t, "it is removed", func() bool { return w.client.RemoveWorker(t.Context(), "one") == nil })
	testkit.Await(w.t, "the fleet does not know it", func() bool { worker.Touch(nil); return w.fleet.Worker("one") == nil })
	testkit.Await(w.t, "its log is removed", func() bool { return len(w.logs()) == 1 })
	testkit.Await(w.t, "its task is done", func() bool { held, over := w.fleet.OnDisk(t, task.ID()); return !held && over })
	if err := task.Log(t.Context(), "late"); muster.CodeOf(err) != muster.Conflict {
		t.Errorf("a line for a finished task: %v", err)
	}
	w.stop()
	if n := w.reportDirs(); n != 1 {
		t.Errorf("the report store has %d workers", n)
	}
	w.start()
	if w.fleet.Task(kept.ID()) == nil || len(w.logs()) != 1 {
		t.Errorf("after a restart there are %v", w.logs())
	}
}

// The next start removes the files that a crash during a removal leaves.
func TestACrashInTheMiddleOfARemoval(t *testing.T) {
	w := newEnv(t, func(c *fleet.Config) { c.SilenceTimeout = 300 * time.Millisecond })
	_, task := w.silentWorker("one")
	w.stop()
	if len(w.logs()) != 1 || w.reportDirs() != 1 {
		t.Fatal("there is nothing that could be left")
	}
	fleet.DeleteWorkerRecord(t, w.fleetDir(), "one")
	w.start()
	if held, over := w.fleet.OnDisk(t, task.ID()); held || !over {
		t.Errorf("the task is held: %v, over: %v", held, over)
	}
	if err := w.fleet.ReportLate(task.ID()); muster.CodeOf(err) != muster.Conflict || !strings.Contains(err.Error(), task.Run().Attempt.Task.String()) {
		t.Errorf("a late report: %v", err)
	}
	if list := w.logs(); len(list) != 0 {
		t.Errorf("the logs %v are left", list)
	}
	w.stop()
	if n := w.reportDirs(); n != 0 {
		t.Errorf("the report store has %d workers", n)
	}
}

// A finished task whose report was not sent is done when its worker is removed.
func TestRemovalWithAReport(t *testing.T) {
	w := newEnv(t, func(c *fleet.Config) { c.SilenceTimeout = 300 * time.Millisecond })
	worker, task := w.silentWorker("one")
	testkit.Await(w.t, "it is removed", func() bool { return w.client.RemoveWorker(t.Context(), "one") == nil })
	err := task.Finish(t.Context(), fleet.FinalReport{Outcome: muster.AttemptSucceeded}) // which is a sign of life
	if muster.CodeOf(err) != muster.Conflict {
		t.Errorf("its report is accepted: %v", err)
	}
	testkit.Await(w.t, "the fleet does not know it", func() bool { return w.fleet.Worker("one") == nil })
	testkit.Await(w.t, "its log is removed", func() bool { return len(w.logs()) == 0 })
	testkit.Await(w.t, "its task is done", func() bool { held, over := w.fleet.OnDisk(t, task.ID()); return !held && over })
	if worker.Err() == nil {
		t.Error("a removed worker is active")
	}
}
