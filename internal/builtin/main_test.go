package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/muster-dev/muster/internal/kind"
)

// env is what a task runs in.
type env struct {
	t          *testing.T
	dir        string // the task's folder, which is the working directory
	out        string
	checkpoint string
	log        lockedBuffer
	events     string
	words      []string
	public     bool // private addresses are refused
}

func newEnv(t *testing.T) *env {
	t.Helper()
	w := &env{t: t, dir: t.TempDir(), out: t.TempDir(), checkpoint: t.TempDir()}
	w.events = filepath.Join(t.TempDir(), "events")
	t.Chdir(w.dir)
	t.Setenv("MUSTER_EVENTS", w.events)
	t.Setenv("TMPDIR", t.TempDir())
	return w
}

// lockedBuffer is what a task and its programs print, several at once.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *lockedBuffer) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *lockedBuffer) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// outcome is how a task came to its end.
type outcome struct {
	code    int
	result  map[string]any
	reason  string
	message string
}

// run runs a task of a kind, with an input that its schema takes.
func (w *env) run(ctx context.Context, name, input string) outcome {
	w.t.Helper()
	i := slices.IndexFunc(kind.Embedded(), func(k *kind.Kind) bool { return k.Name == name })
	if problems := kind.Embedded()[i].CheckInput(json.RawMessage(input), true); len(problems) > 0 {
		w.t.Fatalf("the schema refuses %s: %v", input, problems)
	}
	path := filepath.Join(w.t.TempDir(), "input.json")
	write(w.t, path, input)
	w.t.Setenv("MUSTER_INPUT", path)
	_ = os.Remove(filepath.Join(w.out, "failure.json")) // of the attempt before
	_ = os.Remove(filepath.Join(w.out, "result.json"))
	t := &task{outDir: w.out, checkpointDir: w.checkpoint, allowPrivate: !w.public, stdout: &w.log, stderr: &w.log, command: w.words}
	e := outcome{code: t.run(ctx, handlers()[name])}
	if text, err := os.ReadFile(filepath.Join(w.out, "result.json")); err == nil {
		if err := json.Unmarshal(text, &e.result); err != nil {
			w.t.Errorf("result.json: %v", err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(w.out, "failure.json")); err == nil {
		var f struct {
			Reason  string `json:"reason"`
			Message string `json:"message"`
		}
		if err := json.Unmarshal(text, &f); err != nil {
			w.t.Errorf("failure.json: %v", err)
		}
		e.reason, e.message = f.Reason, f.Message
	}
	return e
}

// artifact returns the lines of one.
func (w *env) artifact(name string) (lines []map[string]any) {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.out, name))
	if err != nil {
		w.t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			w.t.Fatalf("%s: %v: %s", name, err, line)
		}
		lines = append(lines, m)
	}
	return lines
}

// numbers checks some fields of a result.
func (e *outcome) numbers(t *testing.T, want map[string]float64) {
	t.Helper()
	for name, v := range want {
		if got, _ := e.result[name].(float64); got != v {
			t.Errorf("%s is %v, not %v: %v, %s", name, e.result[name], v, e.result, e.message)
		}
	}
}

// failed checks the reason of a failure and words of its message.
func (e *outcome) failed(t *testing.T, reason string, words ...string) {
	t.Helper()
	if e.code == 0 || e.reason != reason {
		t.Errorf("it ended with %d, %q: %s", e.code, e.reason, e.message)
	}
	for _, word := range words {
		if !strings.Contains(e.message, word) {
			t.Errorf("%q does not contain %q", e.message, word)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestEcho(t *testing.T) {
	w := newEnv(t)
	const input = `{"a": [1, {"b": null}], "é": "<&>", "n": 12345678901234567890.5}`
	if e := w.run(t.Context(), "echo", input); e.code != 0 {
		t.Fatalf("%+v", e)
	}
	text, err := os.ReadFile(filepath.Join(w.out, "result.json"))
	var same, want bytes.Buffer
	if err != nil || json.Compact(&same, text) != nil || json.Compact(&want, []byte(input)) != nil {
		t.Fatal(err)
	}
	if got := strings.ReplaceAll(same.String(), `\u003c\u0026\u003e`, "<&>"); got != want.String() {
		t.Errorf("%s comes back as %s", want.String(), got)
	}
	e := w.run(t.Context(), "echo", `{"a": "`+strings.Repeat("x", 300<<10)+`"}`)
	e.failed(t, "exit_code", "256KiB")
}

func TestSpread(t *testing.T) {
	var ms []float64
	for i := 100; i >= 1; i-- {
		ms = append(ms, float64(i))
	}
	if s := newDurationStats(ms); *s != (durationStats{Mean: 50.5, Min: 1, P50: 50, P90: 90, P95: 95, P99: 99, Max: 100}) {
		t.Errorf("%+v", *s)
	}
	if s := newDurationStats([]float64{7}); *s != (durationStats{7, 7, 7, 7, 7, 7, 7}) || newDurationStats(nil) != nil {
		t.Errorf("%+v", *s)
	}
}

func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := make(chan string, 10)
	stop := followLines(f, func(b []byte) { seen <- string(b) })
	for _, part := range []string{"one\ntw", "o\nthree\nfou"} {
		to, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := to.WriteString(part); err != nil {
			t.Fatal(err)
		}
		if err := to.Close(); err != nil {
			t.Fatal(err)
		}
		if part == "one\ntw" && <-seen != "one" {
			t.Error("the first line is another")
		}
	}
	stop()
	close(seen)
	var rest []string
	for s := range seen {
		rest = append(rest, s)
	}
	if !slices.Equal(rest, []string{"two", "three"}) {
		t.Errorf("then came %q", rest)
	}
}
