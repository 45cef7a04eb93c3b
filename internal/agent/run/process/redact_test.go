//go:build unix

package process_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/redact"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/process"
	"github.com/muster-dev/muster/internal/agent/run/runtest"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/testkit"
)

const secret = "hf_k9/Q+x=&<zé> \"7WmVb3TgYp2LcR8sNdJqE4uXo"

// encodings returns the secret as programs print it.
func encodings(t *testing.T) map[string]string {
	t.Helper()
	quoted, err := json.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	in64 := base64.StdEncoding.EncodeToString([]byte("user:" + secret + "@host"))
	return map[string]string{
		"plain": secret, "json": string(quoted), "query": url.QueryEscape(secret), "path": url.PathEscape(secret),
		"base64-0": base64.StdEncoding.EncodeToString([]byte(secret)), "base64-2": in64, "base64-url": base64.RawURLEncoding.EncodeToString([]byte("x" + secret)),
		"base64-lines": in64[:40] + "\n" + in64[40:],
	}
}

// leaks returns the parts of the secret, in any encoding, that a text has.
func leaks(t *testing.T, text []byte) (found []string) {
	t.Helper()
	for name, form := range encodings(t) {
		if strings.HasPrefix(name, "base64") {
			form = form[8 : len(form)-8] // the rest is also of what is beside it
		}
		for i := 0; i+9 <= len(form); i++ {
			if part := form[i : i+9]; !strings.Contains(part, "\n") && bytes.Contains(text, []byte(part)) {
				found = append(found, name+": "+part)
			}
		}
	}
	return found
}

// syncBuffer is a buffer for a logger.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

// A value that a task prints, reports and writes in any encoding and in pieces of any size does not leave the task: not before and after a
// restart of the worker, and not by its files.
func TestSecretsDoNotLeave(t *testing.T) {
	if runtime.GOOS != "linux" || testing.Short() {
		t.Skip("it is about shims, which are on Linux only, and not for -short")
	}
	w := runtest.NewEnv(t, os.Args[0], shimArg)
	logged := &syncBuffer{}
	w.Deps.Log = slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	dir := runtest.SharedDir(w.Deps)
	for name, text := range encodings(t) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const printAll = `print() {
		for f in $DIR/*; do
			for size in 1 2 3 5 7 11 64; do
				echo; echo "-$size-"; dd if="$f" bs=$size status=none
				dd if="$f" bs=$size status=none >&2; echo " permission denied" >&2
			done
			head -c 20 "$f"; sleep 0.3; tail -c +21 "$f"; echo # longer than the start of a line waits
			echo "::muster step=$(cat $DIR/json)"; echo "::muster $(cat $DIR/plain)=1"; echo "::muster {\"step\": \"a $(cat $DIR/query)\"}"
			printf '{"step": "b %s", "x": 1}\n{"%s": 1}\n%s\n' "$(cat $DIR/base64-0)" "$(cat $DIR/path)" "$(cat $f)" >> "$MUSTER_EVENTS"
		done
		}; print; `
	text := printAll + `touch $GO.1; while [ ! -e $GO ]; do sleep 0.02; done; print
		printf '{"a": %s, "b": ["%s", 1], "%s": null}' "$(cat $DIR/json)" "$(cat $DIR/base64-2)" "$(cat $DIR/query)" > "$MUSTER_OUT/result.json"
		printf '{"reason": "bad_input", "message": "%01983d %s"}' 0 "$(cat $DIR/plain | sed 's/"/\\"/')" > "$MUSTER_OUT/failure.json"
		exit 3`
	goFile := filepath.Join(t.TempDir(), "go")
	id := muster.AttemptID{Task: muster.TaskID{Job: 1}, N: 1}
	task := &run.Task{
		Attempt: id, Job: "j1", Redact: [][]byte{[]byte(secret)},
		Spec: &muster.TaskSpec{Run: &muster.Command{Shell: text}, Env: map[string]string{"DIR": dir, "GO": goFile}},
	}
	x, err := process.New(w.Deps)
	if err != nil {
		t.Fatal(err)
	}
	recorder := &runtest.Recorder{}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan muster.Report, 1)
	go func() { ended <- x.Run(ctx, task, recorder) }()
	testkit.Await(t, "the first output", func() bool { _, err := os.Stat(goFile + ".1"); return err == nil })
	cancel(run.ErrDetach)
	<-ended

	w.Restart(t)
	if x, err = process.New(w.Deps); err != nil {
		t.Fatal(err)
	}
	recovered := w.Deps.Supervisor.Recovered()
	if len(recovered) != 1 {
		t.Fatalf("%d attempts are recovered", len(recovered))
	}
	next, err := recovered[0].Task()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(goFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	timeout, cancelTimeout := context.WithTimeout(t.Context(), runtest.Timeout)
	defer cancelTimeout()
	report := x.Run(timeout, next, recorder)

	if got := string(report.Result); !strings.HasPrefix(got, `{"a": "***", "b": ["`) || !strings.Contains(got, redact.Mask+`QGhvc3Q=", 1], "***": null}`) {
		t.Errorf("the result is %s", got)
	}
	if report.Reason != muster.BadInput || !strings.HasSuffix(report.Message, "0 "+redact.Mask) {
		t.Errorf("%s (%s)", report.Reason, report.Message)
	}
	w.Restart(t)
	for name, v := range map[string]any{"report": report, "progress": recorder.Updates(), "saved report": w.Deps.Supervisor.Recovered()[0].Report} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if found := leaks(t, b); len(found) > 0 {
			t.Errorf("%s: %q", name, found)
		}
	}
	logged.mu.Lock()
	if found := leaks(t, logged.b.Bytes()); len(found) > 0 {
		t.Errorf("the worker's log: %q", found)
	}
	logged.mu.Unlock()
	for _, stream := range []tasklog.Stream{tasklog.Stdout, tasklog.Stderr} {
		if got := w.Output(t, id, stream); len(leaks(t, []byte(got))) > 0 || strings.Count(got, redact.Mask) < 2*8*7 || strings.Count(got, "-64-") != 2*8 && stream == tasklog.Stdout {
			t.Errorf("stream %d: %q in:\n%.3000s", stream, leaks(t, []byte(got)), got)
		}
	}
	files := 0
	err = filepath.WalkDir(w.Deps.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		files++
		if found := leaks(t, b); len(found) > 0 {
			t.Errorf("%s: %q", path, found)
		}
		return err
	})
	if err != nil || files < 3 || len(recorder.Updates()) == 0 {
		t.Errorf("%d files, %d events, %v", files, len(recorder.Updates()), err)
	}
}

// A value that a failing task prints last is neither in the message nor in the result that it has of its output.
func TestSecretsDoNotLeaveByTheTail(t *testing.T) {
	w := runtest.NewEnv(t)
	x, err := process.New(w.Deps)
	if err != nil {
		t.Fatal(err)
	}
	id := muster.AttemptID{Task: muster.TaskID{Job: 1}}
	for name, text := range encodings(t) {
		id.N++
		report := x.Run(t.Context(), &run.Task{
			Attempt: id, Redact: [][]byte{[]byte(secret)},
			Spec: &muster.TaskSpec{Run: &muster.Command{Shell: `printf '%s\n' "$VALUE"; printf 'denied: %s\n' "$VALUE" >&2; exit 3`}, Env: map[string]string{"VALUE": text}},
		}, &runtest.Recorder{})
		if !strings.HasPrefix(report.Message, "exit code 3: ") || !strings.Contains(report.Message, redact.Mask) || strings.Count(string(report.Result), redact.Mask) < 2 {
			t.Errorf("%s: the message is %q, the result %s", name, report.Message, report.Result)
		}
		if found := leaks(t, append([]byte(report.Message), report.Result...)); len(found) > 0 {
			t.Errorf("%s: the report has %q", name, found)
		}
	}
}
