package results

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
)

// sweep is a job with a matrix of three elements and a stage after them.
func sweep() *muster.Job {
	return &muster.Job{
		ID: 17, Name: "sweep", Project: "vision", Labels: map[string]string{"team": "a"},
		Groups: []muster.Group{{Name: "train", Size: 3}, {Index: 1, Name: "report", First: 3, Size: 1}},
		Spec: &muster.Spec{
			Params: map[string]muster.Param{"epochs": {Default: json.RawMessage("3"), Value: json.RawMessage("5")}},
			Tasks: []muster.TaskSpec{
				{Name: "train", Matrix: &muster.Matrix{Axes: []muster.Axis{{Name: "lr", Values: []string{"0.1", "0.01", "1"}}}}},
				{Name: "report"},
			},
		},
	}
}

func rows(job *muster.Job, list ...string) []row {
	var all []row
	for i, raw := range list {
		group := min(i/max(job.Groups[0].Size, 1), len(job.Groups)-1)
		t := &muster.Task{ID: muster.TaskID{Job: job.ID, Num: i}, Job: job.ID, Index: i, Group: group, Name: job.Groups[group].Name, State: muster.Succeeded, Kind: "script", Result: json.RawMessage(raw)}
		all = append(all, row{job, t})
	}
	return all
}

// load spools rows, as write does.
func load(t *testing.T, all []row) (*schema, *spool) {
	t.Helper()
	s, err := newSpool()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	columns := newSchema()
	for _, r := range all {
		columns.add(r)
		if err := s.add(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.finish(); err != nil {
		t.Fatal(err)
	}
	columns.finish()
	return columns, s
}

// TestTable checks the table of a job with parameters, nested results and a stage without elements.
func TestTable(t *testing.T) {
	columns, s := load(t, rows(sweep(), `{"accuracy": 0.5, "by": {"class": 1}, "note": "a\nb\u001b[2J"}`, `{"accuracy": 1, "tags": ["x", 1]}`, ``, `"done"`))
	var b bytes.Buffer
	if err := drawTable(term.Screen{Writer: &b}, columns, s); err != nil {
		t.Fatal(err)
	}
	want := `
TASK  STAGE   INDEX  epochs    lr  STATE      accuracy  by.class  note     tags     RESULT
17.0  train       0       5   0.1  succeeded       0.5         1  a b [2J
17.1  train       1       5  0.01  succeeded         1                     ["x",1]
17.2  train       2       5     1  succeeded
17.3  report              5        succeeded                                        "done"
`
	if got := trimLines(b.String()); got != want[1:] {
		t.Errorf("the table is\n%swant%s", got, want)
	}
}

func trimLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// TestTypes checks which type a column has, and what its values become.
func TestTypes(t *testing.T) {
	for _, c := range []struct {
		values string // of the field x
		kind   kind
		want   []value
	}{
		{`1 2`, integer, []value{int64(1), int64(2)}},
		{`1 0.5`, number, []value{float64(1), 0.5}},
		{`9223372036854775807 9223372036854775808`, number, []value{float64(math.MaxInt64), float64(math.MaxInt64)}},
		{`1e3 -0.0`, number, []value{float64(1000), math.Copysign(0, -1)}},
		{`true null`, boolean, []value{true, nil}},
		{`true 1`, text, []value{"true", "1"}},
		{`1 "1" 0.25`, text, []value{"1", "1", "0.25"}},
		{`1e999 1`, text, []value{"1e999", "1"}},
		{`[1,{"a":2}] 1`, text, []value{`[1,{"a":2}]`, "1"}},
		{`null null`, text, []value{nil, nil}},
	} {
		var list []string
		for v := range strings.FieldsSeq(c.values) {
			list = append(list, `{"x": `+v+`}`)
		}
		all := rows(&muster.Job{ID: 1, Groups: []muster.Group{{Size: 9}}}, list...)
		columns, _ := load(t, all)
		if len(columns.columns) != 1 || columns.columns[0] != (column{"result.x", c.kind}) {
			t.Errorf("%s: the columns are %v", c.values, columns.columns)
			continue
		}
		for i, r := range all {
			if got := columns.values(r)[len(fixed)]; got != c.want[i] || math.Signbit(asFloat(got)) != math.Signbit(asFloat(c.want[i])) {
				t.Errorf("%s: value %d is %#v, want %#v", c.values, i, got, c.want[i])
			}
		}
	}
}

func asFloat(v value) float64 {
	f, _ := v.(float64)
	return f
}

// TestNumberOfColumnsIsBounded checks that results with a field of their own each neither use memory without limit nor lose the result.
func TestNumberOfColumnsIsBounded(t *testing.T) {
	var list []string
	for i := range 2 * maxFields {
		list = append(list, fmt.Sprintf(`{"user%d": %d}`, i, i))
	}
	list = append(list, `{"`+strings.Repeat("é", 5000)+`": 1}`, strings.Repeat(`{"a":`, 100)+"1"+strings.Repeat("}", 100))
	all := rows(&muster.Job{ID: 1, Groups: []muster.Group{{Size: len(list)}}}, list...)
	columns, s := load(t, all)
	if len(columns.columns) != maxFields || columns.omitted != maxFields+2 {
		t.Errorf("%d columns, %d omitted", len(columns.columns), columns.omitted)
	}
	var b bytes.Buffer
	if err := writeCSV(&b, columns, s); err != nil || !strings.Contains(b.String(), `"{""user999"":999}"`) {
		t.Errorf("%v: %d bytes", err, b.Len())
	}
}

// TestCSVHasNoFormulas checks that texts of tasks are no formulas for spreadsheets, that numbers are as they were, and that a reader of CSV
// reads all texts as they were written.
func TestCSVHasNoFormulas(t *testing.T) {
	texts := []string{"=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "a\"b,c\nd", "-0.5", "+5", "- 5", "fine", "'quoted"}
	want := []string{"'=1+1", "'+cmd|' /C calc'!A0", "'-2+3", "'@SUM(A1)", "'\t=1", "'\r=1", "a\"b,c\nd", "-0.5", "'+5", "'- 5", "fine", "'quoted"}
	var list []string
	for _, s := range texts {
		quoted, err := json.Marshal(map[string]string{"=x": s})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, string(quoted))
	}
	job := &muster.Job{ID: 1, Name: "=HYPERLINK(1)", Groups: []muster.Group{{Size: len(list)}}}
	columns, s := load(t, rows(job, list...))
	var b bytes.Buffer
	if err := writeCSV(&b, columns, s); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(lines) != len(texts)+1 {
		t.Fatalf("%d lines, %v", len(lines), err)
	}
	at, name := slices.Index(lines[0], "result.=x"), slices.Index(lines[0], "job_name")
	for i := range texts {
		if got := lines[i+1][at]; got != want[i] || lines[i+1][name] != "'=HYPERLINK(1)" {
			t.Errorf("%q is written as %q, the name as %q", texts[i], got, lines[i+1][name])
		}
	}
}

// TestParquet checks the names, order, types and values of the columns of a file, as another reader sees them.
func TestParquet(t *testing.T) {
	all := rows(sweep(), `{"accuracy": 0.5, "n": 3, "ok": true, "by": {"Class": "é"}}`, `{"accuracy": 1, "n": null}`, ``)
	at := time.Date(2026, 11, 28, 12, 0, 0, 5e6, time.UTC)
	code := 3
	all[0].task.FinishedAt, all[0].task.ExitCode, all[0].task.Usage = muster.NewTime(at), &code, &muster.Usage{WallSeconds: 1.5}
	columns, s := load(t, all)
	var b bytes.Buffer
	if err := writeParquet(&b, columns, s); err != nil {
		t.Fatal(err)
	}
	f, err := parquet.OpenFile(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range f.Schema().Fields() {
		names = append(names, c.Name())
	}
	want := []string{"task", "job", "job_name", "project", "stage", "index", "element", "kind", "state", "reason", "message", "exit_code", "attempt", "worker", "worker_id", "created_at", "started_at", "finished_at", "wall_seconds", "cpu_seconds", "memory_peak", "gpu_avg", "vram_peak", "energy_wh", "cost", "labels", "result", "param.epochs", "param.lr", "result.accuracy", "result.n", "result.ok", "result.by.Class"}
	if !slices.Equal(names, want) {
		t.Errorf("the columns are %q", names)
	}
	if f.NumRows() != 3 || f.Metadata().CreatedBy == "" {
		t.Errorf("%d rows", f.NumRows())
	}
	read := make([]parquet.Row, 3)
	r := f.RowGroups()[0].Rows()
	defer r.Close()
	if n, err := r.ReadRows(read); n != 3 || err != nil && !errors.Is(err, io.EOF) {
		t.Fatalf("%d rows, %v", n, err)
	}
	first := map[string]string{}
	for i, v := range read[0] {
		first[names[i]] = v.String()
	}
	for name, value := range map[string]string{
		"task": "17.0", "job": "17", "project": "vision", "stage": "train", "index": "0", "state": "succeeded", "exit_code": "3", "finished_at": strconv.FormatInt(at.UnixMilli(), 10), "started_at": "<null>",
		"wall_seconds": "1.5", "labels": `{"team":"a"}`, "param.epochs": "5", "param.lr": "0.1", "result.accuracy": "0.5", "result.n": "3", "result.ok": "true", "result.by.Class": "é",
	} {
		if first[name] != value {
			t.Errorf("%s is %q, want %q", name, first[name], value)
		}
	}
	if v := read[1][slices.Index(names, "result.accuracy")]; v.Double() != 1 || v.IsNull() {
		t.Errorf("the second accuracy is %v", v)
	}
	if v := read[2][slices.Index(names, "result.accuracy")]; !v.IsNull() {
		t.Errorf("the third accuracy is %v", v)
	}
}

// TestMemoryDoesNotGrowWithTheNumberOfTasks checks that the table of many tasks is written in all formats with the memory of few.
func TestMemoryDoesNotGrowWithTheNumberOfTasks(t *testing.T) {
	n := 20_000
	if testing.Short() {
		n = 4_000
	}
	job := &muster.Job{ID: 1, Groups: []muster.Group{{Name: "a", Size: n}}, Spec: &muster.Spec{Tasks: []muster.TaskSpec{{Array: &muster.Array{Ranges: []muster.Range{{Last: int64(n) - 1, Step: 1}}}}}}}
	peak := uint64(0)
	var m runtime.MemStats
	all := func(yield func(row, error) bool) {
		for i := range n {
			if i%(n/10) == 0 {
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapInuse)
			}
			task := &muster.Task{ID: muster.TaskID{Job: 1, Num: i}, State: muster.Succeeded, Result: fmt.Appendf(nil, `{"loss": %g, "text": "%0500d"}`, 1/float64(i+1), i)}
			if !yield(row{job, task}, nil) {
				return
			}
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&m)
	before := m.HeapInuse
	dir := t.TempDir()
	a := &app.App{Out: term.Screen{Writer: io.Discard}, Err: term.Screen{Writer: io.Discard}}
	for _, to := range []Target{{Format: Table}, {Format: CSV}, {Format: CSV, File: filepath.Join(dir, "a.csv")}, {Format: Parquet, File: filepath.Join(dir, "a.parquet")}} {
		if err := write(t.Context(), a, to, all); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&m)
		peak = max(peak, m.HeapInuse)
	}
	if grown := int64(peak) - int64(before); grown > 256<<20 {
		t.Errorf("the heap grew by %s for %s of results", muster.Size(grown), muster.Size(n*500))
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "muster-results-*")); err != nil || len(left) > 0 {
		t.Errorf("temporary files are left: %q, %v", left, err)
	}
}

// TestFileIsNotReplaced checks that nothing is read or written if the file exists, unless that is asked for, and that a failure leaves it as it
// was.
func TestFileIsNotReplaced(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.csv")
	if err := os.WriteFile(name, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &app.App{Out: term.Screen{Writer: io.Discard}, Err: term.Screen{Writer: io.Discard}}
	read := false
	failing := func(yield func(row, error) bool) {
		read = true
		yield(row{}, errors.New("the connection was lost"))
	}
	if err := write(t.Context(), a, Target{Format: CSV, File: name}, failing); muster.CodeOf(err) != muster.Conflict || read {
		t.Errorf("%v; read: %t", err, read)
	}
	if err := write(t.Context(), a, Target{Format: CSV, File: name, Force: true}, failing); err == nil || !read {
		t.Errorf("a failure of the server: %v", err)
	}
	if b, err := os.ReadFile(name); string(b) != "mine" || err != nil {
		t.Errorf("the file has %q, %v", b, err)
	}
	if err := write(t.Context(), a, Target{Format: CSV, File: filepath.Dir(name), Force: true}, failing); err == nil || !strings.Contains(err.Error(), "is not a file") {
		t.Errorf("a directory: %v", err)
	}
	ok := func(yield func(row, error) bool) { yield(rows(sweep(), `{"a": 1}`)[0], nil) }
	if err := write(t.Context(), a, Target{Format: CSV, File: name, Force: true}, ok); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(name); !strings.HasPrefix(string(b), "task,job,") || err != nil {
		t.Errorf("the file has %q, %v", b, err)
	}
}

// TestAnyResultHasARow checks for any JSON that it is in the table: as it is in the column result, and each of its values below its name.
func TestAnyResultHasARow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(anyJSON(3), 1, 5).Draw(t, "results")
		var list []string
		for _, v := range raw {
			b, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, string(b))
		}
		all := rows(&muster.Job{ID: 1, Groups: []muster.Group{{Size: len(list)}}}, list...)
		columns := newSchema()
		for _, r := range all {
			columns.add(r)
		}
		columns.finish()
		at := slices.IndexFunc(columns.all(), func(c column) bool { return c.name == "result" })
		for i, r := range all {
			cells := columns.values(r)
			if cells[at] != list[i] {
				t.Fatalf("the result %s is %v", list[i], cells[at])
			}
			for k, v := range cells {
				if want := columns.all()[k].kind; v != nil && kindOf(v) != want {
					t.Fatalf("%s of %s is %#v, not of type %d", columns.all()[k].name, list[i], v, want)
				}
			}
			object, _ := raw[i].(map[string]any)
			for name, v := range object {
				s, isText := v.(string)
				if k, ok := columns.byName["result."+name]; ok && isText && !strings.Contains(name, ".") && !reflect.DeepEqual(cells[len(fixed)+k], s) {
					t.Fatalf("%s of %s is %#v", name, list[i], cells[len(fixed)+k])
				}
			}
		}
	})
}

func anyJSON(depth int) *rapid.Generator[any] {
	scalars := []*rapid.Generator[any]{
		rapid.Just[any](nil), rapid.Map(rapid.Bool(), func(v bool) any { return v }), rapid.Map(rapid.Int64(), func(v int64) any { return v }),
		rapid.Map(rapid.Float64Range(-1e300, 1e300), func(v float64) any { return v }), rapid.Map(rapid.String(), func(v string) any { return v }),
	}
	if depth > 0 {
		scalars = append(scalars, rapid.Map(rapid.SliceOfN(anyJSON(depth-1), 0, 3), func(v []any) any { return v }),
			rapid.Map(rapid.MapOfN(rapid.StringMatching(`[a-cA=.é ]{0,3}`), anyJSON(depth-1), 0, 4), func(v map[string]any) any { return v }))
	}
	return rapid.OneOf(scalars...)
}

// TestOtherReadersOfParquet checks that DuckDB and Arrow read a file with the types and values that it has.
func TestOtherReadersOfParquet(t *testing.T) {
	if exec.CommandContext(t.Context(), "python3", "-c", "import duckdb, pyarrow").Run() != nil {
		t.Skip("skipped: python3 has no DuckDB and PyArrow")
	}
	name := filepath.Join(t.TempDir(), "a.parquet")
	a := &app.App{Out: term.Screen{Writer: io.Discard}, Err: term.Screen{Writer: io.Discard}}
	all := func(yield func(row, error) bool) {
		for _, r := range rows(sweep(), `{"loss": 0.5, "Loss": 1, "ok": true, "list": [1], "mixed": 1}`, `{"loss": 2, "mixed": "é"}`, ``) {
			r.task.FinishedAt = 1764331200005
			if !yield(r, nil) {
				return
			}
		}
	}
	if err := write(t.Context(), a, Target{Format: Parquet, File: name}, all); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "python3", "-c", `
import sys, duckdb, pyarrow.parquet as pq
table = pq.read_table(sys.argv[1])
print(table.schema.field("finished_at").type, table.schema.field("result.loss").type, table.schema.field("result.Loss").type)
print(table.column("result.mixed").to_pylist(), table.column("result.list").to_pylist())
print(duckdb.sql(f"""select task, "param.lr", "result.loss", "result.ok", epoch_ms(finished_at) from '{sys.argv[1]}' where job = 17 order by "result.loss" desc nulls last""").fetchall())
`, name).CombinedOutput()
	want := "timestamp[ms, tz=UTC] double int64\n['1', 'é', None] ['[1]', None, None]\n" +
		"[('17.1', 0.01, 2.0, None, 1764331200005), ('17.0', 0.1, 0.5, True, 1764331200005), ('17.2', 1.0, None, None, 1764331200005)]\n"
	if err != nil || string(out) != want {
		t.Errorf("%v:\n%swant\n%s", err, out, want)
	}
}
