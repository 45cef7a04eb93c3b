package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

var dashboardMinutes = flag.Float64("dashboard.minutes", 2, "how long BenchmarkDashboard stays on the overview with events coming in")

// page is what web/e2e/load.mjs measured on one page. Times are in milliseconds.
type page struct {
	Name        string  `json:"name"`
	Loaded      float64 `json:"loaded"`    // until the page shows its data
	FrameP50    float64 `json:"frame_p50"` // from one frame to the next
	FrameP99    float64 `json:"frame_p99"`
	FrameMax    float64 `json:"frame_max"`
	CPUP50      float64 `json:"cpu_p50"` // of the main thread's processor time for a frame
	CPUP99      float64 `json:"cpu_p99"`
	CPUMax      float64 `json:"cpu_max"`
	Busy        float64 `json:"busy"`         // share of the time that the main thread used a processor
	LongTasks   float64 `json:"long_tasks"`   // tasks of 50 ms and more by the clock
	LongestTask float64 `json:"longest_task"` // by the clock; 0 if none had 50 ms
	Requests    float64 `json:"requests"`     // a second
	HeapFirst   float64 `json:"heap_first"`   // bytes after a garbage collection, at the beginning
	HeapLast    float64 `json:"heap_last"`    // and at the end
	EventsRate  float64 `json:"events_rate"`
}

// BenchmarkDashboard is a browser on the dashboard of a server with 2,000 simulated workers of 4 GPUs each and jobs of 1,000,000 tasks that run
// meanwhile, 5,000 events a second: how long frames take, and what memory the page holds at the beginning and at the end. The server and the workers
// get the processor time that the browser leaves (SCHED_IDLE), as if they were on other machines. It runs once only: -benchtime 1x.
func BenchmarkDashboard(b *testing.B) {
	const tasks = 1_000_000
	seconds := *dashboardMinutes * 60
	browser := startBrowser(b, seconds)
	yieldProcessor(b)
	c := mustertest.NewWith(b, b.TempDir(), mustertest.Options{Heartbeat: 10 * time.Second})
	// Each task is three events: 2,000 slots that are taken for 1 s each make 6,000 a second at most.
	simulateWorkers(b, c, time.Second)
	// The first job runs while its own pages are shown; enough follow that work does not end before the overview does.
	job := c.Submit(arraySpec(muster.KindNoop, tasks))
	for left := (seconds + 600) * 1700; left > tasks; left -= tasks {
		c.Submit(arraySpec(muster.KindNoop, tasks))
	}
	for b.Loop() {
		for _, p := range browser.measure(b, c, job.ID, seconds) {
			for unit, value := range map[string]float64{
				"loaded-ms": p.Loaded, "frame-p50-ms": p.FrameP50, "frame-p99-ms": p.FrameP99, "frame-max-ms": p.FrameMax,
				"cpu-p50-ms": p.CPUP50, "cpu-p99-ms": p.CPUP99, "cpu-max-ms": p.CPUMax, "busy-%": 100 * p.Busy,
				"long-tasks": p.LongTasks, "longest-task-ms": p.LongestTask, "requests/s": p.Requests,
				"heap-first-MB": p.HeapFirst / 1e6, "heap-last-MB": p.HeapLast / 1e6, "events/s": p.EventsRate,
			} {
				b.ReportMetric(value, p.Name+"-"+unit)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
}

// browser is web/e2e/load.mjs, which waits for its settings.
type browser struct {
	settings io.WriteCloser
	output   bytes.Buffer
	process  *exec.Cmd
}

func startBrowser(b *testing.B, seconds float64) *browser {
	b.Helper()
	limit := time.Duration(1.5*seconds*float64(time.Second)) + 20*time.Minute
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	b.Cleanup(cancel)
	w := &browser{process: exec.CommandContext(ctx, "node", filepath.Join("..", "..", "web", "e2e", "load.mjs"))}
	w.process.Stdout, w.process.Stderr = &w.output, os.Stderr
	settings, err := w.process.StdinPipe()
	if err == nil {
		err = w.process.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	w.settings = settings
	return w
}

// measure waits for what the browser measures on the dashboard of c.
func (w *browser) measure(b *testing.B, c *mustertest.Cluster, job muster.JobID, seconds float64) (pages []page) {
	b.Helper()
	err := json.NewEncoder(w.settings).Encode(map[string]any{"url": "http://" + c.Addr, "token": mustertest.AdminToken, "job": job, "seconds": seconds})
	if err := errors.Join(err, w.settings.Close(), w.process.Wait(), json.Unmarshal(w.output.Bytes(), &pages)); err != nil {
		b.Fatalf("%v\n%s", err, w.output.Bytes())
	}
	return pages
}

// yieldProcessor lets this process, and those that it starts from now on, run only while no other wants the processor.
func yieldProcessor(b *testing.B) {
	b.Helper()
	threads, err := filepath.Glob("/proc/self/task/*")
	if err != nil {
		b.Fatal(err)
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(filepath.Base(t))
		if err == nil {
			err = unix.SchedSetAttr(tid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			b.Fatal(err)
		}
	}
}
