package load

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// baseProgram names the variable with the path of another build of the program. The
// benchmarks of supervision then measure it, too, in the same run.
const baseProgram = "MUSTER_BENCH_BASE"

// forEachBuild runs a benchmark with this build, and with the one that baseProgram names.
func forEachBuild(b *testing.B, f func(b *testing.B, program string)) {
	b.Helper()
	if base := os.Getenv(baseProgram); base != "" {
		b.Run("base", func(b *testing.B) { f(b, base) })
	}
	b.Run("this", func(b *testing.B) { f(b, mustertest.Program(b)) })
}

// startCluster starts a server and a worker of the program, the worker's data in dir.
func startCluster(b *testing.B, program, dir string, slots int) (*mustertest.Cluster, *mustertest.Process) {
	b.Helper()
	c := mustertest.NewWith(b, b.TempDir(), mustertest.Options{Program: program})
	return c, c.StartWorkerProgram(program, "w1", dir, "--slots", strconv.Itoa(slots), "--engine", "none")
}

// cancelAll ends jobs before the processes of the benchmark are killed.
func cancelAll(b *testing.B, c *mustertest.Cluster, jobs ...muster.JobID) {
	b.Helper()
	for _, id := range jobs {
		if _, err := c.Client.Cancel(b.Context(), id, nil); err != nil {
			b.Fatal(err)
		}
	}
	for _, id := range jobs {
		c.Wait(id, time.Minute)
	}
}

// BenchmarkSleepers is the CPU time that the worker and its shim use in half a minute for
// 200 tasks that sleep and were started in 20 batches, at any time of a second.
func BenchmarkSleepers(b *testing.B) {
	const batches, batch, interval = 20, 10, 30 * time.Second
	forEachBuild(b, func(b *testing.B, program string) {
		b.Helper()
		dir := b.TempDir()
		c, w := startCluster(b, program, dir, batches*batch)
		var jobs []muster.JobID
		for range batches {
			jobs = append(jobs, c.Submit(arraySpec(muster.KindProcess, batch, "/bin/sleep", "3600")).ID)
			time.Sleep(270 * time.Millisecond) // so that the batches begin apart
		}
		for _, id := range jobs {
			c.AwaitRunning(id, batch)
		}
		shim := shimPID(b, dir)
		for range b.N {
			time.Sleep(10 * time.Second) // the first samples, which come sooner, are over
			worker, supervisor := cpuTime(b, w.PID()), cpuTime(b, shim)
			time.Sleep(interval)
			b.ReportMetric((cpuTime(b, w.PID())-worker).Seconds()/interval.Seconds()*100, "worker-%core")
			b.ReportMetric((cpuTime(b, shim)-supervisor).Seconds()/interval.Seconds()*100, "shim-%core")
		}
		b.ReportMetric(0, "ns/op")
		cancelAll(b, c, jobs...)
	})
}

// BenchmarkBeside runs 400 times /bin/true in 8 slots, on a worker with no other task and on
// one with 900 that sleep, in turns: a machine that is slower for a second is so for both.
// The ratio is the median of the rounds' ratios.
func BenchmarkBeside(b *testing.B) {
	const tasks, slots, rounds = 400, 8, 7
	forEachBuild(b, func(b *testing.B, program string) {
		b.Helper()
		var workers []benchWorker
		for _, sleepers := range []int{0, 900} {
			dir := b.TempDir()
			c, w := startCluster(b, program, dir, sleepers+slots)
			s := benchWorker{cluster: c, worker: w.PID(), sleepers: sleepers}
			if sleepers > 0 {
				s.job = c.Submit(arraySpec(muster.KindProcess, int64(sleepers), "/bin/sleep", "3600")).ID
				c.AwaitRunning(s.job, int64(sleepers))
			}
			runJob(b, c, arraySpec(muster.KindProcess, slots, "/bin/true"))
			s.shim = shimPID(b, dir)
			workers = append(workers, s)
		}
		time.Sleep(12 * time.Second) // a new task is looked at more often
		var wall, used []float64
		for range b.N {
			for range rounds {
				for i := range workers {
					workers[i].round(b, tasks)
				}
				none, many := workers[0].last(), workers[1].last()
				wall = append(wall, many.wall/none.wall)
				used = append(used, many.cpu/none.cpu)
			}
		}
		for _, w := range workers {
			w.report(b)
		}
		cancelAll(b, workers[1].cluster, workers[1].job)
		b.ReportMetric(median(wall), "ratio")
		b.ReportMetric(median(used), "cpu-ratio")
		b.ReportMetric(0, "ns/op")
	})
}

// benchWorker is a worker of [BenchmarkBeside], with the durations of its rounds.
type benchWorker struct {
	cluster      *mustertest.Cluster
	worker, shim int
	sleepers     int
	job          muster.JobID // of the sleepers
	rounds       []round
}

// round is the seconds that a round took, and the CPU seconds of the worker's side.
type round struct{ wall, cpu float64 }

func (w *benchWorker) last() round { return w.rounds[len(w.rounds)-1] }

// round runs /bin/true tasks times.
func (w *benchWorker) round(b *testing.B, tasks int64) {
	b.Helper()
	before := cpuTime(b, w.shim) + cpuTime(b, w.worker)
	wall := runJob(b, w.cluster, arraySpec(muster.KindProcess, tasks, "/bin/true"))
	used := cpuTime(b, w.shim) + cpuTime(b, w.worker) - before
	w.rounds = append(w.rounds, round{wall.Seconds(), used.Seconds()})
}

// report returns the medians of the rounds.
func (w *benchWorker) report(b *testing.B) {
	b.Helper()
	var wall, used []float64
	for _, r := range w.rounds {
		wall, used = append(wall, r.wall), append(used, r.cpu)
	}
	name := "-beside-" + strconv.Itoa(w.sleepers)
	b.ReportMetric(median(wall), "s"+name)
	b.ReportMetric(median(used), "cpu-s"+name)
}

// BenchmarkKillArray cancels 500 running tasks that ignore the signal, and measures the time from the end of their grace to the end of the
// job.
func BenchmarkKillArray(b *testing.B) {
	const tasks, grace = 500, 2 * time.Second
	forEachBuild(b, func(b *testing.B, program string) {
		b.Helper()
		dir := b.TempDir()
		c, _ := startCluster(b, program, dir, tasks)
		for range b.N {
			s := arraySpec(muster.KindProcess, tasks, "/bin/sh", "-c", "trap '' TERM; sleep 3600; :")
			s.Tasks[0].Kill = muster.Kill{Signal: "SIGTERM", Grace: muster.Duration(grace)}
			id := c.Submit(s).ID
			c.AwaitRunning(id, tasks)
			shim := shimPID(b, dir)
			before, began := cpuTime(b, shim), time.Now()
			cancelAll(b, c, id)
			b.ReportMetric((time.Since(began) - grace).Seconds(), "s-beyond-grace")
			b.ReportMetric((cpuTime(b, shim) - before).Seconds(), "shim-cpu-s")
		}
		b.ReportMetric(0, "ns/op")
	})
}

// BenchmarkRecovery kills a worker that runs 20 tasks and starts it again. The time is that
// from the start of the new process to the end of a task that was submitted just then and
// ran on it.
func BenchmarkRecovery(b *testing.B) {
	const rounds, tasks = 20, 20
	forEachBuild(b, func(b *testing.B, program string) {
		b.Helper()
		dir := b.TempDir()
		c, w := startCluster(b, program, dir, tasks+2)
		job := c.Submit(arraySpec(muster.KindProcess, tasks, "/bin/sleep", "3600"))
		c.AwaitRunning(job.ID, tasks)
		var connected, done []time.Duration
		for range b.N {
			for range rounds {
				w.Kill()
				began := time.Now()
				w = c.LaunchWorkerProgram(program, "w1", dir, "--slots", strconv.Itoa(tasks+2), "--engine", "none")
				canary := c.Submit(arraySpec(muster.KindProcess, 1, "/bin/true"))
				// Read often: intervals of Await would be the result.
				for !strings.Contains(w.Log(), "msg=connected") {
					if time.Since(began) > time.Minute {
						b.Fatal("the worker is not connected after a minute")
					}
					time.Sleep(time.Millisecond)
				}
				connected = append(connected, time.Since(began))
				if got := c.Wait(canary.ID, time.Minute); got.State != muster.JobSucceeded {
					b.Fatalf("the canary ended as %s", got.State)
				}
				done = append(done, time.Since(began))
			}
		}
		slices.Sort(connected)
		slices.Sort(done)
		b.ReportMetric(connected[len(connected)/2].Seconds(), "connected-p50-s")
		b.ReportMetric(done[len(done)/2].Seconds(), "p50-s")
		b.ReportMetric(done[len(done)*99/100].Seconds(), "p99-s")
		b.ReportMetric(done[len(done)-1].Seconds(), "max-s")
		b.ReportMetric(0, "ns/op")
		for _, task := range c.Tasks(job.ID) {
			if task.Attempt != 1 || task.State != muster.Running {
				b.Errorf("task %s is %s with attempt %d", task.ID, task.State, task.Attempt)
			}
		}
		cancelAll(b, c, job.ID)
	})
}

// median returns the middle of the values, which it sorts.
func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
