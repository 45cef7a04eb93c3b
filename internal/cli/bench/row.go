package bench

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
)

// row is one measurement of a task with its worker, for files and documents. Fields that were not measured are absent.
type row struct {
	Task        string     `json:"task" parquet:"task"`
	Worker      string     `json:"worker" parquet:"worker"`
	WorkerID    string     `json:"worker_id" parquet:"worker_id"`
	FinishedAt  *time.Time `json:"finished_at,omitempty" parquet:"finished_at,optional,timestamp(millisecond)"`
	Model       string     `json:"model" parquet:"model"`
	Measures    string     `json:"measures,omitempty" parquet:"measures"`
	Device      string     `json:"device" parquet:"device"`
	BatchSize   int64      `json:"batch_size" parquet:"batch_size"`
	Precision   string     `json:"precision" parquet:"precision"`
	Iterations  int64      `json:"iterations" parquet:"iterations"`
	Warmup      *int64     `json:"warmup,omitempty" parquet:"warmup,optional"`
	Mean        *float64   `json:"latency_mean_ms,omitempty" parquet:"latency_mean_ms,optional"`
	P50         *float64   `json:"latency_p50_ms,omitempty" parquet:"latency_p50_ms,optional"`
	P90         *float64   `json:"latency_p90_ms,omitempty" parquet:"latency_p90_ms,optional"`
	P95         *float64   `json:"latency_p95_ms,omitempty" parquet:"latency_p95_ms,optional"`
	P99         *float64   `json:"latency_p99_ms,omitempty" parquet:"latency_p99_ms,optional"`
	Min         *float64   `json:"latency_min_ms,omitempty" parquet:"latency_min_ms,optional"`
	Max         *float64   `json:"latency_max_ms,omitempty" parquet:"latency_max_ms,optional"`
	Throughput  *float64   `json:"throughput,omitempty" parquet:"throughput,optional"`
	Tokens      *float64   `json:"tokens_per_second,omitempty" parquet:"tokens_per_second,optional"`
	PeakMemory  *int64     `json:"peak_memory,omitempty" parquet:"peak_memory,optional"`
	Energy      *float64   `json:"energy_j,omitempty" parquet:"energy_j,optional"`
	Error       string     `json:"error,omitempty" parquet:"error"`
	Message     string     `json:"message,omitempty" parquet:"message"`
	OS          string     `json:"os,omitempty" parquet:"os"`
	Arch        string     `json:"arch,omitempty" parquet:"arch"`
	CPU         string     `json:"cpu,omitempty" parquet:"cpu"`
	Cores       *int64     `json:"cores,omitempty" parquet:"cores,optional"`
	Memory      *int64     `json:"memory,omitempty" parquet:"memory,optional"`
	GPU         string     `json:"gpu,omitempty" parquet:"gpu"`
	GPUMemory   *int64     `json:"gpu_memory,omitempty" parquet:"gpu_memory,optional"`
	Driver      string     `json:"driver,omitempty" parquet:"driver"`
	Python      string     `json:"python,omitempty" parquet:"python"`
	Torch       string     `json:"torch,omitempty" parquet:"torch"`
	Description string     `json:"system,omitempty" parquet:"system"` // of the machine, as JSON
}

// system is the displayed part of a report's system.
type system struct {
	OS        string            `json:"os"`
	Arch      string            `json:"arch"`
	CPU       string            `json:"cpu"`
	Cores     *int64            `json:"cores"`
	Memory    *int64            `json:"memory"`
	GPU       string            `json:"gpu"`
	GPUMemory *int64            `json:"gpu_memory"`
	Driver    string            `json:"driver"`
	Python    string            `json:"python"`
	Packages  map[string]string `json:"packages"`
}

// rows returns all measurements, task by task.
func rows(all []column) []row {
	var list []row
	for i := range all {
		c := &all[i]
		var sys system
		_ = json.Unmarshal(c.report.System, &sys) // fields of unexpected types are absent
		base := row{
			Task: c.task.ID.String(), Worker: c.worker, WorkerID: string(c.task.Worker), Model: c.report.Model, Measures: c.report.Task, Device: c.report.Device, Warmup: c.report.Warmup,
			OS: sys.OS, Arch: sys.Arch, CPU: sys.CPU, Cores: sys.Cores, Memory: sys.Memory, GPU: sys.GPU, GPUMemory: sys.GPUMemory, Driver: sys.Driver, Python: sys.Python, Torch: sys.Packages["torch"],
			Description: canonicalJSON(c.report.System),
		}
		if finished := c.task.FinishedAt; finished != 0 {
			base.FinishedAt = new(finished.Std().UTC())
		}
		for _, m := range c.report.Runs {
			r := base
			r.BatchSize, r.Precision, r.Iterations = m.BatchSize, m.Precision, m.Iterations
			r.Throughput, r.Tokens, r.PeakMemory, r.Energy = m.Throughput, m.Tokens, m.PeakMemory, m.Energy
			r.Error, r.Message = m.Error.Reason, m.Error.Message
			if l := m.Latency; l != nil {
				r.Mean, r.P50, r.P90, r.P95, r.P99, r.Min, r.Max = &l.Mean, &l.P50, &l.P90, &l.P95, &l.P99, &l.Min, &l.Max
			}
			list = append(list, r)
		}
	}
	return list
}

// writeParquet replaces a file atomically.
func writeParquet(name string, list []row) error {
	err := atomicfile.WriteFunc(name, 0o644, func(f io.Writer) error {
		w := parquet.NewGenericWriter[row](f, parquet.Compression(&parquet.Zstd), parquet.CreatedBy("muster", "", ""))
		if _, err := w.Write(list); err != nil {
			return err
		}
		return w.Close()
	})
	if err != nil {
		return muster.Errorf(muster.Invalid, "write the Parquet file %s: %w", name, err)
	}
	return nil
}

// writeCSV writes a header and one line per row. Fields that were not measured are empty.
func writeCSV(dst io.Writer, list []row) error {
	w := csv.NewWriter(dst)
	var names []string
	for f := range reflect.TypeFor[row]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	_ = w.Write(names) // Error returns the error
	for i := range list {
		var cells []string
		for _, v := range reflect.ValueOf(&list[i]).Elem().Fields() {
			cells = append(cells, formatCell(v))
		}
		_ = w.Write(cells)
	}
	w.Flush()
	return w.Error()
}

func formatCell(v reflect.Value) string {
	switch v := v.Interface().(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case *int64:
		if v != nil {
			return strconv.FormatInt(*v, 10)
		}
	case *float64:
		if v != nil {
			return strconv.FormatFloat(*v, 'g', -1, 64)
		}
	case *time.Time:
		if v != nil {
			return v.Format("2006-01-02T15:04:05.000Z")
		}
	}
	return ""
}
