//go:build unix

package shim

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/agent/redact"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/testkit"
)

// The values of a task's secrets stay known when the worker is killed, and are in no file.
func TestSecretsSurviveAKilledWorker(t *testing.T) {
	needShims(t)
	dir := t.TempDir()
	value := []byte("hunter2-hunter2-hunter2")
	// Escapes that no encoder writes are found after they are decoded.
	s := shellTask(t, `report() { echo "$1 $SECRET" "$(printf %s "$SECRET" | base64)"; echo "::muster step=\"$1 hunter2-h\\u0075nter2-hunter2\""; echo '::muster {"hunter2-h\u0075nter2-hunter2": 1, "loss": 2}'; }
		report one; touch ready; while [ ! -e go ]; do sleep 0.01; done; report two`)
	s.Env, s.Redact = append(s.Env, "SECRET="+string(value)), [][]byte{value}
	w := startWorker(t, dir)
	w.do(workerCommand{Start: s})
	testkit.Await(t, "output", func() bool { _, err := os.Stat(filepath.Join(s.Dir, "ready")); return err == nil })
	w.kill()

	c := openDetached(t, dir)
	h := recoveredAttempt(t, c)
	if !slices.EqualFunc(h.Start.Redact, s.Redact, bytes.Equal) {
		t.Errorf("the recovered values are %q", h.Start.Redact)
	}
	p, k := adopt(t, c, h)
	if err := os.WriteFile(filepath.Join(s.Dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.AppendLog(tasklog.System, []byte("a line of the worker\n"))
	waitTask(t, p)
	const want = "one *** ***=\ntwo *** ***=\n"
	if got := printed(t, dir, s.Attempt, tasklog.Stdout); got != want {
		t.Errorf("it printed %q, want %q", got, want)
	}
	got, _ := k.last()
	if got.Step == nil || *got.Step != "two "+redact.Mask || len(got.Metrics) != 1 || got.Metrics["loss"] != 2 {
		b, err := json.Marshal(got)
		t.Errorf("its progress is %s, %v", b, err)
	}
	encoded := base64.StdEncoding.EncodeToString(value)
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		b, err := os.ReadFile(path)
		if text := string(b); strings.Contains(text, string(value)) || strings.Contains(text, encoded) {
			t.Errorf("%s has the value", path)
		}
		return err
	})
	if err != nil || files < 3 {
		t.Errorf("%d files, %v", files, err)
	}
}
