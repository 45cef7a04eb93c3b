package runtest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/testkit"
)

// restarts restarts the worker while a task runs and checks that the next incarnation recovers it.
func restarts(t *testing.T, o suite) {
	t.Helper()
	// restart detaches from a running task and opens the executor of the next incarnation.
	restart := func(t *testing.T, b *harness, task *run.Task) *run.Task {
		t.Helper()
		b.startUntil(t, task, "ready\n")(run.ErrDetach)
		b.restart(t, o)
		recovered := b.Deps.Supervisor.Recovered()
		if len(recovered) != 1 {
			t.Fatalf("%d attempts are recovered", len(recovered))
		}
		next, err := recovered[0].Task()
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	const waitForFile = "; while [ ! -e $GO ]; do sleep 0.02; done; "
	waitingTask := func(b *harness, shell string) *run.Task {
		task := b.task(shell)
		task.Spec.Env = map[string]string{"GO": filepath.Join(SharedDir(b.Deps), "go")}
		return task
	}

	o.run(t, "to its end, with its outputs, checkpoint and whole log", func(t *testing.T) {
		b := open(t, o)
		task := waitingTask(b, "echo ready; echo 1 > $MUSTER_CHECKPOINT/epoch"+waitForFile+"echo late; echo x > $MUSTER_OUT/model.pt; test -e $MUSTER_CHECKPOINT/epoch && echo 7 > $MUSTER_OUT/result.json; exit 3")
		next := restart(t, b, task)
		b.resume(t)
		r := b.done(t, next)
		want(t, r, muster.AttemptFailed, muster.ExitCode, "3")
		if len(r.Artifacts) != 1 || strings.TrimSpace(string(r.Result)) != "7" || r.Usage == nil || r.StartedAt == 0 {
			t.Errorf("%+v", r)
		}
		b.wantOutput(t, task, tasklog.Stdout, "ready\nlate\n")
		if _, err := os.Stat(filepath.Join(b.checkpoint(task), "epoch")); err != nil {
			t.Errorf("the checkpoint is lost: %v", err)
		}
		b.Restart(t)
		if recovered := b.Deps.Supervisor.Recovered(); len(recovered) != 1 || recovered[0].Report == nil || recovered[0].Report.LogSize != r.LogSize {
			t.Errorf("the report is not kept: %+v", recovered)
		}
	})
	o.run(t, "that ended in between", func(t *testing.T) {
		b := open(t, o)
		task := waitingTask(b, "echo ready"+waitForFile+"echo x > out.txt; kill -SEGV $$")
		task.Spec.Outputs = []string{"*.txt"}
		next := restart(t, b, task)
		b.resume(t)
		testkit.Await(t, "the task has ended", func() bool { return b.runningProcs(t) == 0 })
		r := b.done(t, next)
		want(t, r, muster.AttemptFailed, muster.Signal, "SIGSEGV")
		if len(r.Artifacts) != 1 {
			t.Errorf("artifacts %v", r.Artifacts)
		}
	})
	o.run(t, "whose report was made, and is made again", func(t *testing.T) {
		b := open(t, o)
		task := b.task("echo done")
		before := b.done(t, task)
		wantSuccess(t, before)
		b.restart(t, o)
		recovered := b.Deps.Supervisor.Recovered()
		if len(recovered) != 1 || recovered[0].Exit == nil {
			t.Fatalf("recovered: %+v", recovered)
		}
		next, err := recovered[0].Task()
		if err != nil {
			t.Fatal(err)
		}
		r := b.done(t, next)
		wantSuccess(t, r)
		if r.StartedAt != before.StartedAt || r.LogSize != before.LogSize || *r.ExitCode != *before.ExitCode || r.Usage.WallSeconds != before.Usage.WallSeconds {
			t.Errorf("it was %+v, it is %+v", before, r)
		}
	})
	o.run(t, "and stops it", func(t *testing.T) {
		b := open(t, o)
		task := waitingTask(b, "trap 'echo stopped; exit 0' TERM; echo ready; while :; do sleep 0.02; done")
		task.Spec.Kill.Grace = muster.Duration(Timeout)
		next := restart(t, b, task)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(&run.Stopped{Outcome: muster.AttemptCancelled, Reason: muster.CancelledByUser, Message: "by ada"})
		r := b.x.Run(ctx, next, &Recorder{})
		b.check(t, next, &r)
		want(t, r, muster.AttemptCancelled, muster.CancelledByUser, "ada")
		b.wantOutput(t, next, tasklog.Stdout, "ready\nstopped\n")
	})
	o.run(t, "although its shim has exited", func(t *testing.T) {
		b := open(t, o)
		next := restart(t, b, waitingTask(b, "echo ready; exec sleep 1000"))
		b.stopShims(t)
		testkit.Await(t, "the task has ended", func() bool { return b.runningProcs(t) == 0 })
		b.restart(t, o)
		r := b.done(t, next)
		if r.Outcome != muster.AttemptLost && r.Reason != muster.WorkerInternal {
			t.Errorf("%+v", r)
		}
	})
}
