package bench

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
)

// The results in testdata were left by tasks of kind benchmark: a Bert of two layers, with 5 and with 10 iterations.

func recordedTask(t *testing.T, num int, worker, file string) muster.Task {
	t.Helper()
	task := muster.Task{ID: muster.TaskID{Job: 7, Num: num}, Worker: muster.WorkerID(worker), State: muster.Succeeded, FinishedAt: 1_800_000_000_123}
	if file != "" {
		var err error
		if task.Result, err = os.ReadFile(filepath.Join("testdata", file)); err != nil {
			t.Fatal(err)
		}
	}
	return task
}

func twoReports(t *testing.T) []column {
	t.Helper()
	all, out := parseReports([]muster.Task{recordedTask(t, 0, "w-1", "result-1.json"), recordedTask(t, 1, "w-2", "result-2.json")}, []muster.Worker{{ID: "w-1", Name: "box"}})
	if len(all) != 2 || len(out) != 0 {
		t.Fatalf("%d results, left out: %v", len(all), out)
	}
	return all
}

func TestReadListsOmittedTasks(t *testing.T) {
	running, failed, other := recordedTask(t, 1, "w", ""), recordedTask(t, 2, "w", ""), recordedTask(t, 3, "w", "")
	running.State, failed.State, other.Result = muster.Running, muster.TimedOut, json.RawMessage(`{"accuracy": 1}`)
	list := recordedTask(t, 4, "w", "")
	list.Result = json.RawMessage(`[1]`)
	all, out := parseReports([]muster.Task{running, failed, other, list, recordedTask(t, 5, "w", "result-1.json")}, nil)
	want := []string{
		"task 7.1 is running and has no result yet", "task 7.2 has timed out without a result",
		"the result of task 7.3 is not of a benchmark", "the result of task 7.4 is not of a benchmark",
	}
	if diff := cmp.Diff(want, out); diff != "" || len(all) != 1 || all[0].worker != "w" {
		t.Errorf("%d read, left out: %s", len(all), diff)
	}
}

// TestTasksWithoutMeasurementsAreListed checks what the exit status tells: a job with a benchmark among its stages did measure.
func TestTasksWithoutMeasurementsAreListed(t *testing.T) {
	all := twoReports(t)[:1] // of task 7.0
	for named, want := range map[string]bool{"7": true, "7.0": true, "7.1": false, "8": false} {
		sel, err := remote.ParseSelector(named)
		if err != nil {
			t.Fatal(err)
		}
		if got := hasResults(&sel, all); got != want {
			t.Errorf("%s measured: %t", named, got)
		}
	}
}

func TestTableHasRatios(t *testing.T) {
	var out, stderr bytes.Buffer
	a := &runner{&app.App{Out: term.Screen{Writer: &out}, Err: term.Screen{Writer: &stderr}}}
	all := twoReports(t)
	half, mib := 110.0, int64(1<<20)
	all[1].report.Runs[1].Throughput = &half
	all[1].report.Runs[0].Error, all[1].report.Runs[0].Throughput = failure{Reason: "out_of_memory"}, nil
	all[0].report.Runs[0].PeakMemory = &mib
	all[1].report.Runs = all[1].report.Runs[:3]
	if err := a.render(&config{metric: metricThroughput}, all, []string{"task 7.9 is running and has no result yet"}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{
		"BATCH PRECISION box w-2", "1 fp32 24.0/s out_of_memory", "8 fp32 219.6/s 110.0/s ×0.50", "", "8 bf16 45.3/s",
		"1 tf32 not_supported", "8 tf32 not_supported", "", "box task 7.0: config:bert on cpu", "w-2 task 7.1: config:bert on cpu", "",
	} {
		if got := strings.Join(strings.Fields(lines[i]), " "); got != want && i != 3 {
			t.Errorf("line %d is %q, want %q", i, got, want)
		}
	}
	if want := "note: task 7.9 is running and has no result yet\nnote: not comparable: number of iterations is 5 in task 7.0 and 10 in task 7.1\n"; stderr.String() != want {
		t.Errorf("got:\n%s", stderr.String())
	}
	out.Reset()
	other := twoReports(t)
	other[1].report.Model = "org/other"
	if err := a.render(&config{metric: metricThroughput}, other, nil); err != nil || strings.Contains(out.String(), "×") {
		t.Errorf("%v; of another model it shows\n%s", err, out.String())
	}
	for by, want := range map[string]string{metricMemory: "1MiB", metricLatency: "29.15 ms", metricEnergy: "-"} {
		out.Reset()
		if err := a.render(&config{metric: by}, all, nil); err != nil {
			t.Fatal(err)
		}
		if line := strings.Split(out.String(), "\n")[1]; !strings.Contains(line, want) {
			t.Errorf("by %s: %q has no %s", by, line, want)
		}
	}
}

func TestIncomparableRuns(t *testing.T) {
	all := twoReports(t)
	all[1].report.Runs = all[1].report.Runs[4:] // tf32, which neither could
	all[1].report.Model, all[1].report.Task, all[1].report.Compile = "org/other", "", true
	all[1].report.Shape = json.RawMessage(`{"input_ids":[32],"attention_mask":[32]}`)
	var notes []string
	for _, s := range comparabilityNotes(all) {
		notes = append(notes, strings.TrimPrefix(s, "not comparable: "))
	}
	want := []string{
		"model is config:bert in task 7.0 and org/other in task 7.1",
		"measured task is forward in task 7.0 and unknown in task 7.1",
		`input shape is {"attention_mask":[16],"input_ids":[16]} in task 7.0 and {"attention_mask":[32],"input_ids":[32]} in task 7.1`,
		"compile is false in task 7.0 and true in task 7.1",
		"number of iterations is 5 in task 7.0 and 10 in task 7.1",
	}
	if diff := cmp.Diff(want, notes); diff != "" {
		t.Error(diff)
	}
}

func TestFilesHaveEveryMetric(t *testing.T) {
	want := rows(twoReports(t))
	name := filepath.Join(t.TempDir(), "all.parquet")
	if err := os.WriteFile(name, []byte("an older file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeParquet(name, want); err != nil {
		t.Fatal(err)
	}
	got, err := parquet.ReadFile[row](name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	first := got[0]
	if len(got) != 12 || first.Worker != "box" || *first.Throughput != 24.047 || *first.P99 != 89.7982 || first.Energy != nil || first.Torch != "2.15.0" || *first.Cores != 2 {
		t.Errorf("%d rows, the first %+v", len(got), first)
	}
	if last := got[11]; last.Error != "not_supported" || last.Message == "" || last.Mean != nil {
		t.Errorf("the last is %+v", last)
	}
	var text bytes.Buffer
	if err := writeCSV(&text, want); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&text).ReadAll()
	if err != nil || len(lines) != 13 || lines[0][0] != "task" || lines[1][0] != "7.0" || lines[1][3] != "2027-01-15T08:00:00.123Z" {
		t.Errorf("%v: %q", err, lines)
	}
}

// A file that cannot be written leaves nothing behind, and what was there stays.
func TestParquetIsWrittenAtomically(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(name, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := writeParquet(name, rows(twoReports(t))); muster.CodeOf(err) != muster.Invalid {
		t.Errorf("a folder was written: %v", err)
	}
	if err := writeParquet(filepath.Join(dir, "none", "x.parquet"), nil); muster.CodeOf(err) != muster.Invalid {
		t.Errorf("a missing folder: %v", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("%v: got %v", err, left)
	}
}
