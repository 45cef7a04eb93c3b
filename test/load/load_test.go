package load

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
)

// arraySpec makes a job of n tasks of one kind.
func arraySpec(kind string, n int64, run ...string) *muster.Spec {
	t := muster.TaskSpec{Kind: kind, Array: &muster.Array{Ranges: []muster.Range{{First: 0, Last: n - 1, Step: 1}}}}
	if len(run) > 0 {
		t.Run = &muster.Command{Argv: run}
	}
	return &muster.Spec{Name: kind, Tasks: []muster.TaskSpec{t}}
}

// runJob submits a job and returns how long it took from submission to its end,
// by the caller's clock.
func runJob(b *testing.B, c *mustertest.Cluster, s *muster.Spec) time.Duration {
	b.Helper()
	began := time.Now()
	job := c.Wait(c.Submit(s).ID, 10*time.Minute)
	took := time.Since(began)
	if job.State != muster.JobSucceeded {
		b.Fatalf("the job ended as %s: %v", job.State, job.Counts)
	}
	return took
}

// BenchmarkNoop is an array of 60,000 tasks that do nothing, over one worker
// with 64 slots: the cost of Muster itself.
func BenchmarkNoop(b *testing.B) {
	const tasks = 60_000
	c := mustertest.New(b, b.TempDir())
	w := c.StartWorker("w1", b.TempDir(), "--slots", "64")
	for b.Loop() {
		server, worker := cpuTime(b, c.Server.PID()), cpuTime(b, w.PID())
		took := runJob(b, c, arraySpec(muster.KindNoop, tasks))
		b.ReportMetric(tasks/took.Seconds(), "tasks/s")
		b.ReportMetric((cpuTime(b, c.Server.PID())-server).Seconds()*1e6/tasks, "server-cpu-us/task")
		b.ReportMetric((cpuTime(b, w.PID())-worker).Seconds()*1e6/tasks, "worker-cpu-us/task")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkTrue runs 3,000 processes of /bin/true, compared with the same number started by Go alone in the same run, and measures the
// additional CPU time of the worker and its shim per task.
func BenchmarkTrue(b *testing.B) {
	const tasks = 3000
	c := mustertest.New(b, b.TempDir())
	dir := b.TempDir()
	w := c.StartWorker("w1", dir)
	runJob(b, c, arraySpec(muster.KindProcess, 10, "/bin/true"))
	shim := shimPID(b, dir)
	for b.Loop() {
		self := ownCPU(b)
		bare := bareExec(b, tasks, runtime.NumCPU())
		bareCPU := ownCPU(b) - self
		before, beforeShim := cpuTime(b, w.PID()), cpuTime(b, shim)
		took := runJob(b, c, arraySpec(muster.KindProcess, tasks, "/bin/true"))
		used, usedShim := cpuTime(b, w.PID())-before, cpuTime(b, shim)-beforeShim
		bareAfter := bareExec(b, tasks, runtime.NumCPU())
		limit := 2 * tasks / (bare + bareAfter).Seconds()
		b.ReportMetric(milliseconds(used)/tasks, "worker-cpu-ms/task")
		b.ReportMetric(milliseconds(usedShim)/tasks, "shim-cpu-ms/task")
		b.ReportMetric(milliseconds(used+usedShim-bareCPU)/tasks, "added-cpu-ms/task")
		b.ReportMetric(limit, "bare-tasks/s")
		b.ReportMetric(tasks/took.Seconds(), "tasks/s")
		b.ReportMetric(tasks/took.Seconds()/limit, "of-bare")
	}
	b.ReportMetric(0, "ns/op")
}

// bareExec forks and executes /bin/true n times from a number of goroutines.
func bareExec(b *testing.B, n, workers int) time.Duration {
	b.Helper()
	began := time.Now()
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for i := worker; i < n; i += workers {
				if err := exec.Command("/bin/true").Run(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

// BenchmarkStart measures the time from submitting a task to an idle system until its process runs, compared with a bare fork and exec of the
// same program.
func BenchmarkStart(b *testing.B) {
	c := mustertest.New(b, b.TempDir())
	c.StartWorker("w1", b.TempDir())
	stamp := &muster.Spec{Tasks: []muster.TaskSpec{{Kind: muster.KindProcess, Run: &muster.Command{Argv: []string{"/bin/date", "+%s%N"}}}}}
	var waits, bare []time.Duration
	started := func(began time.Time, printed string) time.Duration {
		nanos, err := strconv.ParseInt(strings.TrimSpace(printed), 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		return time.Unix(0, nanos).Sub(began)
	}
	for b.Loop() {
		for range 300 {
			began := time.Now()
			out, err := exec.Command("/bin/date", "+%s%N").Output()
			if err != nil {
				b.Fatal(err)
			}
			bare = append(bare, started(began, string(out)))
			began = time.Now()
			job := c.Wait(c.Submit(stamp).ID, time.Minute)
			waits = append(waits, started(began, c.Output(muster.TaskID{Job: job.ID})))
		}
	}
	slices.Sort(waits)
	slices.Sort(bare)
	b.ReportMetric(milliseconds(bare[len(bare)/2]), "bare-p50-ms")
	b.ReportMetric(milliseconds(waits[len(waits)/2]), "p50-ms")
	b.ReportMetric(milliseconds(waits[len(waits)*99/100]), "p99-ms")
	b.ReportMetric(0, "ns/op")
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// BenchmarkMillion submits an array of a million tasks without a worker for them, and restarts the server with it.
func BenchmarkMillion(b *testing.B) {
	for b.Loop() {
		c := mustertest.New(b, b.TempDir())
		began := time.Now()
		job := c.Submit(arraySpec(muster.KindNoop, 1_000_000))
		b.ReportMetric(time.Since(began).Seconds(), "submit-s")
		b.ReportMetric(residentMB(b, c.Server.PID()), "server-rss-MB")
		c.Server.Kill()
		began = time.Now()
		c.StartServer()
		got, err := c.Client.Job(b.Context(), job.ID)
		if err != nil || got.Counts[muster.Queued] != 1_000_000 {
			b.Fatalf("after the restart: %v (%v)", got.Counts, err)
		}
		b.ReportMetric(time.Since(began).Seconds(), "restart-s")
		b.ReportMetric(residentMB(b, c.Server.PID()), "restarted-rss-MB")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkIdle is what a connected worker without tasks costs in 30 seconds, and the
// shim that stays from its tasks of before.
func BenchmarkIdle(b *testing.B) {
	c := mustertest.New(b, b.TempDir())
	dir := b.TempDir()
	w := c.StartWorker("w1", dir)
	for b.Loop() {
		time.Sleep(5 * time.Second) // the start is over
		before := cpuTime(b, w.PID())
		time.Sleep(30 * time.Second)
		b.ReportMetric(residentMB(b, w.PID()), "worker-rss-MB")
		b.ReportMetric((cpuTime(b, w.PID())-before).Seconds()/30*100, "worker-cpu-%")
		runJob(b, c, arraySpec(muster.KindProcess, 10, "/bin/true"))
		shim := shimPID(b, dir)
		time.Sleep(5 * time.Second)
		before = cpuTime(b, shim)
		time.Sleep(30 * time.Second)
		b.ReportMetric(residentMB(b, shim), "shim-rss-MB")
		b.ReportMetric((cpuTime(b, shim)-before).Seconds()/30*100, "shim-cpu-%")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkAdopt is how long a worker that was killed with 100 running tasks takes
// from its start until it is connected and has taken all of them up.
func BenchmarkAdopt(b *testing.B) {
	const tasks = 100
	c := mustertest.New(b, b.TempDir())
	dir := b.TempDir()
	w := c.StartWorker("w1", dir, "--slots", strconv.Itoa(tasks))
	job := c.Submit(arraySpec(muster.KindProcess, tasks, "/bin/sleep", "3600"))
	c.AwaitRunning(job.ID, tasks)
	var slowest time.Duration
	for b.Loop() {
		w.Kill()
		began := time.Now()
		w = c.StartWorker("w1", dir, "--slots", strconv.Itoa(tasks))
		slowest = max(slowest, time.Since(began))
		if !strings.Contains(w.Log(), "kept="+strconv.Itoa(tasks)) {
			b.Fatalf("not all tasks are adopted: %s", w.Log())
		}
	}
	b.ReportMetric(slowest.Seconds(), "slowest-s")
	b.ReportMetric(0, "ns/op")
	for _, task := range c.Tasks(job.ID) {
		if task.Attempt != 1 || task.State != muster.Running {
			b.Errorf("task %s is %s with attempt %d", task.ID, task.State, task.Attempt)
		}
	}
	if _, err := c.Client.Cancel(b.Context(), job.ID, nil); err != nil {
		b.Fatal(err)
	}
	c.Wait(job.ID, time.Minute)
}

// BenchmarkFsync is the bare limit of the disk: append 512 bytes and fsync.
func BenchmarkFsync(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "f"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	const n = 2000
	for b.Loop() {
		began := time.Now()
		for range n {
			if _, err := f.Write(make([]byte, 512)); err != nil {
				b.Fatal(err)
			}
			if err := f.Sync(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(n/time.Since(began).Seconds(), "fsyncs/s")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkSubmit is 16 clients that each submit single tasks, every one
// acknowledged after it is on disk.
func BenchmarkSubmit(b *testing.B) {
	const clients, each = 16, 250
	c := mustertest.New(b, b.TempDir())
	for b.Loop() {
		began := time.Now()
		var wg sync.WaitGroup
		for range clients {
			wg.Go(func() {
				for range each {
					if _, err := c.Client.Submit(b.Context(), arraySpec(muster.KindNoop, 1), client.SubmitOptions{}); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		b.ReportMetric(clients*each/time.Since(began).Seconds(), "jobs/s")
	}
	b.ReportMetric(0, "ns/op")
}

// shimPID returns the shim of the tasks of the worker with its data in
// dir.
func shimPID(b *testing.B, dir string) int {
	b.Helper()
	pids := mustertest.ShimPIDs(b, dir)
	if len(pids) != 1 {
		b.Fatalf("the worker has the shims %v", pids)
	}
	return pids[0]
}

// ownCPU returns the CPU time of this process, without its children's.
func ownCPU(b *testing.B) time.Duration {
	b.Helper()
	return cpuTime(b, os.Getpid())
}

// residentMB returns a process's resident memory in MB.
func residentMB(b *testing.B, pid int) float64 {
	b.Helper()
	return procField(b, pid, "status", "VmRSS:") / 1024
}

// cpuTime returns the CPU time that a process has used.
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	f := strings.Fields(rest)
	user, err1 := strconv.Atoi(f[11])
	system, err2 := strconv.Atoi(f[12])
	if err1 != nil || err2 != nil {
		b.Fatalf("stat of %d: %v %v", pid, err1, err2)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

func procField(b *testing.B, pid int, file, field string) float64 {
	b.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.SplitSeq(string(raw), "\n") {
		if rest, ok := strings.CutPrefix(line, field); ok {
			n, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			if err != nil {
				b.Fatal(err)
			}
			return n
		}
	}
	b.Fatalf("no %s in %s of process %d", field, file, pid)
	return 0
}
