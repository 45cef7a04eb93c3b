// Package probe finds out what a machine has, one file for each fact. A fact that cannot be found out is absent, and a note says
// why; a probe never prevents a worker from starting. The facts are offered to the server, and probed again while the worker
// runs: see Watch.
package probe

import (
	"context"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/isolation"
)

// Facts is what a machine has and offers as a worker. The JSON is stable: muster probe prints it, and docs/workers.md
// documents it.
type Facts struct {
	Hostname  string             `json:"hostname,omitempty"`
	System    System             `json:"system"`
	CPU       CPU                `json:"cpu"`
	Memory    Memory             `json:"memory"`
	Disk      Disk               `json:"disk"` // of the data dir
	Disks     []Disk             `json:"disks"`
	Network   Network            `json:"network"`
	GPUs      []gpu.Device       `json:"gpus"`
	Engines   []Engine           `json:"engines"`
	Python    []Python           `json:"python"`
	UV        *UV                `json:"uv,omitempty"`
	Models    []ModelCache       `json:"models"`
	Limits    *Limits            `json:"limits,omitempty"` // how tasks are isolated, if requested in Config
	Tags      []string           `json:"tags"`
	Resources muster.Resources   `json:"resources"`       // offered unless the operator overrides them
	Kinds     []string           `json:"kinds,omitempty"` // of tasks that the operator accepts; nil means all
	Allow     *muster.Allow      `json:"allow,omitempty"` // what the operator lets tasks use
	Notes     []string           `json:"notes"`
	Took      map[string]Seconds `json:"took"` // by fact, such as gpus, and in total
}

// Seconds is how long a probe of a fact took.
type Seconds float64

func secondsSince(since time.Time) Seconds {
	return Seconds(time.Since(since).Round(time.Millisecond).Seconds())
}

// Config configures a Probe.
type Config struct {
	Data      string                // the worker's data dir; it need not exist
	Bandwidth muster.Size           // limit of the worker's transfers, bytes per second; 0 means none
	CanReach  func(dir string) bool // reports whether tasks can reach a directory, for interpreters; nil: all
	Engine    string                // URL of the engine to use, with precedence over $DOCKER_HOST; or NoEngine; other values are ignored
	Isolation *isolation.Config     // describe how a worker with this configuration isolates tasks; nil: do not
}

// NoEngine is the Config.Engine of a worker without container engine: none is probed.
const NoEngine = "none"

// Limits describes how a worker of this machine isolates its tasks.
type Limits = isolation.Description

// Probe finds out facts, and caches those that do not change. It is safe for concurrent use.
type Probe struct {
	cfg     Config
	host    *host
	pythons pythonCache

	busy sync.Map // names of queries that run, perhaps since an earlier Run
}

// New makes a Probe of this machine.
func New(cfg Config) *Probe {
	h := thisHost()
	h.canReach, h.engine = cfg.CanReach, cfg.Engine
	return &Probe{cfg: cfg, host: h}
}

// The time of a Run, even if tools hang, and of queries that respect their context: these have a second left to return.
const (
	runTimeout   = 9 * time.Second
	queryTimeout = runTimeout - time.Second
)

// query finds out one fact, or related ones.
type query struct {
	name  string
	about string // for people
	run   func(ctx context.Context) (apply func(*Facts), notes []string)
}

type result struct {
	name    string
	apply   func(*Facts)
	notes   []string
	seconds Seconds
}

// Run finds out everything, in less than ten seconds even if tools hang. Its error is that of ctx.
func (p *Probe) Run(ctx context.Context) (Facts, error) {
	began := time.Now()
	hostname, _ := os.Hostname() // "" if it is unknown
	f := Facts{
		Hostname: hostname, Disks: []Disk{}, GPUs: []gpu.Device{}, Engines: []Engine{}, Python: []Python{}, Models: []ModelCache{}, Notes: []string{},
		System: System{OS: runtime.GOOS, Arch: runtime.GOARCH}, CPU: CPU{Count: float64(runtime.NumCPU()), Features: []string{}}, Network: Network{Interfaces: []Interface{}}, Took: map[string]Seconds{},
	}
	runCtx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	queryCtx, cancel := context.WithTimeout(runCtx, queryTimeout)
	defer cancel()
	queries := p.queries()
	results := make(chan result, len(queries))
	running := 0
	notes := map[string][]string{}
	for _, q := range queries {
		notes[q.name] = []string{q.about + ": unknown, the query timed out"}
		if _, hangs := p.busy.LoadOrStore(q.name, true); hangs {
			continue
		}
		running++
		go func() { // not joined: a system call on a broken mount may never return
			began := time.Now()
			apply, notes := q.run(queryCtx)
			p.busy.Delete(q.name)
			results <- result{q.name, apply, notes, secondsSince(began)}
		}()
	}
	for running > 0 && runCtx.Err() == nil {
		select {
		case a := <-results:
			running--
			a.apply(&f)
			notes[a.name] = a.notes
			f.Took[a.name] = a.seconds
		case <-runCtx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return f, err
	}
	for _, q := range queries {
		f.Notes = append(f.Notes, notes[q.name]...)
	}
	f.Tags = tags(&f)
	f.Resources = resources(&f)
	f.Took["all"] = secondsSince(began)
	return f, nil
}

// fact is a query for one field of Facts.
func fact[T any](name, about string, field func(*Facts) *T, find func(context.Context) (T, []string)) query {
	return query{name, about, func(ctx context.Context) (func(*Facts), []string) {
		v, notes := find(ctx)
		return func(f *Facts) { *field(f) = v }, notes
	}}
}

func (p *Probe) queries() []query {
	h, data := p.host, p.cfg.Data
	all := []query{
		fact("system", "the operating system", func(f *Facts) *System { return &f.System }, func(ctx context.Context) (System, []string) { return system(ctx), nil }),
		fact("cpu", "the processors", func(f *Facts) *CPU { return &f.CPU }, func(ctx context.Context) (CPU, []string) { return h.cpus(ctx), nil }),
		fact("memory", "the memory", func(f *Facts) *Memory { return &f.Memory }, func(ctx context.Context) (Memory, []string) {
			m, err := h.memory(ctx)
			return m, noteOf(err)
		}),
		fact("disk", "the disk of the data dir", func(f *Facts) *Disk { return &f.Disk }, func(ctx context.Context) (Disk, []string) {
			d, err := h.disk(ctx, data, h.mounts(ctx))
			return d, noteOf(err)
		}),
		fact("disks", "the disks", func(f *Facts) *[]Disk { return &f.Disks }, func(ctx context.Context) ([]Disk, []string) { return h.disks(ctx, h.mounts(ctx)), nil }),
		fact("network", "the network", func(f *Facts) *Network { return &f.Network }, func(context.Context) (Network, []string) {
			n := h.network()
			n.Bandwidth = p.cfg.Bandwidth
			return n, nil
		}),
		fact("gpus", "the GPUs", func(f *Facts) *[]gpu.Device { return &f.GPUs }, func(ctx context.Context) ([]gpu.Device, []string) {
			devices, notes := gpu.Probe(ctx)
			return append([]gpu.Device{}, devices...), notes
		}),
		fact("python", "the Python interpreters", func(f *Facts) *[]Python { return &f.Python }, func(ctx context.Context) ([]Python, []string) {
			return p.pythons.discover(ctx, h, data)
		}),
		fact("uv", "uv", func(f *Facts) **UV { return &f.UV }, func(ctx context.Context) (*UV, []string) { return h.uv(ctx, data), nil }),
		fact("models", "the models", func(f *Facts) *[]ModelCache { return &f.Models }, func(ctx context.Context) ([]ModelCache, []string) { return h.models(ctx), nil }),
	}
	if p.cfg.Engine != NoEngine {
		all = append(all, fact("engines", "the container engines", func(f *Facts) *[]Engine { return &f.Engines }, func(ctx context.Context) ([]Engine, []string) { return h.engines(ctx, data) }))
	}
	if p.cfg.Isolation != nil {
		all = append(all, fact("limits", "the limits of tasks", func(f *Facts) **Limits { return &f.Limits }, func(context.Context) (*Limits, []string) {
			return new(isolation.Describe(*p.cfg.Isolation)), nil
		}))
	}
	return all
}

func noteOf(err error) []string {
	if err == nil {
		return nil
	}
	return []string{err.Error()}
}

// Refresh updates the free disk in f.
func (p *Probe) Refresh(ctx context.Context, f *Facts) {
	if d, err := p.host.disk(ctx, p.cfg.Data, nil); err == nil {
		f.Disk.Total, f.Disk.Free = d.Total, d.Free
		f.Resources.Disk = offeredDisk(&d)
	}
}

func offeredDisk(d *Disk) muster.Size { return d.Free - d.Free/diskReserve }

func resources(f *Facts) muster.Resources {
	r := muster.Resources{
		CPUs: f.CPU.Count, Memory: f.Memory.Usable, Disk: offeredDisk(&f.Disk), Slots: Slots(f.CPU.Count),
	}
	for i := range f.GPUs {
		r.GPUs = append(r.GPUs, f.GPUs[i].GPU)
	}
	return r
}

// Slots is how many tasks without cpus run at once unless the operator overrides it. Most such tasks are short or wait.
func Slots(cpus float64) int { return max(4, int(2*cpus)) }

// diskReserve is the part of the free disk that is not offered: one in diskReserve.
const diskReserve = 10
