package mlocbridge

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/muster-dev/muster/internal/dialect/mloc"
	"github.com/muster-dev/muster/internal/wake"
)

// FuzzMessage holds that whatever is published on the channel of tasks, only what names this worker is kept, once, and
// what is kept can be read again.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{
		`{"task_id":"a","assigned_worker":"w1","task":{"spec":{"taskType":"echo"}},"dispatched_at":"x"}`,
		`{"task_id":"a","assigned_worker":"w2","task":{}}`, `{"task_id":7,"assigned_worker":"w1"}`, `{"task_id":"../x","assigned_worker":"w1"}`,
		`{"task_id":"a","assigned_worker":"w1","task":"no object"}`, `{"task_id":"a","assigned_worker":"w1","merged_children":[{"task_id":""}]}`, `[]`, `nonsense`, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		in, err := openInbox(dir, wake.New())
		if err != nil {
			t.Fatal(err)
		}
		w := &bridgeWorker{Bridge: &Bridge{log: slog.New(slog.DiscardHandler)}, id: "w1", inbox: in, openDispatches: map[string]*delivery{}}
		w.handleMessage(b)
		w.handleMessage(b)
		var m struct {
			Assigned string `json:"assigned_worker"`
			Sent     string `json:"dispatched_at"`
		}
		ours := json.Unmarshal(b, &m) == nil && m.Assigned == "w1" || strings.Contains(string(b), "w1")
		if len(in.list) > 1 || len(in.list) == 1 && !ours {
			t.Fatalf("%d were kept of %q", len(in.list), b)
		}
		again, err := openInbox(dir, wake.New())
		if err != nil {
			t.Fatal(err)
		}
		if len(again.list) != len(in.list) {
			t.Fatalf("%d of %d are left after a restart", len(again.list), len(in.list))
		}
		if p := again.first(); p != nil && !mloc.ValidID(p.Task) {
			t.Fatalf("task %q was kept", p.Task)
		}
	})
}

// FuzzState holds that only an answer about this very task says where it stands.
func FuzzState(f *testing.F) {
	f.Add(200, []byte(`{"task_id":"a","status":"DONE"}`))
	f.Add(200, []byte(`{"task_id":"b","status":"DONE"}`))
	f.Add(404, []byte(`{"detail":"task not found"}`))
	f.Add(404, []byte(`{"detail":"Not Found"}`))
	f.Add(502, []byte(`<html>`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		switch got := parseState(status, body, "a", "w1"); got {
		case stateOver, stateMoved, stateWaiting:
			if status != 200 || !bytes.Contains(body, []byte("a")) {
				t.Fatalf("status %d with %q is %d", status, body, got)
			}
		case stateUnknown, stateSilent:
		}
	})
}

// FuzzExport holds that an export has a line of JSON for each item at most, each with all its fields, and never a path
// outside of the task's folder.
func FuzzExport(f *testing.F) {
	f.Add([]byte(`{"postprocess":{"jsonl_export":{"path":"a/b.jsonl","fields":{"p":"prompt","o":"item.output","m":"metadata.k.0","d":{"from":"metadata","key":"x","default":1},"c":{"value":null},"f":{"from":"nothing","fallback":"output"}},"required_fields":["o"]}}}`))
	f.Add([]byte(`{"postprocess":{"jsonl_export":{"path":"../x"}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var spec map[string]any
		if mloc.Decode(b, 1<<20, &spec) != nil {
			return
		}
		e, err := parseExport(spec)
		if err != nil || e == nil {
			return
		}
		if !filepath.IsLocal(e.Path) {
			t.Fatalf("its path is %q", e.Path)
		}
		items := exportItems(mloc.Document{Spec: spec}, []any{map[string]any{"output": "x", "index": 0}, "odd", nil})
		data, n, err := e.encode(items)
		if err != nil {
			t.Fatal(err)
		}
		if n > 3 || bytes.Count(data, []byte("\n")) != n {
			t.Fatalf("%d lines, %d are said", bytes.Count(data, []byte("\n")), n)
		}
		for line := range bytes.SplitSeq(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
			var o map[string]any
			if n > 0 && (json.Unmarshal(line, &o) != nil || len(o) != len(e.Fields)) {
				t.Fatalf("a line is %q", line)
			}
		}
	})
}

// FuzzSpec holds that the readers of a task's fields answer with a value or an error, and that texts stay texts.
func FuzzSpec(f *testing.F) {
	f.Add([]byte(`{"taskType":"rag","qdrant":{"url":"http://q:6333","collection":"c"},"embedding":{"model":"m"},"query":"q","output":{"destination":{"type":"http","url":"http://h/api/v1/results","headers":{"a":"b"},"timeoutSec":2.5}}}`))
	f.Add([]byte(`{"output":{"destination":{"type":"local","path":"/x"}},"search":{"top_k":"five"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var spec map[string]any
		if mloc.Decode(b, 1<<20, &spec) != nil {
			return
		}
		if d, err := parseDestination(spec); err == nil {
			if d.Timeout <= 0 || d.Timeout > maxTimeout {
				t.Fatalf("the timeout is %v", d.Timeout)
			}
			if d.Type == "http" && !strings.HasPrefix(d.URL, "http") {
				t.Fatalf("the address is %q", d.URL)
			}
		}
		if r, err := parseRetrieval(spec); err == nil {
			if len(r.Queries) == 0 || r.TopK < 1 {
				t.Fatalf("it is %+v", r)
			}
			if _, err := r.stage(spec); err != nil {
				t.Fatal(err)
			}
		}
		if name := jobName(mloc.TaskMessage{TaskID: "x", Task: mloc.Document{Metadata: spec}}); name == "" || len(name) > 64 || !utf8.ValidString(name) {
			t.Fatalf("the name is %q", name)
		}
	})
}

// FuzzArchive holds that nothing of an archive lands outside of its folder.
func FuzzArchive(f *testing.F) {
	f.Add("final_model/config.json", "../evil", byte(tar.TypeReg))
	f.Add("final_model/../../evil", "final_model/a/b", byte(tar.TypeSymlink))
	f.Add("/final_model/x", "final_model//y", byte(tar.TypeDir))
	f.Fuzz(func(t *testing.T, one, two string, kind byte) {
		dir := t.TempDir()
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		list := tar.NewWriter(z)
		for i, name := range []string{one, two} {
			h := &tar.Header{Name: name, Size: 2, Mode: 0o644, Typeflag: tar.TypeReg, Linkname: "../outside"}
			if i == 1 {
				h.Typeflag, h.Size = kind, 0
			}
			if list.WriteHeader(h) == nil && h.Size > 0 {
				_, _ = list.Write([]byte("hi"))
			}
		}
		_, _ = list.Close(), z.Close()
		archive := filepath.Join(dir, "final_model.tar.gz")
		if err := os.WriteFile(archive, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		in := filepath.Join(dir, "in")
		if err := os.Mkdir(in, 0o700); err != nil {
			t.Fatal(err)
		}
		_ = unpack(t.Context(), archive, in, "final_model")
		found, _ := os.ReadDir(dir)
		inside, _ := os.ReadDir(in)
		if len(found) != 2 || len(inside) > 1 || len(inside) == 1 && inside[0].Name() != "final_model" {
			t.Fatalf("there are %v and %v", found, inside)
		}
	})
}

func TestDispatches(t *testing.T) {
	now := time.Now()
	a := dispatchID(mloc.TaskMessage{TaskID: "x", DispatchedAt: "1"}, now)
	if b := dispatchID(mloc.TaskMessage{TaskID: "x", DispatchedAt: "1"}, now.Add(time.Hour)); a != b {
		t.Error("the same dispatch has two ids")
	}
	if b := dispatchID(mloc.TaskMessage{TaskID: "x", DispatchedAt: "2"}, now); a == b {
		t.Error("two dispatches have one id")
	}
}
