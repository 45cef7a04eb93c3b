package load

import (
	"errors"
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

// builds runs a benchmark with this build, and with the one that baseProgram names.
func builds(b *testing.B, f func(b *testing.B, program string)) {
	b.Helper()
	if base := os.Getenv(baseProgram); base != "" {
		b.Run("base", func(b *testing.B) { f(b, base) })
	}
	b.Run("this", func(b *testing.B) { f(b, mustertest.Program(b)) })
}

// begin starts a server, and a worker of the program with its data in dir.
func begin(b *testing.B, program, dir string, slots int) (*mustertest.Cluster, *mustertest.Proc) {
	b.Helper()
	c := mustertest.New(b, b.TempDir())
	return c, c.StartWorkerOf(program, "w1", dir, "--slots", strconv.Itoa(slots), "--engine", "none")
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
	builds(b, func(b *testing.B, program string) {
		b.Helper()
		dir := b.TempDir()
		c, w := begin(b, program, dir, batches*batch)
		var jobs []muster.JobID
		for range batches {
			jobs = append(jobs, c.Submit(array(muster.KindProcess, batch, "/bin/sleep", "3600")).ID)
			time.Sleep(270 * time.Millisecond) // so that the batches begin apart
		}
		for _, id := range jobs {
			c.Running(id, batch)
		}
		shim := shimOf(b, dir)
		for range b.N {
			time.Sleep(10 * time.Second) // the first samples, which come sooner, are over
			worker, supervisor := cpu(b, w.PID()), cpu(b, shim)
			time.Sleep(interval)
			b.ReportMetric((cpu(b, w.PID())-worker).Seconds()/interval.Seconds()*100, "worker-%core")
			b.ReportMetric((cpu(b, shim)-supervisor).Seconds()/interval.Seconds()*100, "shim-%core")
		}
		b.ReportMetric(0, "ns/op")
		cancelAll(b, c, jobs...)
	})
}

// BenchmarkBeside runs 400 times /bin/true in 8 slots, beside no other task and beside
// 900 that sleep.
func BenchmarkBeside(b *testing.B) {
	const tasks, slots = 400, 8
	builds(b, func(b *testing.B, program string) {
		b.Helper()
		var took [2]float64
		for i, sleepers := range []int{0, 900} {
			dir := b.TempDir()
			c, w := begin(b, program, dir, sleepers+slots)
			var jobs []muster.JobID
			if sleepers > 0 {
				jobs = append(jobs, c.Submit(array(muster.KindProcess, int64(sleepers), "/bin/sleep", "3600")).ID)
				c.Running(jobs[0], int64(sleepers))
			}
			drive(b, c, array(muster.KindProcess, slots, "/bin/true"))
			shim := shimOf(b, dir)
			beside := "s-beside-" + strconv.Itoa(sleepers)
			for range b.N {
				var each []float64
				for range 3 {
					before, worker, server := cpu(b, shim), cpu(b, w.PID()), cpu(b, c.Server.PID())
					each = append(each, drive(b, c, array(muster.KindProcess, tasks, "/bin/true")).Seconds())
					b.ReportMetric((cpu(b, shim) - before).Seconds(), "shim-cpu-"+beside)
					b.ReportMetric((cpu(b, w.PID()) - worker).Seconds(), "worker-cpu-"+beside)
					b.ReportMetric((cpu(b, c.Server.PID()) - server).Seconds(), "server-cpu-"+beside)
				}
				slices.Sort(each)
				took[i] = each[1]
				b.ReportMetric(took[i], beside)
			}
			cancelAll(b, c, jobs...)
		}
		b.ReportMetric(took[1]/took[0], "ratio")
		b.ReportMetric(0, "ns/op")
	})
}

// BenchmarkKillArray cancels 500 running tasks that do not heed the signal. The time is
// that from the end of their grace to the end of the job.
func BenchmarkKillArray(b *testing.B) {
	const tasks, grace = 500, 2 * time.Second
	builds(b, func(b *testing.B, program string) {
		b.Helper()
		dir := b.TempDir()
		c, _ := begin(b, program, dir, tasks)
		for range b.N {
			s := array(muster.KindProcess, tasks, "/bin/sh", "-c", "trap '' TERM; sleep 3600; :")
			s.Tasks[0].Kill = muster.Kill{Signal: "SIGTERM", Grace: muster.Duration(grace)}
			id := c.Submit(s).ID
			c.Running(id, tasks)
			shim := shimOf(b, dir)
			before, began := cpu(b, shim), time.Now()
			cancelAll(b, c, id)
			b.ReportMetric((time.Since(began) - grace).Seconds(), "s-beyond-grace")
			b.ReportMetric((cpu(b, shim) - before).Seconds(), "shim-cpu-s")
		}
		b.ReportMetric(0, "ns/op")
	})
}

// BenchmarkRecovery kills a worker that runs 20 tasks and starts it again. The time is that
// from the start of the new process to the end of a task that was submitted just then and
// ran on it.
func BenchmarkRecovery(b *testing.B) {
	const rounds, tasks = 20, 20
	builds(b, func(b *testing.B, program string) {
		b.Helper()
		dir := b.TempDir()
		c, w := begin(b, program, dir, tasks+2)
		job := c.Submit(array(muster.KindProcess, tasks, "/bin/sleep", "3600"))
		c.Running(job.ID, tasks)
		var connected, done []time.Duration
		for range b.N {
			for range rounds {
				w.Kill()
				began := time.Now()
				w = c.LaunchWorkerOf(program, "w1", dir, "--slots", strconv.Itoa(tasks+2), "--engine", "none")
				canary := c.Submit(array(muster.KindProcess, 1, "/bin/true"))
				c.Await("the worker is connected", time.Minute, func() error {
					if !strings.Contains(w.Log(), "msg=connected") {
						return errors.New("it is not")
					}
					return nil
				})
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
