//go:build unix

package e2e

import (
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
)

// wordCountSpec is a job of the example kind: its first stage writes a text, and the second one, of that kind, reads it.
func wordCountSpec(text, input string) *muster.Spec {
	return &muster.Spec{Name: "count", Tasks: []muster.TaskSpec{
		{Name: "write", Kind: muster.KindProcess, Run: &muster.Command{Shell: `printf '` + text + `' > "$MUSTER_OUT/text.txt"; printf '{"most": 0}' > "$MUSTER_OUT/result.json"`}},
		{Name: "count", Kind: "words", Needs: []string{"write"}, Inputs: []muster.Input{{From: "write", Name: "text.txt"}}, Input: json.RawMessage(input)},
	}}
}

// TestCustomKind runs the example kind, in Perl, with one of two workers offering it.
func TestCustomKind(t *testing.T) {
	t.Parallel()
	if err := exec.CommandContext(t.Context(), "perl", "-MJSON::PP", "-e", "1").Run(); err != nil {
		t.Skipf("skipped: the example needs perl with JSON::PP: %v", err)
	}
	dir, err := filepath.Abs("../../examples/kinds")
	if err != nil {
		t.Fatal(err)
	}
	c := mustertest.New(t, t.TempDir())
	c.StartWorker("plain", t.TempDir())
	submit := func(input string) error {
		_, err := c.Client.Submit(t.Context(), wordCountSpec("b", input), client.SubmitOptions{})
		return err
	}
	expectRefused := func(err error, words ...string) {
		t.Helper()
		bad, ok := errors.AsType[*muster.Error](err)
		if !ok || bad.Code != muster.InvalidSpec {
			t.Fatalf("submit returns %v", err)
		}
		var messages []string
		for _, f := range bad.Fields {
			messages = append(messages, f.String())
		}
		for _, word := range words {
			if !strings.Contains(strings.Join(messages, "\n"), word) {
				t.Errorf("got messages %[2]q, want %[1]q in them", word, messages)
			}
		}
	}
	expectRefused(submit(`{"file": "text.txt"}`), "tasks[1].kind: there is no kind words")
	c.StartWorker("perl", t.TempDir(), "--kinds-dir", dir)
	expectRefused(submit(`{"file": "text.txt", "top": 0}`), "tasks[1].input.top: 0 is too small: write at least 1")
	expectRefused(submit(`{"fil": "text.txt"}`), "tasks[1].input.file: required", "tasks[1].input.fil: unknown field (did you mean file?)")

	worker, err := c.Client.Worker(t.Context(), "perl")
	if err != nil {
		t.Fatal(err)
	}
	ran := func(text, input string) muster.Task {
		t.Helper()
		job := c.Submit(wordCountSpec(text, input))
		c.Wait(job.ID, time.Minute)
		task := c.Tasks(job.ID)[1]
		if task.Worker != worker.ID {
			t.Errorf("task %s ran on worker %s, which does not have its kind: %s: %s", task.ID, task.Worker, task.Reason, task.Message)
		}
		return task
	}
	task := ran(`the hat\nThe hat the\n`, `{"file": "text.txt", "top": 1}`)
	var result struct {
		Words  int `json:"words"`
		Unique int `json:"unique"`
		Top    []struct {
			Word  string `json:"word"`
			Count int    `json:"count"`
		} `json:"top"`
	}
	if err := json.Unmarshal(task.Result, &result); err != nil || result.Words != 5 || result.Unique != 2 || len(result.Top) != 1 || result.Top[0].Word != "the" || result.Top[0].Count != 3 {
		t.Errorf("the result is %s (%s: %s)", task.Result, task.Reason, task.Message)
	}
	if len(task.Artifacts) != 1 || task.Artifacts[0].Name != "words.csv" || task.Metrics["words"] != 5 {
		t.Errorf("it has the artifacts %v and the figures %v", task.Artifacts, task.Metrics)
	}
	// Errors that only the worker detects, and that only the program detects.
	for _, bad := range []struct{ text, input, want string }{
		{`b`, `{"file": "text.txt", "top": "${write.result.most}"}`, "input.top: 0 is too small: write at least 1"},
		{`b\377\n`, `{"file": "text.txt"}`, "input.file: line 1 of text.txt is not UTF-8 text"},
	} {
		task := ran(bad.text, bad.input)
		if task.State != muster.Failed || task.Reason != muster.BadInput || task.Message != bad.want || len(task.Artifacts) > 0 {
			t.Errorf("task %s is %s (%s: %s), with %v", task.ID, task.State, task.Reason, task.Message, task.Artifacts)
		}
	}
}
