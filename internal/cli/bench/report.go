package bench

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
)

// report is the result of one task of kind benchmark.
type report struct {
	Model   string          `json:"model"`
	Device  string          `json:"device"`
	Task    string          `json:"task"`
	Shape   json.RawMessage `json:"shape"`
	Warmup  *int64          `json:"warmup"`
	Compile bool            `json:"compile"`
	System  json.RawMessage `json:"system"`
	Runs    []measurement   `json:"runs"`
}

// measurement is one combination of a report.
type measurement struct {
	BatchSize  int64    `json:"batch_size"`
	Precision  string   `json:"precision"`
	Iterations int64    `json:"iterations"`
	Latency    *latency `json:"latency_ms"`
	Throughput *float64 `json:"throughput"` // items a second
	Tokens     *float64 `json:"tokens_per_second"`
	PeakMemory *int64   `json:"peak_memory"`
	Energy     *float64 `json:"energy_j"`
	Error      failure  `json:"error"`
}

type latency struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Min  float64 `json:"min"`
	Max  float64 `json:"max"`
}

// failure is why a combination could not be measured: a reason, or an object with a reason and a message.
type failure struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *failure) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &f.Reason) == nil {
		return nil
	}
	type plain failure
	return json.Unmarshal(b, (*plain)(f))
}

// column is one compared task.
type column struct {
	task   muster.Task
	worker string // name; id if the worker was removed
	report report
}

// parseReports returns the tasks with measurements, and why the others are skipped.
func parseReports(tasks []muster.Task, workers []muster.Worker) (all []column, skipped []string) {
	for _, t := range tasks {
		c := column{task: t, worker: string(t.Worker)}
		for _, w := range workers {
			if w.ID == t.Worker {
				c.worker = w.Name
			}
		}
		err := json.Unmarshal(t.Result, &c.report)
		switch {
		case len(t.Result) == 0 && !t.State.Final():
			skipped = append(skipped, fmt.Sprintf("task %s is %s and has no result yet", t.ID, t.State))
		case len(t.Result) == 0:
			skipped = append(skipped, fmt.Sprintf("task %s has %s without a result", t.ID, strings.ReplaceAll(t.State.String(), "_", " ")))
		case err != nil || len(c.report.Runs) == 0:
			skipped = append(skipped, fmt.Sprintf("the result of task %s is not of a benchmark", t.ID))
		default:
			all = append(all, c)
		}
	}
	return all, skipped
}

// comparabilityNotes returns why measurements are not comparable with those of the first task.
func comparabilityNotes(all []column) []string {
	var notes []string
	first := &all[0]
	for i := range all[1:] {
		c := &all[i+1]
		differ := func(name, a, b string) {
			if a != b {
				notes = append(notes, fmt.Sprintf("not comparable: %s is %s in task %s and %s in task %s", name, cmp.Or(a, "unknown"), first.task.ID, cmp.Or(b, "unknown"), c.task.ID))
			}
		}
		differ("model", first.report.Model, c.report.Model)
		differ("measured task", first.report.Task, c.report.Task)
		differ("input shape", canonicalJSON(first.report.Shape), canonicalJSON(c.report.Shape))
		differ("compile", strconv.FormatBool(first.report.Compile), strconv.FormatBool(c.report.Compile))
		if a, b := first.report.Warmup, c.report.Warmup; a != nil && b != nil {
			differ("number of warm-up runs", strconv.FormatInt(*a, 10), strconv.FormatInt(*b, 10))
		}
		for _, m := range c.report.Runs {
			if o := first.find(m.key()); o != nil && o.Iterations != m.Iterations {
				differ("number of iterations", strconv.FormatInt(o.Iterations, 10), strconv.FormatInt(m.Iterations, 10))
				break
			}
		}
	}
	return notes
}

// canonicalJSON returns JSON with sorted fields, "" if it is invalid.
func canonicalJSON(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return ""
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "" // never: it was JSON
	}
	return string(b)
}

// combination identifies a measurement of a report.
type combination struct {
	batch     int64
	precision string
}

func (m *measurement) key() combination { return combination{m.BatchSize, m.Precision} }

func (c *column) find(k combination) *measurement {
	i := slices.IndexFunc(c.report.Runs, func(m measurement) bool { return m.key() == k })
	if i < 0 {
		return nil
	}
	return &c.report.Runs[i]
}

// combinations returns all combinations: precisions in the order of the reports, batch sizes ascending.
func combinations(all []column) []combination {
	var precisions []string
	var list []combination
	for _, c := range all {
		for _, m := range c.report.Runs {
			if !slices.Contains(precisions, m.Precision) {
				precisions = append(precisions, m.Precision)
			}
			if !slices.Contains(list, m.key()) {
				list = append(list, m.key())
			}
		}
	}
	slices.SortStableFunc(list, func(a, b combination) int {
		if d := slices.Index(precisions, a.precision) - slices.Index(precisions, b.precision); d != 0 {
			return d
		}
		return cmp.Compare(a.batch, b.batch)
	})
	return list
}
