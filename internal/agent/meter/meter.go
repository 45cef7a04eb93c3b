package meter

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Config configures a Meter.
type Config struct {
	Isolator run.Isolator                                    // nil: no control groups
	GPUs     func() (gpu.Readings, bool)                     // the latest readings; nil: no devices
	History  func(muster.AttemptID) ([]muster.Sample, error) // all samples so far, including those from before a restart of the worker
	Price    float64                                         // of the worker, per hour
	Log      *slog.Logger
}

// Meter measures attempts while Run runs.
type Meter struct {
	cfg     Config
	network traffic // used by the goroutine of measure
	scans   int     // how often it read all processes of the machine

	samples *schedule
	walks   *schedule // of the folders
}

// New makes a Meter.
func New(cfg Config) *Meter {
	return &Meter{cfg: cfg, samples: newSchedule(), walks: newSchedule()}
}

const (
	firstSample   = time.Second      // to the first sample
	minInterval   = 5 * time.Second  // between samples at first
	maxInterval   = time.Minute      // between samples at most
	checkInterval = time.Second      // between checks of limits that the kernel does not enforce
	walkInterval  = 30 * time.Second // between walks of folders
	ageDivisor    = 720              // the interval is at least the attempt's age divided by this
)

// Subject is an attempt to measure.
type Subject struct {
	Task      *run.Task
	Pid       run.Pid
	Isolation *run.IsolationSpec // nil for none
	Folders   run.Folders
	Written   []string // folders outside Folders that the task's disk includes: see run.Container
}

// Handler receives the results of a Meter, on the Meter's goroutine.
type Handler interface {
	// Sampled is called every few seconds.
	Sampled(s muster.Sample)
	// Warned has a line for the task's log: the task is about to exceed a limit.
	Warned(line string)
	// Exceeded is called once: the task must be stopped.
	Exceeded(cause *run.Stopped)
}

// Watch measures until stop is called, which returns the usage, as far as it was measured.
func (m *Meter) Watch(s *Subject, h Handler) (stop func() muster.Usage) {
	sub := newSubject(s, h, time.Now())
	m.samples.add(sub, sub.due())
	m.walks.add(sub, sub.walkDue())
	var once sync.Once
	return func() (u muster.Usage) {
		once.Do(func() {
			m.samples.remove(sub)
			m.walks.remove(sub)
			u = m.usage(sub, time.Now())
		})
		return u
	}
}

func (m *Meter) usage(sub *subject, now time.Time) muster.Usage {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	sums := &sub.sums
	if sub.Task.Recovered != nil && m.cfg.History != nil {
		// Samples from before a restart of the worker count.
		if all, err := m.cfg.History(sub.Task.Attempt); err != nil {
			m.cfg.Log.Warn("cannot read earlier samples, usage of the attempt is incomplete",
				slog.String("attempt", sub.Task.Attempt.String()), slog.Any("error", err))
		} else if len(all) >= sums.Len() {
			total := sub.newSums()
			before := sub.started
			for i := range all {
				total.AddSince(before, &all[i])
				before = all[i].At.Std()
			}
			total.MergePeaksOf(sums)
			sums = &total
		}
	}
	u := sums.Usage()
	u.Cost = m.cfg.Price * max(0, now.Sub(sub.started).Hours())
	return u
}

// aligned returns the multiple of unit that is nearest to t. Attempts that started at different times are measured
// together, so that they share one reading of the machine.
func aligned(t time.Time, unit time.Duration) time.Time {
	return t.Add(t.Round(unit).Sub(t)) // Round alone would drop the monotonic clock
}

// Run measures until ctx ends.
func (m *Meter) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		m.samples.run(ctx, m.measure, (*subject).due)
		return nil
	})
	g.Go(func() error {
		m.walks.run(ctx, walk, (*subject).walkDue)
		return nil
	})
	return g.Wait()
}

func (m *Meter) measure(ctx context.Context, now time.Time, list []*subject) {
	src := m.readSources(ctx)
	for _, sub := range list {
		sub.update(ctx, now, src, &m.cfg)
	}
}

// sources are the readings of the machine that all subjects share at one time.
type sources struct {
	processes func() processTable // all processes of the machine, read once at most
	devices   gpu.Readings
	in, out   *float64 // bytes a second of the host's network
}

func (m *Meter) readSources(ctx context.Context) *sources {
	src := &sources{processes: sync.OnceValue(func() processTable {
		m.scans++
		return newProcessTable(readProcesses(ctx))
	})}
	if m.cfg.GPUs != nil {
		src.devices, _ = m.cfg.GPUs()
	}
	src.in, src.out = m.network.rates(ctx, time.Now())
	return src
}

func walk(ctx context.Context, _ time.Time, list []*subject) {
	for _, sub := range list {
		sub.walk(ctx)
	}
}
