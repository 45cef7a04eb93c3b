package hostpolicy

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
)

// Interval is the time between two checks.
const Interval = 2 * time.Second

// staleAfter is the age from which a reading is out of date.
const staleAfter = 15 * time.Second

// Worker is what an Enforcer controls. Its methods do not block for long.
type Worker interface {
	// Constrain sets why the worker takes no new tasks; "" removes the reason of that source.
	Constrain(source, why string)
	// Running lists the attempts that have not ended.
	Running() []Running
	// Preempt ends an attempt here after it had time to save a checkpoint; it continues on another worker.
	Preempt(id muster.AttemptID, why string)
	// Freeze stops or continues an attempt's processes.
	Freeze(id muster.AttemptID, on bool, why string) error
	// Withhold sets which devices are not offered for now, by UUID, and why. All others are offered.
	Withhold(devices map[string]string)
}

// Running is an attempt that has not ended.
type Running struct {
	Attempt    muster.AttemptID
	GPUs       []string // granted to it
	Checkpoint bool     // it can save, and continue elsewhere
	Started    bool     // it has processes
}

// Config configures an Enforcer.
type Config struct {
	Options
	Data    string // the worker's data dir, whose disk is checked
	Worker  Worker
	GPUs    func() (gpu.Readings, bool) // the latest readings
	Devices func() []muster.GPU         // those of the worker
	Log     *slog.Logger
}

// Enforcer checks the machine periodically and applies the owner's policy.
type Enforcer struct {
	cfg           Config
	thresholds    thresholds
	host          host
	disk          atomic.Pointer[muster.DiskLoad] // at the last check
	owner         ownerTracker
	procs         *procOwners
	startedAt     time.Time
	gotReadings   bool // devices have been read
	outsideHours  bool
	constraints   map[string]string
	withheld      map[string]string // devices, as last passed to the worker
	noProcessList map[string]bool   // devices without a list of processes, which was logged
	tasks         map[muster.AttemptID]taskState
}

// taskState is what was done with an attempt.
type taskState struct {
	preempted    bool
	frozen       bool
	applied      bool // frozen is known; false after a restart of the worker
	freezeFailed bool // a failure to freeze it was logged
}

// New returns an Enforcer that does nothing until Run.
func New(cfg Config) *Enforcer {
	return &Enforcer{
		cfg: cfg, thresholds: cfg.thresholds(diskSize(cfg.Data)), procs: newProcOwners(), owner: ownerTracker{coolDown: cfg.coolDown(), uses: map[string]*deviceUse{}},
		constraints: map[string]string{}, noProcessList: map[string]bool{}, tasks: map[muster.AttemptID]taskState{},
	}
}

// CheckThresholds checks the thresholds for the first time, before the worker takes tasks.
func (e *Enforcer) CheckThresholds(ctx context.Context) {
	e.checkThresholds(ctx, time.Now())
}

// Disk returns how full the data dir's disk was at the last check, nil if unknown. It is safe for concurrent use, and does not wait
// for a disk that does not respond.
func (e *Enforcer) Disk() *muster.DiskLoad { return e.disk.Load() }

// Run checks the machine until ctx ends. It leaves constraints and frozen tasks as they are then.
func (e *Enforcer) Run(ctx context.Context) error {
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for {
		e.check(ctx, time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (e *Enforcer) check(ctx context.Context, now time.Time) {
	if e.startedAt.IsZero() {
		e.startedAt = now
	}
	rs, fresh := e.checkThresholds(ctx, now)
	e.checkHours(now)
	running := e.cfg.Worker.Running()
	busy := map[string]string{}
	if e.cfg.Yield {
		busy = e.checkOwner(ctx, now, rs, fresh, running)
	}
	e.apply(now, running, busy)
}

func (e *Enforcer) checkThresholds(ctx context.Context, now time.Time) (rs gpu.Readings, fresh bool) {
	rs, fresh = e.readings(now)
	disk := e.host.disk(ctx, e.cfg.Data)
	e.updateThresholds(now, e.measure(ctx, &rs, fresh, disk))
	if disk != nil {
		disk.Low = (e.thresholds.disk == nil || !e.thresholds.disk.closed) && e.cfg.isLow(disk)
	}
	e.disk.Store(disk)
	return rs, fresh
}

func (e *Enforcer) readings(now time.Time) (rs gpu.Readings, fresh bool) {
	if e.thresholds.gpu == nil && !e.cfg.Yield {
		return rs, false
	}
	rs, ok := e.cfg.GPUs()
	fresh = ok && now.Sub(rs.At) < staleAfter
	e.gotReadings = e.gotReadings || fresh
	return rs, fresh
}

func (e *Enforcer) measure(ctx context.Context, rs *gpu.Readings, fresh bool, disk *muster.DiskLoad) load {
	l := load{cpu: math.NaN(), memory: math.NaN(), gpu: math.NaN(), disk: math.NaN()}
	if e.thresholds.cpu != nil {
		l.cpu = e.host.cpu(ctx)
	}
	if e.thresholds.memory != nil {
		l.memory = e.host.memory(ctx)
	}
	if disk != nil {
		l.disk = -float64(disk.Free)
	}
	if fresh {
		l.gpu = meanUtilization(rs)
	}
	return l
}

func (e *Enforcer) updateThresholds(now time.Time, l load) {
	for _, t := range []struct {
		threshold *threshold
		reading   float64
	}{{e.thresholds.cpu, l.cpu}, {e.thresholds.memory, l.memory}, {e.thresholds.gpu, l.gpu}, {e.thresholds.disk, l.disk}} {
		if t.threshold != nil {
			e.constrain(t.threshold.name, t.threshold.update(now, t.reading))
		}
	}
}

func (e *Enforcer) checkHours(now time.Time) {
	if e.cfg.Hours == nil {
		return
	}
	reason := e.cfg.Hours.closedReason(now)
	e.outsideHours = reason != ""
	e.constrain("hours", reason)
}

func (e *Enforcer) constrain(source, why string) {
	before := e.constraints[source]
	if before == why {
		return
	}
	e.constraints[source] = why
	e.cfg.Worker.Constrain(source, why)
	switch {
	case before == "":
		e.cfg.Log.Info("not accepting tasks", slog.String("why", why))
	case why == "":
		e.cfg.Log.Info("accepting tasks again", slog.String("by", source))
	}
}

// checkOwner withholds the devices that the owner uses, and returns them.
func (e *Enforcer) checkOwner(ctx context.Context, now time.Time, rs gpu.Readings, fresh bool, running []Running) map[string]string {
	granted := map[string]bool{}
	for i := range running {
		for _, id := range running[i].GPUs {
			granted[id] = true
		}
	}
	devices := rs.Devices
	if !fresh {
		devices = nil
	}
	for i := range devices {
		if id := devices[i].UUID; devices[i].Processes == nil && !e.noProcessList[id] && now.Sub(e.startedAt) >= staleAfter {
			e.noProcessList[id] = true
			e.cfg.Log.Warn("--yield-to-owner has no effect on a GPU: its tool does not list processes", slog.String("gpu", id))
		}
	}
	busy := e.owner.update(now, devices, granted, e.procs.snapshot(ctx))
	for _, d := range e.cfg.Devices() {
		if why := busy[d.Parent]; d.Parent != "" && why != "" && busy[d.UUID] == "" {
			busy[d.UUID] = why
		}
	}
	if !maps.Equal(busy, e.withheld) {
		for _, id := range slices.Sorted(maps.Keys(busy)) {
			if e.withheld[id] == "" {
				e.cfg.Log.Info("GPU withheld", slog.String("gpu", id), slog.String("why", busy[id]))
			}
		}
		e.withheld = maps.Clone(busy)
		e.cfg.Worker.Withhold(maps.Clone(busy))
	}
	return busy
}

func (e *Enforcer) apply(now time.Time, running []Running, busy map[string]string) {
	// Tasks that were frozen before a restart of the worker continue only when the owner's use of GPUs is known.
	known := !e.cfg.Yield || e.gotReadings || now.Sub(e.startedAt) >= staleAfter
	tasks := make(map[muster.AttemptID]taskState, len(e.tasks))
	for i := range running {
		r := &running[i]
		t := e.tasks[r.Attempt]
		why := ""
		for _, id := range r.GPUs {
			if why = busy[id]; why != "" {
				break
			}
		}
		switch {
		case t.preempted:
		case e.outsideHours && e.cfg.AfterHours == Preempt:
			e.preempt(r, &t, "the worker's hours "+e.cfg.Hours.String()+" are over")
		case why != "" && r.Checkpoint:
			e.preempt(r, &t, "its GPU is "+why)
		case len(r.GPUs) == 0 || !r.Started:
		case why != "" && (!t.frozen || !t.applied):
			e.freeze(r, &t, true, "its GPU is "+why)
		case why == "" && (t.frozen || !t.applied) && known:
			e.freeze(r, &t, false, "")
		}
		if t != (taskState{}) {
			tasks[r.Attempt] = t
		}
	}
	e.tasks = tasks
}

func (e *Enforcer) preempt(r *Running, t *taskState, why string) {
	if t.frozen || len(r.GPUs) > 0 && !t.applied {
		e.freeze(r, t, false, "") // so that it can handle the signal
	}
	t.preempted = true
	e.cfg.Log.Info("preempting task", slog.String("attempt", r.Attempt.String()), slog.String("why", why))
	e.cfg.Worker.Preempt(r.Attempt, why)
}

func (e *Enforcer) freeze(r *Running, t *taskState, on bool, why string) {
	if !r.Started {
		return
	}
	if err := e.cfg.Worker.Freeze(r.Attempt, on, why); err != nil {
		if !t.freezeFailed {
			e.cfg.Log.Warn("cannot freeze or continue task", slog.String("attempt", r.Attempt.String()), slog.Bool("freeze", on), slog.Any("error", err))
		}
		t.freezeFailed = true
		return
	}
	if on != t.frozen {
		e.cfg.Log.Info("task frozen or continued", slog.String("attempt", r.Attempt.String()), slog.Bool("frozen", on), slog.String("why", why))
	}
	t.frozen, t.applied, t.freezeFailed = on, true, false
}
