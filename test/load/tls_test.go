package load

import (
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// BenchmarkTLS compares a server with --tls and one without, in turns: the medians of the time to submit a job and of no-op tasks per second.
func BenchmarkTLS(b *testing.B) {
	const submits, tasks = 100, 10_000
	variants := []struct {
		name    string
		cluster *mustertest.Cluster
		submit  []time.Duration
		noop    []float64
	}{{name: "plain"}, {name: "tls"}}
	for i := range variants {
		v := &variants[i]
		v.cluster = mustertest.NewWith(b, b.TempDir(), mustertest.Options{TLS: v.name == "tls"})
		v.cluster.StartWorker("w1", b.TempDir(), "--slots", "64")
		runJob(b, v.cluster, arraySpec(muster.KindNoop, 1000))
	}
	for b.Loop() {
		for i := range variants {
			v := &variants[i]
			for range submits {
				start := time.Now()
				v.cluster.Submit(arraySpec(muster.KindNoop, 1))
				v.submit = append(v.submit, time.Since(start))
			}
			v.noop = append(v.noop, tasks/runJob(b, v.cluster, arraySpec(muster.KindNoop, tasks)).Seconds())
		}
	}
	for _, v := range variants {
		slices.Sort(v.submit)
		slices.Sort(v.noop)
		b.ReportMetric(milliseconds(v.submit[len(v.submit)/2]), v.name+"-submit-p50-ms")
		b.ReportMetric(v.noop[len(v.noop)/2], v.name+"-noop-tasks/s")
	}
	b.ReportMetric(0, "ns/op")
}
