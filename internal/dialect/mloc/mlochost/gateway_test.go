package mlochost

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
)

func echoTask(input string) muster.TaskSpec {
	return muster.TaskSpec{Kind: "echo", Input: json.RawMessage(input), Retries: muster.Retries{Max: 3, Backoff: muster.Duration(1e7)}}
}

// TestAGenuineWorkerRunsTasksOfMuster holds that a worker of MLOC is one of the server's: what it says of itself, its result and its files.
func TestAGenuineWorkerRunsTasksOfMuster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	s := newScripted(t, w.redis, "w1")
	s.execute = func(m message) (map[string]any, map[string]string, string) {
		result, _, _ := echo(m)
		return result, map[string]string{"final_model.tar.gz": "weights"}, ""
	}
	s.register().listen()
	w.active("w1")
	one, _ := w.foreignWorker("w1")
	if one.Price != 1 || one.Resources.CPUs != 2 || one.Resources.MaxTasks != 1 || one.Labels["dialect"] != "mloc" || !strings.Contains(strings.Join(one.Lacks, " "), "files") {
		t.Errorf("the worker is %+v", one)
	}
	task := w.wait(w.submit(echoTask(`{"question": "why?", "big": 12345678901234567890}`)).ID)
	if task.State != muster.Succeeded || string(task.Result) != `{"big":12345678901234567890,"question":"why?"}` {
		t.Fatalf("the task is %s (%s), its result %s", task.State, task.Message, task.Result)
	}
	names := map[string]bool{}
	for _, a := range task.Artifacts {
		names[a.Name] = true
	}
	if !names["final_model.tar.gz"] || !names["responses.json"] {
		t.Errorf("its artifacts are %v", names)
	}
	s.sigint()
	await(t, "the worker left", func() bool {
		one, ok := w.foreignWorker("w1")
		return !ok || one.State == muster.WorkerGone
	})
}

// TestAFailureIsTriedElsewhere holds that a failure of a worker is one of the attempt, with its words.
func TestAFailureIsTriedElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	bad := newScripted(t, w.redis, "bad")
	bad.execute = func(message) (map[string]any, map[string]string, string) { return nil, nil, "ValueError: no such model" }
	bad.register().listen()
	w.active("bad")
	job := w.submit(muster.TaskSpec{Kind: "echo", Input: json.RawMessage(`{}`)})
	if task := w.wait(job.ID); task.State != muster.Failed || task.Message != "ValueError: no such model" || task.Reason != muster.BadInput {
		t.Errorf("the task is %s, %s: %q", task.State, task.Reason, task.Message)
	}
}
