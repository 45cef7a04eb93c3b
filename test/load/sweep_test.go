package load

import (
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
)

// BenchmarkSweep measures how much the deletion of 1,000,000 tasks (MUSTER_BENCH_SWEEP) of finished jobs slows arrays of no-op tasks, like those of BenchmarkNoop,
// while it runs. It deletes in ten parts, and compares the same arrays before and during each, so that changes of the machine matter less.
func BenchmarkSweep(b *testing.B) {
	const rounds, perJob, runs, tasks = 10, 1000, 3, 60_000
	total := 1_000_000
	if n, err := strconv.Atoi(os.Getenv("MUSTER_BENCH_SWEEP")); err == nil {
		total = n
	}
	c := mustertest.NewWith(b, b.TempDir(), mustertest.Options{Flags: []string{"--keep-jobs", "forever"}})
	c.StartWorker("w1", b.TempDir(), "--slots", "64")
	rate := func() float64 { return tasks / runJob(b, c, arraySpec(muster.KindNoop, tasks)).Seconds() }
	for b.Loop() {
		parts := make([]muster.JobID, rounds) // the last job of each
		for round := range parts {
			for range total / rounds / perJob {
				s := arraySpec(muster.KindNoop, perJob)
				s.Project = oldProject(round)
				parts[round] = c.Submit(s).ID
			}
		}
		for _, id := range parts {
			c.Wait(id, 10*time.Minute)
		}
		rate() // the first run is slower
		var without, with, ratios []float64
		var sweeping time.Duration
		for round, last := range parts {
			var before, during []float64
			for range runs {
				before = append(before, rate())
			}
			began := time.Now()
			prune := errgroup.Group{}
			prune.Go(func() error {
				_, err := c.Client.Prune(b.Context(), client.PruneRequest{Project: oldProject(round), Keep: client.RetentionPolicy{Jobs: "1s"}})
				return err
			})
			for range runs {
				during = append(during, rate())
				if swept(b, c, last) {
					break
				}
			}
			if err := prune.Wait(); err != nil {
				b.Fatal(err)
			}
			for !swept(b, c, last) {
				time.Sleep(100 * time.Millisecond)
			}
			sweeping += time.Since(began)
			without, with = append(without, before...), append(with, during...)
			ratios = append(ratios, median(during)/median(before))
		}
		b.Logf("ratios of the parts: %.3f", ratios)
		b.ReportMetric(median(without), "tasks/s")
		b.ReportMetric(median(with), "sweeping-tasks/s")
		b.ReportMetric(100*(1-median(ratios)), "slower-%")
		b.ReportMetric(float64(total)/sweeping.Seconds(), "deleted/s")
	}
	b.ReportMetric(0, "ns/op")
}

func oldProject(round int) string { return "old-" + strconv.Itoa(round) }

// swept reports whether a job and everything that was removed is gone.
func swept(b *testing.B, c *mustertest.Cluster, last muster.JobID) bool {
	b.Helper()
	_, err := c.Client.Job(b.Context(), last)
	if err == nil {
		return false
	}
	if muster.CodeOf(err) != muster.NotFound {
		b.Fatal(err)
	}
	r, err := c.Client.Retention(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return r.WaitingJobs == 0
}
