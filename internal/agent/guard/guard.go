package guard

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

// Every is the time between two looks.
const Every = 2 * time.Second

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

// Guard looks at the machine again and again.
type Guard struct {
	cfg    Config
	gates  gates
	host   host
	disk   atomic.Pointer[muster.DiskLoad] // at the last look
	owner  owner
	kin    *machine
	began  time.Time
	read   bool // devices have told something
	closed bool // outside the hours
	said   map[string]string
	held   map[string]string // devices, as last said
	mute   map[string]bool   // devices that do not tell who uses them, as was said
	tasks  map[muster.AttemptID]tended
}

// tended is what was done with an attempt.
type tended struct {
	preempted bool
	frozen    bool
	settled   bool // frozen is how it is, not only how this life of the worker left it
	failed    bool // that it cannot be frozen was said
}

// New makes a Guard that does nothing until Run.
func New(cfg Config) *Guard {
	return &Guard{
		cfg: cfg, gates: cfg.gates(diskSize(cfg.Data)), kin: newMachine(), owner: owner{coolDown: cfg.coolDown(), uses: map[string]*use{}},
		said: map[string]string{}, mute: map[string]bool{}, tasks: map[muster.AttemptID]tended{},
	}
}

// Begin holds the machine against the thresholds for the first time, before the worker
// takes tasks.
func (g *Guard) Begin(ctx context.Context) {
	g.hold(ctx, time.Now())
}

// Disk returns how full the data dir's disk was at the last look, nil where that is unknown. Any goroutine may call it, and it does not wait for a disk
// that does not answer.
func (g *Guard) Disk() *muster.DiskLoad { return g.disk.Load() }

// Run looks until ctx ends. It leaves everything as it is then.
func (g *Guard) Run(ctx context.Context) error {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		g.look(ctx, time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look is one look at everything.
func (g *Guard) look(ctx context.Context, now time.Time) {
	if g.began.IsZero() {
		g.began = now
	}
	rs, fresh := g.hold(ctx, now)
	g.keepHours(now)
	running := g.cfg.Worker.Running()
	busy := map[string]string{}
	if g.cfg.Yield {
		busy = g.owners(ctx, now, rs, fresh, running)
	}
	g.tend(now, running, busy)
}

// hold measures the machine and holds what it does against the thresholds.
func (g *Guard) hold(ctx context.Context, now time.Time) (rs gpu.Readings, fresh bool) {
	rs, fresh = g.readings(now)
	disk := g.host.disk(ctx, g.cfg.Data)
	g.limit(now, g.measure(ctx, &rs, fresh, disk))
	if disk != nil {
		disk.Low = (g.gates.disk == nil || !g.gates.disk.closed) && g.cfg.low(disk)
	}
	g.disk.Store(disk)
	return rs, fresh
}

func (g *Guard) readings(now time.Time) (rs gpu.Readings, fresh bool) {
	if g.gates.gpu == nil && !g.cfg.Yield {
		return rs, false
	}
	rs, ok := g.cfg.GPUs()
	fresh = ok && now.Sub(rs.At) < staleAfter
	g.read = g.read || fresh
	return rs, fresh
}

func (g *Guard) measure(ctx context.Context, rs *gpu.Readings, fresh bool, disk *muster.DiskLoad) load {
	l := load{cpu: math.NaN(), memory: math.NaN(), gpu: math.NaN(), disk: math.NaN()}
	if g.gates.cpu != nil {
		l.cpu = g.host.cpu(ctx)
	}
	if g.gates.memory != nil {
		l.memory = g.host.memory(ctx)
	}
	if disk != nil {
		l.disk = -float64(disk.Free)
	}
	if fresh {
		l.gpu = computing(rs)
	}
	return l
}

// limit holds the load against the thresholds.
func (g *Guard) limit(now time.Time, l load) {
	for _, t := range []struct {
		gate    *gate
		reading float64
	}{{g.gates.cpu, l.cpu}, {g.gates.memory, l.memory}, {g.gates.gpu, l.gpu}, {g.gates.disk, l.disk}} {
		if t.gate != nil {
			g.constrain(t.gate.name, t.gate.see(now, t.reading))
		}
	}
}

func (g *Guard) keepHours(now time.Time) {
	if g.cfg.Hours == nil {
		return
	}
	why := g.cfg.Hours.see(now)
	g.closed = why != ""
	g.constrain("hours", why)
}

// constrain passes on what is new.
func (g *Guard) constrain(source, why string) {
	before := g.said[source]
	if before == why {
		return
	}
	g.said[source] = why
	g.cfg.Worker.Constrain(source, why)
	switch {
	case before == "":
		g.cfg.Log.Info("nothing new is taken", slog.String("why", why))
	case why == "":
		g.cfg.Log.Info("no longer constrained", slog.String("by", source))
	}
}

// owners finds the devices that the owner uses, and withholds them.
func (g *Guard) owners(ctx context.Context, now time.Time, rs gpu.Readings, fresh bool, running []Running) map[string]string {
	given := map[string]bool{}
	for i := range running {
		for _, id := range running[i].GPUs {
			given[id] = true
		}
	}
	each := rs.Each
	if !fresh {
		each = nil
	}
	for i := range each {
		if id := each[i].UUID; each[i].Processes == nil && !g.mute[id] && now.Sub(g.began) >= staleAfter {
			g.mute[id] = true
			g.cfg.Log.Warn("--yield-to-owner has no effect on a GPU: its tool does not tell which processes use it", slog.String("gpu", id))
		}
	}
	busy := g.owner.see(now, each, given, g.kin.look(ctx))
	for _, d := range g.cfg.Devices() {
		if why := busy[d.Parent]; d.Parent != "" && why != "" && busy[d.UUID] == "" {
			busy[d.UUID] = why
		}
	}
	if !maps.Equal(busy, g.held) {
		for _, id := range slices.Sorted(maps.Keys(busy)) {
			if g.held[id] == "" {
				g.cfg.Log.Info("a GPU is withheld", slog.String("gpu", id), slog.String("why", busy[id]))
			}
		}
		g.held = maps.Clone(busy)
		g.cfg.Worker.Withhold(maps.Clone(busy))
	}
	return busy
}

// tend preempts, freezes and lets go on what runs.
func (g *Guard) tend(now time.Time, running []Running, busy map[string]string) {
	// What an earlier life left frozen goes on only when it is known that it may.
	sure := !g.cfg.Yield || g.read || now.Sub(g.began) >= staleAfter
	tasks := make(map[muster.AttemptID]tended, len(g.tasks))
	for i := range running {
		r := &running[i]
		t := g.tasks[r.Attempt]
		why := ""
		for _, id := range r.GPUs {
			if why = busy[id]; why != "" {
				break
			}
		}
		switch {
		case t.preempted:
		case g.closed && g.cfg.HoursThen == Preempt:
			g.preempt(r, &t, "the worker's hours "+g.cfg.Hours.String()+" are over")
		case why != "" && r.Checkpoint:
			g.preempt(r, &t, "its GPU is "+why)
		case len(r.GPUs) == 0 || !r.Started:
		case why != "" && (!t.frozen || !t.settled):
			g.freeze(r, &t, true, "its GPU is "+why)
		case why == "" && (t.frozen || !t.settled) && sure:
			g.freeze(r, &t, false, "")
		}
		if t != (tended{}) {
			tasks[r.Attempt] = t
		}
	}
	g.tasks = tasks
}

func (g *Guard) preempt(r *Running, t *tended, why string) {
	if t.frozen || len(r.GPUs) > 0 && !t.settled {
		g.freeze(r, t, false, "") // it is to hear the signal
	}
	t.preempted = true
	g.cfg.Log.Info("a task makes way", slog.String("attempt", r.Attempt.String()), slog.String("why", why))
	g.cfg.Worker.Preempt(r.Attempt, why)
}

func (g *Guard) freeze(r *Running, t *tended, on bool, why string) {
	if !r.Started {
		return
	}
	if err := g.cfg.Worker.Freeze(r.Attempt, on, why); err != nil {
		if !t.failed {
			g.cfg.Log.Warn("a task cannot be frozen or let go on", slog.String("attempt", r.Attempt.String()), slog.Bool("freeze", on), slog.Any("error", err))
		}
		t.failed = true
		return
	}
	if on != t.frozen {
		g.cfg.Log.Info("a task is frozen or goes on", slog.String("attempt", r.Attempt.String()), slog.Bool("frozen", on), slog.String("why", why))
	}
	t.frozen, t.settled, t.failed = on, true, false
}
