package bench

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
)

// report is the result of one benchmark task: see kind benchmark. What a worker did not measure is absent.
type report struct {
	Model   string          `json:"model"`
	Device  string          `json:"device"`
	Task    string          `json:"task"`
	Shape   json.RawMessage `json:"shape"`
	Warmup  *int64          `json:"warmup"`
	Compile bool            `json:"compile"`
	System  json.RawMessage `json:"system"`
	Runs    []measured      `json:"runs"`
}

// measured is one combination of a report.
type measured struct {
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

// failure is why a combination could not be measured: a reason, or an object with a sentence, too.
type failure struct{ Reason, Message string }

// UnmarshalJSON reads both forms.
func (f *failure) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &f.Reason) == nil {
		return nil
	}
	var whole struct {
		Reason  string `json:"reason"`
		Message string `json:"message"`
	}
	err := json.Unmarshal(b, &whole)
	f.Reason, f.Message = whole.Reason, whole.Message
	return err
}

// column is one task that is compared.
type column struct {
	task   muster.Task
	worker string // its name; its id if it has left for good
	report report
}

// read takes the results of tasks that measured something. It says of the others why they are left out.
func read(tasks []muster.Task, workers []muster.Worker) (all []column, out []string) {
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
			out = append(out, fmt.Sprintf("task %s is %s and has no result yet", t.ID, t.State))
		case len(t.Result) == 0:
			out = append(out, fmt.Sprintf("task %s has %s and left no result", t.ID, strings.ReplaceAll(t.State.String(), "_", " ")))
		case err != nil || len(c.report.Runs) == 0:
			out = append(out, fmt.Sprintf("the result of task %s is not that of a benchmark", t.ID))
		default:
			all = append(all, c)
		}
	}
	return all, out
}

// odds tells what keeps figures from being comparable with those of the first.
func odds(all []column) []string {
	var told []string
	first := &all[0]
	for i := range all[1:] {
		c := &all[i+1]
		differ := func(what, a, b string) {
			if a != b {
				told = append(told, fmt.Sprintf("not comparable: %s of task %s is %s, and of task %s %s", what, first.task.ID, say(a), c.task.ID, say(b)))
			}
		}
		differ("the model", first.report.Model, c.report.Model)
		differ("what is measured", first.report.Task, c.report.Task)
		differ("the shape of the inputs", plain(first.report.Shape), plain(c.report.Shape))
		differ("whether the model is compiled", strconv.FormatBool(first.report.Compile), strconv.FormatBool(c.report.Compile))
		if a, b := first.report.Warmup, c.report.Warmup; a != nil && b != nil {
			differ("the number of warm-up runs", strconv.FormatInt(*a, 10), strconv.FormatInt(*b, 10))
		}
		for _, m := range c.report.Runs {
			if o := first.find(m.key()); o != nil && o.Iterations != m.Iterations {
				differ("the number of iterations", strconv.FormatInt(o.Iterations, 10), strconv.FormatInt(m.Iterations, 10))
				break
			}
		}
	}
	return told
}

func say(s string) string {
	if s == "" {
		return "not told"
	}
	return s
}

// plain is JSON with its fields in order.
func plain(raw json.RawMessage) string {
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

// key names a combination.
type key struct {
	batch     int64
	precision string
}

func (m *measured) key() key { return key{m.BatchSize, m.Precision} }

func (c *column) find(k key) *measured {
	i := slices.IndexFunc(c.report.Runs, func(m measured) bool { return m.key() == k })
	if i < 0 {
		return nil
	}
	return &c.report.Runs[i]
}

// keys lists all combinations: precisions as they come, sizes from small to large.
func keys(all []column) []key {
	var precisions []string
	var list []key
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
	slices.SortStableFunc(list, func(a, b key) int {
		if d := slices.Index(precisions, a.precision) - slices.Index(precisions, b.precision); d != 0 {
			return d
		}
		return int(min(max(a.batch-b.batch, -1), 1))
	})
	return list
}
