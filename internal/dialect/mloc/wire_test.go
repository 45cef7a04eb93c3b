package mloc

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
)

func TestEvents(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 8, 0, 0, 123456000, time.UTC)
	te, we, err := ParseEvent([]byte(`{"type":"task_failed","task_id":"t","worker_id":"w","error":"no","payload":{"a":1},"other":true}`), now)
	if err != nil || we != nil || te.Type != "TASK_FAILED" || *te.Error != "no" || te.TS != "2026-11-23T08:00:00.123456+00:00" {
		t.Errorf("%+v, %v", te, err)
	}
	te, we, err = ParseEvent([]byte(`{"type":"Heartbeat","worker_id":"w","ts":"x","metrics":{"uptime_sec":1.5},"tags":"none"}`), now)
	if err != nil || te != nil || we.Type != "HEARTBEAT" || we.TS != "x" || we.Metrics["uptime_sec"] != json.Number("1.5") {
		t.Errorf("%+v, %v", we, err)
	}
	for _, bad := range []string{"", "x", "[]", "{}", `{"type":" "}`, `{"type":"TASK_DONE"}`, `{"type":"TASK_X","task_id":""}`, `{"type":"STATUS"}`, `{"type":7}`, `{"type":"TASK_X","task_id":"a"} {}`, strings.Repeat("[", 1000)} {
		if _, _, err := ParseEvent([]byte(bad), now); err == nil {
			t.Errorf("%q is an event", bad)
		}
	}
}

func TestHashes(t *testing.T) {
	t.Parallel()
	h := WorkerHash{WorkerID: "w", Status: StatusIdle, StartedAt: "a", LastSeen: "b", PID: 7, Tags: []string{"x"}, CostPerHour: 1}
	h.Hardware.GPU.GPUs = []GPUDevice{{Name: "NVIDIA H200", UUID: "GPU-1", Memory: 1 << 37}}
	fields := h.Fields()
	if fields["cost_per_hour"] != "1.0" || fields["env_json"] != "{}" || fields["pid"] != "7" {
		t.Errorf("%v", fields)
	}
	back, err := ParseHash(fields)
	back.Env = nil
	if err != nil || !reflect.DeepEqual(back, h) {
		t.Errorf("%+v became %+v, %v", h, back, err)
	}
	if _, err := ParseHash(map[string]string{"last_seen": "x"}); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("what heartbeats leave after a flush: %v", err)
	}
	if _, err := ParseHash(map[string]string{"worker_id": "w", "env_json": strings.Repeat("x", maxHash)}); muster.CodeOf(err) != muster.TooLarge {
		t.Errorf("a large hash: %v", err)
	}
}

func TestManifests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "secret")
	for name, content := range map[string]string{filepath.Join(dir, "responses.json"): "{}", filepath.Join(dir, "final_model.tar.gz"): "abc", outside: "secret"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{os.MkdirAll(filepath.Join(dir, "logs"), 0o700), os.MkdirAll(filepath.Join(dir, "artifacts", "x"), 0o700), os.Symlink(outside, filepath.Join(dir, "link"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	m, err := NewManifest(t.Context(), dir, "t", []string{"./model/", "../../etc/passwd", "link"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range m.Entries {
		got = append(got, e.Path+" "+e.Type+" "+e.Status)
		if e.Required != (e.Path != "final_model.tar.gz") || strings.Contains(EncodeString(e), "2bb80d53") {
			t.Errorf("%+v", e)
		}
	}
	want := "../../etc/passwd directory missing, artifacts artifact present, link directory missing, logs logs present, model directory missing, responses.json result present, final_model.tar.gz artifact present"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("the entries are %s", s)
	}
}

func TestIDs(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", ".", "..", "a/b", `a\b`, "a\nb", "\x00", strings.Repeat("x", MaxID+1)} {
		if ValidID(bad) || ValidFileName(bad) {
			t.Errorf("%q may be used", bad)
		}
	}
	if SafeID("a.b/../ü-_1") != "a_b_____-_1" {
		t.Error(SafeID("a.b/../ü-_1"))
	}
	if MaxMessage < MaxYAML {
		t.Error("a document does not fit into a message")
	}
}

// FuzzEvent holds that an event has what is needed to tell whose it is, and that it is read again as it was written.
func FuzzEvent(f *testing.F) {
	f.Add([]byte(`{"type":"TASK_SUCCEEDED","ts":"x","worker_id":"w","task_id":"t","status":null,"error":null,"payload":{}}`))
	f.Add([]byte(`{"type":"REGISTER","worker_id":"w","tags":["a"],"payload":{"env":{}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		te, we, err := ParseEvent(b, time.Unix(0, 0))
		if err != nil {
			return
		}
		if (te == nil) == (we == nil) || te != nil && te.TaskID == "" || we != nil && we.WorkerID == "" {
			t.Fatalf("%s is read as %+v and %+v", b, te, we)
		}
		var v any = te
		if we != nil {
			v = we
		}
		again, err := Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		te2, we2, err := ParseEvent(again, time.Unix(0, 0))
		if err != nil || !reflect.DeepEqual(te, te2) || !reflect.DeepEqual(we, we2) {
			t.Fatalf("%s became %s: %v", b, again, err)
		}
	})
}

// FuzzTask holds that a message is read again as it was written.
func FuzzTask(f *testing.F) {
	f.Add([]byte(`{"task_id":"t","task":{"apiVersion":"mloc/v1","kind":"K","metadata":{},"spec":{"taskType":"echo"}},"assigned_worker":"w","merged_children":[{"task_id":"c","spec":{},"metadata":{}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m, m2 TaskMessage
		if Decode(b, MaxMessage, &m) != nil {
			return
		}
		again, err := Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := Decode(again, MaxMessage, &m2); err != nil || EncodeString(m2) != string(again) {
			t.Fatalf("%s became %s: %v", b, again, err)
		}
	})
}

// FuzzHash holds that what a worker says of itself is within bounds, whatever it is.
func FuzzHash(f *testing.F) {
	f.Add("w", `{"cpu":{"logical_cores":2}}`, `["a"]`, "1.0")
	f.Add("w", `{"gpu":{"gpus":[{"memory_total_bytes":1e30}]}}`, `{}`, "-1")
	f.Fuzz(func(t *testing.T, id, hw, tags, cost string) {
		h, err := ParseHash(map[string]string{"worker_id": id, "hardware_json": hw, "tags_json": tags, "cost_per_hour": cost})
		if err == nil && (h.WorkerID == "" || h.CostPerHour < 0 || h.CostPerHour != h.CostPerHour) {
			t.Fatalf("%+v", h)
		}
	})
}

// FuzzEscape holds that Muster reads a text as it was before.
func FuzzEscape(f *testing.F) {
	f.Add("${a} $${b} $ {c} $$$")
	f.Fuzz(func(t *testing.T, s string) {
		got, _ := Escape(s).(string)
		// As package flow decodes it: half of the dollars in front of a brace stay, and nothing is a reference.
		var unescaped strings.Builder
		for rest := got; ; {
			i := strings.Index(rest, "${")
			if i < 0 {
				unescaped.WriteString(rest)
				break
			}
			dollars := len(rest[:i+1]) - len(strings.TrimRight(rest[:i+1], "$"))
			if dollars%2 == 1 {
				t.Fatalf("%q has a reference", got)
			}
			unescaped.WriteString(rest[:i+1-dollars] + strings.Repeat("$", dollars/2) + "{")
			rest = rest[i+2:]
		}
		if unescaped.String() != s {
			t.Fatalf("%q became %q and %q", s, got, unescaped.String())
		}
	})
}
