package process_test

import (
	"context"
	"strings"
	"testing"

	"github.com/shirou/gopsutil/v4/disk"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/process"
	"github.com/muster-dev/muster/internal/agent/run/runtest"
	"github.com/muster-dev/muster/internal/tasklog"
)

// TestFailureFile checks that failure.json sets the reason and is not an artifact, and that invalid claims are only logged.
func TestFailureFile(t *testing.T) {
	w := runtest.NewEnv(t)
	x, err := process.New(w.Deps)
	if err != nil {
		t.Fatal(err)
	}
	logLine := func(text string) string {
		return `printf '%s' '` + text + `' > "$MUSTER_OUT/failure.json"; echo kept > "$MUSTER_OUT/kept.txt"; `
	}
	claimed, claimText := muster.ExitCode, "no space for model.pt (exit code 1): the program reports a full disk, but the worker's disk is not full"
	if usage, err := disk.Usage(w.Deps.Dir); err != nil {
		t.Fatal(err)
	} else if usage.Free < 1<<30 || usage.Free < usage.Total/20 {
		claimed, claimText = muster.DiskFull, "no space for model.pt" // this machine's disk confirms it
	}
	n := 0
	for _, c := range []struct {
		name, script    string
		reason          muster.Reason
		message, logged string
	}{
		{"a reason", logLine(`{"reason": "bad_input", "message": "epochs: write\n at least 1", "field": 3}`) + "exit 1", muster.BadInput, "epochs: write at least 1", ""},
		{"without a sentence", logLine(`{"reason": "diverged"}`) + "exit 2", muster.Diverged, "the program gave no message", ""},
		{"before a signal", logLine(`{"reason": "dependency", "message": "no torch"}`) + "kill -SEGV $$", muster.Dependency, "no torch", ""},
		{"a success", logLine(`{"reason": "bad_input", "message": "no"}`), "", "", ""},
		{"a reason of the worker's", logLine(`{"reason": "worker_lost", "message": "no"}`) + "exit 1", muster.ExitCode, "exit code 1", `unknown reason "worker_lost"`},
		{"a claim of a full disk", logLine(`{"reason": "disk_full", "message": "no space for model.pt"}`) + "exit 1", claimed, claimText, ""},
		{"no JSON", logLine(`bad_input`) + "exit 1", muster.ExitCode, "exit code 1", "failure.json is ignored: it is not JSON"},
		{"too large", logLine(`{}`) + `head -c 100000 /dev/zero > "$MUSTER_OUT/failure.json"; exit 1`, muster.ExitCode, "exit code 1", "larger than 64KiB"},
		{"a link", logLine(`{}`) + `rm "$MUSTER_OUT/failure.json"; ln -s /etc/passwd "$MUSTER_OUT/failure.json"; exit 1`, muster.ExitCode, "exit code 1", "not a regular file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n++
			id := muster.AttemptID{Task: muster.TaskID{Job: 1, Num: n}, N: 1}
			ctx, cancel := context.WithTimeout(t.Context(), runtest.Timeout)
			defer cancel()
			r := x.Run(ctx, &run.Task{Attempt: id, Spec: &muster.TaskSpec{Run: &muster.Command{Shell: c.script}}}, &runtest.Recorder{})
			if r.Reason != c.reason || r.Message != c.message {
				t.Errorf("it ended %s (%s: %s)", r.Outcome, r.Reason, r.Message)
			}
			if len(r.Artifacts) != 1 || r.Artifacts[0].Name != "kept.txt" {
				t.Errorf("it has the artifacts %v", r.Artifacts)
			}
			if log := w.Output(t, id, tasklog.System); !strings.Contains(log, c.logged) {
				t.Errorf("%q is not in the log %q", c.logged, log)
			}
		})
	}
}
