package dtf

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
)

func TestResultsAreKeptInAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results ?#.db")
	for range 2 { // a second time over the first
		r, err := openResults(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []storedResult{
			{TaskID: "a", TaskType: "hash", Config: json.RawMessage(`{"data":"é"}`), Status: "completed", Result: json.RawMessage(`{"digest":"x"}`), Seconds: 1.5, WorkerID: "w", Coordinator: "http://c", Job: 7, Ended: time.Unix(1715000000, 0)},
			{TaskID: "b'; --", TaskType: "test", Config: json.RawMessage(`{}`), Status: "failed", Error: "no such file", WorkerID: "w", Coordinator: "http://c", Ended: time.Unix(1715000000, 0)},
		} {
			if err := r.put(t.Context(), &s); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 to read it with")
	}
	out, err := exec.CommandContext(t.Context(), python, "-c", "import sqlite3,sys\nfor r in sqlite3.connect(sys.argv[1]).execute('select task_id,status,execution_time_seconds,result,error,muster_job,ended_at from task_results order by 1'): print(r)", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := `('a', 'completed', 1.5, '{"digest":"x"}', None, 7, '2024-05-06T12:53:20Z')` + "\n" + `("b'; --", 'failed', 0.0, None, 'no such file', 0, '2024-05-06T12:53:20Z')` + "\n"
	if string(out) != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
}

func TestAnotherFileIsNotOverwritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "benchmark_db.duckdb")
	if err := os.WriteFile(path, []byte(strings.Repeat("DUCK", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openResults(t.Context(), path); muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), "not an SQLite database") {
		t.Errorf("it was opened: %v", err)
	}
	if raw, err := os.ReadFile(path); err != nil || len(raw) != 4000 {
		t.Errorf("it was changed: %d bytes, %v", len(raw), err)
	}
}
