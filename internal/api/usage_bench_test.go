package api

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/usageseries"
)

// BenchmarkSeries measures the cost of one sample of a series.
func BenchmarkSeries(b *testing.B) {
	for _, devices := range []int{0, 1, 8} {
		b.Run(strconv.Itoa(devices), func(b *testing.B) {
			bytes := muster.Size(42_949_672_960)
			sample := muster.Sample{
				CPU: new(3.521), Memory: &bytes, Disk: &bytes, Read: new(1_234_567.0), Write: new(1_234_567.0), NetIn: new(12_345.0), NetOut: new(12_345.0), PIDs: 120,
			}
			for range devices {
				sample.GPUs = append(sample.GPUs, muster.GPUSample{OwnMemory: &bytes, GPULoad: muster.GPULoad{
					UUID: "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", Utilization: new(0.97), Memory: &bytes, Temperature: new(81.0), Power: new(312.4), Latency: new(0.013),
				}})
			}
			begin := time.Unix(1_700_000_000, 0)
			sample.At = muster.NewTime(begin)
			data, err := json.Marshal(sample)
			if err != nil {
				b.Fatal(err)
			}
			thin, sums := usageseries.NewSampleSeries(1000), usageseries.Accumulator{}
			for b.Loop() {
				s, ok := sampleOf(tasklog.Record{Stream: tasklog.Usage, Data: data})
				if !ok {
					b.Fatal("not a sample")
				}
				sums.AddSince(begin, &s)
				thin.Add(s)
			}
			b.ReportMetric(float64(len(data)), "bytes/sample")
		})
	}
}
