// Package probe finds out what a machine has: one file for each fact. A fact that
// cannot be found out is absent, and a note says why; it never stops a worker
// from starting. What is found is offered to the server, and looked at again
// while the worker runs: see Watch.
package probe

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/limit"
)

// Facts is what a machine has and would offer as a worker. Its JSON form is
// stable: muster probe prints it, and docs/workers.md documents it.
type Facts struct {
	Hostname  string           `json:"hostname,omitempty"`
	System    System           `json:"system"`
	CPU       CPU              `json:"cpu"`
	Memory    Memory           `json:"memory"`
	Disk      Disk             `json:"disk"` // that holds the data dir
	Disks     []Disk           `json:"disks"`
	Network   Network          `json:"network"`
	GPUs      []gpu.Device     `json:"gpus"`
	Accels    []string         `json:"accelerators"` // that are no GPUs, and what OpenVINO can use: see gpu.Accelerators
	Engines   []Engine         `json:"engines"`
	Python    []Python         `json:"python"`
	UV        *UV              `json:"uv,omitempty"`
	Models    []ModelCache     `json:"models"`
	Limits    *Limits          `json:"limits,omitempty"` // how tasks are held, if Config asks for it
	Tags      []string         `json:"tags"`
	Resources muster.Resources `json:"resources"`       // offered unless the operator says otherwise
	Kinds     []string         `json:"kinds,omitempty"` // of tasks that the operator takes; nil means all
	Allow     *muster.Allow    `json:"allow,omitempty"` // what the operator lets tasks have
	Notes     []string         `json:"notes"`
	Took      map[string]Took  `json:"took"` // by fact, such as gpus, and in all
}

// Took is how long it took to find something out, in seconds.
type Took float64

func took(since time.Time) Took { return Took(time.Since(since).Round(time.Millisecond).Seconds()) }

// Config says where to look.
type Config struct {
	Data      string                // the worker's data dir; it need not be there yet
	Bandwidth muster.Size           // the cap of the worker's transfers, bytes a second; 0 means none
	Reach     func(dir string) bool // whether tasks can come to a folder, for interpreters; nil: to all
	Engine    string                // the URL of the engine that the worker is to use, which then goes before $DOCKER_HOST; NoEngine: it wants none; anything else says nothing
	Limits    *limit.Config         // tell how a worker with this configuration holds its tasks; nil: do not
}

// NoEngine is the Config.Engine of a worker that is to use no container engine: none is looked for.
const NoEngine = "none"

// Limits is how a worker of this machine holds its tasks.
type Limits = limit.Description

// Probe finds out facts, and remembers what does not change. Its methods may be
// called at the same time.
type Probe struct {
	cfg     Config
	host    *host
	tools   *asker
	pythons pythons

	mu   sync.Mutex
	busy map[string]bool // facts that an earlier Run still waits for
}

// New makes a Probe of this machine.
func New(cfg Config) *Probe {
	h := thisHost()
	h.reach, h.engine = cfg.Reach, cfg.Engine
	return &Probe{cfg: cfg, host: h, tools: newAsker(), busy: map[string]bool{}}
}

// A Run ends after most, with tools that hang one after the other; by then those
// that heed a context had a second to answer.
const (
	most  = 9 * time.Second
	heeds = most - time.Second
)

// question is one fact, or some that are found out together.
type question struct {
	name string
	what string // it is about, for people
	find func(ctx context.Context) (put func(*Facts), notes []string)
}

type answer struct {
	name  string
	put   func(*Facts)
	notes []string
	took  Took
}

// Run finds out everything, in less than ten seconds even where tools hang. Its
// error is that of ctx.
func (p *Probe) Run(ctx context.Context) (Facts, error) {
	began := time.Now()
	f := Facts{
		Disks: []Disk{}, GPUs: []gpu.Device{}, Accels: []string{}, Engines: []Engine{}, Python: []Python{}, Models: []ModelCache{}, Notes: []string{},
		System: System{OS: runtime.GOOS, Arch: runtime.GOARCH}, CPU: CPU{Count: float64(runtime.NumCPU()), Features: []string{}}, Network: Network{Interfaces: []Interface{}}, Took: map[string]Took{},
	}
	end, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	limited, cancel := context.WithTimeout(end, heeds)
	defer cancel()
	questions := p.questions()
	answers := make(chan answer, len(questions))
	asked := 0
	notes := map[string][]string{}
	for _, q := range questions {
		notes[q.name] = []string{q.what + ": unknown, finding out takes too long"}
		if p.begin(q.name) {
			asked++
			// A system call on a broken mount may never return: nobody can wait for that.
			go func() { answers <- p.answer(limited, q) }()
		}
	}
	for asked > 0 && end.Err() == nil {
		select {
		case a := <-answers:
			asked--
			a.put(&f)
			notes[a.name] = a.notes
			f.Took[a.name] = a.took
		case <-end.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return f, err
	}
	for _, q := range questions {
		f.Notes = append(f.Notes, notes[q.name]...)
	}
	f.Tags = tags(&f)
	f.Resources = resources(&f)
	f.Took["all"] = took(began)
	return f, nil
}

// begin says whether a fact may be looked for: not while an earlier look hangs.
func (p *Probe) begin(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy[name] {
		return false
	}
	p.busy[name] = true
	return true
}

func (p *Probe) answer(ctx context.Context, q question) answer {
	began := time.Now()
	put, notes := q.find(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy[q.name] = false
	return answer{q.name, put, notes, took(began)}
}

func (p *Probe) questions() []question {
	h := p.host
	all := []question{
		{"system", "the operating system", func(ctx context.Context) (func(*Facts), []string) {
			s, name := system(ctx), hostname()
			return func(f *Facts) { f.System, f.Hostname = s, name }, nil
		}},
		{"cpu", "the processors", func(ctx context.Context) (func(*Facts), []string) {
			c := h.cpus(ctx)
			return func(f *Facts) { f.CPU = c }, nil
		}},
		{"memory", "the memory", func(ctx context.Context) (func(*Facts), []string) {
			m, err := h.memory(ctx)
			return func(f *Facts) { f.Memory = m }, note(err)
		}},
		{"disk", "the disk of the data dir", func(ctx context.Context) (func(*Facts), []string) {
			d, err := h.disk(ctx, p.cfg.Data, h.mounts(ctx))
			return func(f *Facts) { f.Disk = d }, note(err)
		}},
		{"disks", "the disks", func(ctx context.Context) (func(*Facts), []string) {
			all := h.disks(ctx, h.mounts(ctx))
			return func(f *Facts) { f.Disks = all }, nil
		}},
		{"network", "the network", func(context.Context) (func(*Facts), []string) {
			n := h.network()
			n.Bandwidth = p.cfg.Bandwidth
			return func(f *Facts) { f.Network = n }, nil
		}},
		{"gpus", "the GPUs", func(ctx context.Context) (func(*Facts), []string) {
			devices, notes := gpu.Probe(ctx)
			accels := gpu.Accelerators()
			return func(f *Facts) {
				f.GPUs = append(f.GPUs, devices...)
				f.Accels = append(f.Accels, accels...)
			}, notes
		}},
		{"python", "the Python interpreters", func(ctx context.Context) (func(*Facts), []string) {
			all, notes := p.pythons.find(ctx, h, p.tools, p.cfg.Data)
			return func(f *Facts) { f.Python = all }, notes
		}},
		{"uv", "uv", func(ctx context.Context) (func(*Facts), []string) {
			u := h.uv(ctx, p.tools, p.cfg.Data)
			return func(f *Facts) { f.UV = u }, nil
		}},
		{"models", "the models", func(ctx context.Context) (func(*Facts), []string) {
			all := h.models(ctx)
			return func(f *Facts) { f.Models = all }, nil
		}},
	}
	if p.cfg.Engine != NoEngine {
		all = append(all, question{"engines", "the container engines", func(ctx context.Context) (func(*Facts), []string) {
			all, notes := h.engines(ctx, p.tools)
			return func(f *Facts) { f.Engines = all }, notes
		}})
	}
	if p.cfg.Limits != nil {
		all = append(all, question{"limits", "the limits of tasks", func(context.Context) (func(*Facts), []string) {
			d := limit.Describe(*p.cfg.Limits)
			return func(f *Facts) { f.Limits = &d }, nil
		}})
	}
	return all
}

func note(err error) []string {
	if err == nil {
		return nil
	}
	return []string{err.Error()}
}

// Refresh brings what f, which was found out before, says of free disk up to date.
func (p *Probe) Refresh(ctx context.Context, f *Facts) {
	if d, err := p.host.disk(ctx, p.cfg.Data, nil); err == nil {
		f.Disk.Total, f.Disk.Free = d.Total, d.Free
		f.Resources.Disk = offered(&d)
	}
}

// offered is how much of a disk is.
func offered(d *Disk) muster.Size { return d.Free - d.Free/diskReserve }

// resources are what is offered of the facts.
func resources(f *Facts) muster.Resources {
	r := muster.Resources{
		CPUs: f.CPU.Count, Memory: f.Memory.Usable, Disk: offered(&f.Disk), Slots: Slots(f.CPU.Count),
	}
	for i := range f.GPUs {
		r.GPUs = append(r.GPUs, f.GPUs[i].GPU)
	}
	return r
}

// Slots is how many tasks that name no cpus a machine runs at once unless the
// operator says otherwise. Most such tasks are short or wait for something.
func Slots(cpus float64) int { return max(4, int(2*cpus)) }

// diskReserve is the share of the free disk that is not offered: one in so many.
const diskReserve = 10
