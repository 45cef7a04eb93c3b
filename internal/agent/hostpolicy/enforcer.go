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

// Interval is the time between two looks.
const Interval = 2 * time.Second

// staleAfter is the age from which a reading says nothing about now.
const staleAfter = 15 * time.Second

// Worker is what a Guard steers. Its methods do not block for long.
type Worker interface {
	// Constrain says why the worker takes nothing new; "" takes the source's word back.
	Constrain(source, why string)
	// Running lists the attempts that have not ended.
	Running() []Running
	// Preempt ends an attempt here, after it had time to save; it goes on elsewhere.
	Preempt(id muster.AttemptID, why string)
	// Freeze stops an attempt's processes, or lets them go on.
	Freeze(id muster.AttemptID, on bool, why string) error
	// Withhold says which devices are not offered for now, by UUID, and why. What
	// it does not name is offered again.
	Withhold(devices map[string]string)
}

// Running is an attempt that has not ended.
type Running struct {
	Attempt    muster.AttemptID
	GPUs       []string // that it was given
	Checkpoint bool     // it can save, and go on elsewhere
	Started    bool     // it has processes
}

// Config is what a Guard is made of.
type Config struct {
	Options
	Data    string // the worker's data dir, whose disk is looked at
	Worker  Worker
	GPUs    func() (gpu.Readings, bool) // the last readings
	Devices func() []muster.GPU         // those of the worker
	Log     *slog.Logger
}

// Enforcer looks at the machine again and again.
type Enforcer struct {
	cfg           Config
	thresholds    thresholds
	host          host
	disk          atomic.Pointer[muster.DiskLoad] // at the last look
	owner         ownerTracker
	procs         *procOwners
	startedAt     time.Time
	gotReadings   bool // devices have told something
	outsideHours  bool // outside the hours
	constraints   map[string]string
	withheld      map[string]string // devices, as last said
	noProcessList map[string]bool   // devices that do not tell who uses them, as was said
	tasks         map[muster.AttemptID]taskState
}

// taskState is what was done with an attempt.
type taskState struct {
	preempted    bool
	frozen       bool
	applied      bool // frozen is how it is, not only how this life of the worker left it
	freezeFailed bool // that it cannot be frozen was said
}

// New makes a Guard that does nothing until Run.
func New(cfg Config) *Enforcer {
	return &Enforcer{
		cfg: cfg, thresholds: cfg.thresholds(diskSize(cfg.Data)), procs: newProcOwners(), owner: ownerTracker{coolDown: cfg.coolDown(), uses: map[string]*deviceUse{}},
		constraints: map[string]string{}, noProcessList: map[string]bool{}, tasks: map[muster.AttemptID]taskState{},
	}
}

// CheckThresholds holds the machine against the thresholds for the first time, before the worker
// takes tasks.
func (e *Enforcer) CheckThresholds(ctx context.Context) {
	e.checkThresholds(ctx, time.Now())
}

// Disk returns how full the data dir's disk was at the last look, nil where that is unknown. Any goroutine may call it, and it does not wait for a disk
// that does not answer.
func (e *Enforcer) Disk() *muster.DiskLoad { return e.disk.Load() }

// Run looks until ctx ends. It leaves everything as it is then.
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

// check is one look at everything.
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

// checkThresholds measures the machine and holds what it does against the thresholds.
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

// updateThresholds holds the load against the thresholds.
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

// constrain passes on what is new.
func (e *Enforcer) constrain(source, why string) {
	before := e.constraints[source]
	if before == why {
		return
	}
	e.constraints[source] = why
	e.cfg.Worker.Constrain(source, why)
	switch {
	case before == "":
		e.cfg.Log.Info("nothing new is taken", slog.String("why", why))
	case why == "":
		e.cfg.Log.Info("no longer constrained", slog.String("by", source))
	}
}

// checkOwner finds the devices that the owner uses, and withholds them.
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
			e.cfg.Log.Warn("--yield-to-owner has no effect on a GPU: its tool does not tell which processes use it", slog.String("gpu", id))
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
				e.cfg.Log.Info("a GPU is withheld", slog.String("gpu", id), slog.String("why", busy[id]))
			}
		}
		e.withheld = maps.Clone(busy)
		e.cfg.Worker.Withhold(maps.Clone(busy))
	}
	return busy
}

// apply preempts, freezes and lets go on what runs.
func (e *Enforcer) apply(now time.Time, running []Running, busy map[string]string) {
	// What an earlier life left frozen goes on only when it is known that it may.
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
		e.freeze(r, t, false, "") // it is to hear the signal
	}
	t.preempted = true
	e.cfg.Log.Info("a task makes way", slog.String("attempt", r.Attempt.String()), slog.String("why", why))
	e.cfg.Worker.Preempt(r.Attempt, why)
}

func (e *Enforcer) freeze(r *Running, t *taskState, on bool, why string) {
	if !r.Started {
		return
	}
	if err := e.cfg.Worker.Freeze(r.Attempt, on, why); err != nil {
		if !t.freezeFailed {
			e.cfg.Log.Warn("a task cannot be frozen or let go on", slog.String("attempt", r.Attempt.String()), slog.Bool("freeze", on), slog.Any("error", err))
		}
		t.freezeFailed = true
		return
	}
	if on != t.frozen {
		e.cfg.Log.Info("a task is frozen or goes on", slog.String("attempt", r.Attempt.String()), slog.Bool("frozen", on), slog.String("why", why))
	}
	t.frozen, t.applied, t.freezeFailed = on, true, false
}
