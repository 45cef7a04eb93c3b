package mlocbridge

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/dialect/mloc/mloctest"
	"github.com/muster-dev/muster/internal/testkit"
)

var update = flag.Bool("update", false, "write the transcripts")

// TestASession plays one session, from registration to farewell, and compares it with its transcript: order and shape
// of all events, results before TASK_SUCCEEDED, the folder of results and its manifest.
func TestASession(t *testing.T) {
	r := mloctest.StartRedis(t)
	h, f, dir := startHost(t, r), startFleet(t, "m1"), t.TempDir()
	cfg := f.config(t, r, dir)
	stop := startBridge(t, cfg)

	one := h.dispatch("w1", "task-one", h.document("echo", map[string]any{"items": []any{"x", 1.5, "${stage.result.a}"}, "big": json.Number("12345678901234567890")}))
	if got := h.waitEnded(one); got != "DONE" {
		t.Fatalf("it ended as %s: %s", got, h.snapshot(one).err)
	}
	echo, _ := h.result("task-one")["echo"].(map[string]any)
	if items, _ := json.Marshal(echo["items"]); string(items) != `["x",1.5,"${stage.result.a}"]` {
		t.Errorf("the echo is %v", h.result("task-one"))
	}
	for _, name := range []string{"responses.json", "manifest.json", "logs", "artifacts"} {
		if _, err := os.Stat(filepath.Join(dir, "results", "task-one", name)); err != nil {
			t.Error(err)
		}
	}
	if bare := read(t, dir, "results", "task-one", "responses.json"); !strings.Contains(bare, `"ok":true`) || !strings.Contains(bare, "12345678901234567890") || strings.Contains(bare, `"result"`) {
		t.Errorf("responses.json is not the bare result: %s", bare)
	}
	if m := read(t, dir, "results", "task-one", "manifest.json"); !strings.Contains(m, `"name":"responses.json","path":"responses.json","type":"result","required":true,"status":"present"`) {
		t.Errorf("the manifest is %s", m)
	}

	two := h.dispatch("w1", "task-two", h.document("agent", nil))
	if got := h.waitEnded(two); got != "FAILED" || !strings.Contains(h.snapshot(two).err, "agent") {
		t.Errorf("it ended as %s: %s", got, h.snapshot(two).err)
	}
	testkit.Await(t, "the worker is IDLE", func() bool { return h.rdb.HGet(t.Context(), "worker:w1", "status").Val() == "IDLE" })
	testkit.Await(t, "the status of the last task", func() bool { return strings.Contains(h.transcript()[len(h.transcript())-1], `"last_task":"task-two"`) })
	stop()
	testkit.Await(t, "the farewell", func() bool { return strings.Contains(h.transcript()[len(h.transcript())-1], "UNREGISTER") })
	if n := h.rdb.Exists(t.Context(), "worker:w1", "worker:w1:hb").Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
	// A status may be published twice: at each change, and by the loop that compares it with what Redis says.
	golden(t, "session.txt", slices.Compact(h.transcript()))
}

// golden compares lines with a transcript.
func golden(t *testing.T, name string, got []string) {
	t.Helper()
	path, text := filepath.Join("testdata", name), strings.Join(got, "\n")+"\n"
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want := read(t, path); want != text {
		t.Errorf("the transcript is\n%s\nand should be\n%s", text, want)
	}
}
