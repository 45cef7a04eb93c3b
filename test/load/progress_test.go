package load

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/agent/progress"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/link/wslink"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/tasklog"
)

const (
	trainingWorkers = 10
	trainingSlots   = 100
	reportInterval  = 250 * time.Millisecond
)

// training is an executor of tasks that report progress until they are cancelled, as an executor of processes does it, without the processes.
type training struct {
	logs      *tasklog.Dir
	reporting *atomic.Bool
}

var _ run.Executor = training{}

// Kind implements run.Executor.
func (training) Kind() string { return muster.KindProcess }

// Run implements run.Executor.
func (x training) Run(ctx context.Context, t *run.Task, reporter run.Reporter) muster.Report {
	began := muster.NewTime(time.Now())
	reporter.Started(began)
	var size int64
	points := progress.NewPointLogger(func(at time.Time, data []byte) {
		n, err := x.logs.Append(ctx, t.Attempt, size, tasklog.AppendRecord(nil, tasklog.Record{Stream: tasklog.Progress, At: at, Data: data}))
		if err == nil {
			size = n
			reporter.LogGrew(n)
		}
	})
	time.Sleep(rand.N(reportInterval)) // tasks do not report at the same moments
	ticker := time.NewTicker(reportInterval)
	defer ticker.Stop()
	for step := 1; ; step++ {
		select {
		case <-ctx.Done():
			points.Close()
			stopped := run.StopCause(ctx)
			return muster.Report{Attempt: t.Attempt, Outcome: stopped.Outcome, Reason: stopped.Reason, LogSize: size, StartedAt: began, FinishedAt: muster.NewTime(time.Now())}
		case <-ticker.C:
		}
		if !x.reporting.Load() {
			continue
		}
		done, name := float64(step)/1e6, "step "+strconv.Itoa(step)
		p := muster.Progress{Progress: &done, Step: &name, Metrics: map[string]float64{"loss": 1 / float64(step), "accuracy": done, "rate": 3e-4}}
		points.Add(&p)
		reporter.Progress(p)
	}
}

// noProcesses is a supervisor without processes.
type noProcesses struct{}

func (noProcesses) Recovered() []run.Recovered          { return nil }
func (noProcesses) SetLastContact(time.Duration)        {}
func (noProcesses) LastContact() time.Duration          { return 0 }
func (noProcesses) Freeze(muster.AttemptID, bool) error { return nil }
func (noProcesses) Forget(...muster.AttemptID)          {}

// startTraining runs workers until the benchmark ends.
func startTraining(b *testing.B, c *mustertest.Cluster, reporting *atomic.Bool) {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	group, ctx := errgroup.WithContext(ctx)
	server := &url.URL{Scheme: "http", Host: c.Addr}
	for i := range trainingWorkers {
		dir := b.TempDir()
		name, log := fmt.Sprintf("training-%d", i), slog.New(slog.DiscardHandler)
		id, err := agent.Join(ctx, http.DefaultClient, server, mustertest.JoinToken, agent.Registration{Name: name}, dir, log)
		if err != nil {
			b.Fatal(err)
		}
		logs, err := tasklog.OpenDir(filepath.Join(dir, "logs"))
		if err != nil {
			b.Fatal(err)
		}
		logs.KeepOpen(trainingSlots)
		reports, err := agent.OpenReportStore(dir)
		if err != nil {
			b.Fatal(err)
		}
		a := agent.New(agent.Config{
			Identity: id, Name: name, Dir: dir, Reports: reports, Logs: logs, Dialer: &wslink.Dialer{Server: server.String(), Credentials: agent.NewCredentials(id, server, http.DefaultClient, dir, log)}, Supervisor: noProcesses{},
			Resources: muster.Resources{Slots: trainingSlots, CPUs: 1000, Memory: 1 << 40, Disk: 1 << 40}, Executors: []run.Executor{training{logs, reporting}}, RemoteTasks: true, Log: log,
		})
		group.Go(func() error {
			defer reports.Close()
			defer logs.Close()
			return a.Run(ctx)
		})
	}
	b.Cleanup(func() {
		stop()
		if err := group.Wait(); err != nil {
			b.Error(err)
		}
	})
}

// BenchmarkProgress measures how much of a core the server needs for 1,000 tasks on 10 workers that report progress, a step and three metrics
// four times a second, with nobody watching, beside the same tasks without reports.
func BenchmarkProgress(b *testing.B) {
	const warmUp, measured = 10 * time.Second, 30 * time.Second
	c := mustertest.New(b, b.TempDir())
	var reporting atomic.Bool
	startTraining(b, c, &reporting)
	job := c.Submit(arraySpec(muster.KindProcess, trainingWorkers*trainingSlots, "train"))
	c.AwaitRunning(job.ID, trainingWorkers*trainingSlots)
	for b.Loop() {
		for _, on := range []bool{false, true} {
			reporting.Store(on)
			time.Sleep(warmUp)
			cpu, frames, bytes, began := cpuTime(b, c.Server.PID()), metric(b, c, `muster_link_frames_total{direction="in"}`), metric(b, c, "muster_log_received_bytes_total"), time.Now()
			time.Sleep(measured)
			cpu, took := cpuTime(b, c.Server.PID())-cpu, time.Since(began).Seconds()
			if !on {
				b.ReportMetric(100*cpu.Seconds()/took, "idle-%core")
				continue
			}
			b.ReportMetric(100*cpu.Seconds()/took, "server-%core")
			b.ReportMetric((metric(b, c, `muster_link_frames_total{direction="in"}`)-frames)/took, "frames/s")
			b.ReportMetric((metric(b, c, "muster_log_received_bytes_total")-bytes)/took/1e3, "log-kB/s")
		}
		for _, t := range c.Tasks(job.ID) {
			if t.Progress == nil || t.Metrics["accuracy"] == 0 {
				b.Fatalf("the progress of task %s is not shown", t.ID)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	cancelAll(b, c, job.ID)
}

// metric reads a metric of the server.
func metric(b *testing.B, c *mustertest.Cluster, name string) float64 {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://"+c.Addr+"/metrics", nil)
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+mustertest.AdminToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			return v
		}
	}
	b.Fatalf("the server has no metric %s: %s", name, resp.Status)
	return 0
}
