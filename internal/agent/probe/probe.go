// Package probe finds out what a machine has: one file for each fact. A fact that
// cannot be found out is absent, and a note says why; it never stops a worker
// from starting.
package probe

import (
	"context"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
)

// Facts is what a machine has and would offer as a worker. Its JSON form is
// stable: muster probe prints it.
type Facts struct {
	Hostname  string           `json:"hostname,omitempty"`
	System    System           `json:"system"`
	CPU       CPU              `json:"cpu"`
	Memory    muster.Size      `json:"memory,omitempty"` // bytes that processes here may use in all
	Disk      Disk             `json:"disk"`
	GPUs      []gpu.Device     `json:"gpus,omitempty"`
	Python    string           `json:"python,omitempty"` // path of the interpreter
	Tags      []string         `json:"tags"`
	Resources muster.Resources `json:"resources"` // offered unless the operator says otherwise
	Notes     []string         `json:"notes,omitempty"`
}

// Run finds out everything. It takes less than ten seconds even where a tool
// hangs. dataDir need not be there yet.
func Run(ctx context.Context, dataDir string) (Facts, error) {
	f := Facts{Hostname: hostname(), System: system(ctx), CPU: cpus(ctx), Python: python(ctx)}
	note := func(err error) {
		if err != nil {
			f.Notes = append(f.Notes, err.Error())
		}
	}
	var err error
	f.Memory, err = memory(ctx)
	note(err)
	f.Disk, err = disk(ctx, dataDir)
	note(err)
	gpus, notes := gpu.Probe(ctx)
	f.GPUs, f.Notes = gpus, append(f.Notes, notes...)
	f.Tags = tags(&f)
	f.Resources = muster.Resources{
		CPUs:   f.CPU.Count,
		Memory: f.Memory,
		Disk:   f.Disk.Free - f.Disk.Free/diskReserve,
		Slots:  Slots(f.CPU.Count),
	}
	for _, g := range f.GPUs {
		f.Resources.GPUs = append(f.Resources.GPUs, g.GPU)
	}
	return f, ctx.Err()
}

// Slots is how many tasks that name no cpus a machine runs at once unless the
// operator says otherwise. Most such tasks are short or wait for something.
func Slots(cpus float64) int { return max(4, int(2*cpus)) }

// diskReserve is the share of the free disk that is not offered: one in so many.
const diskReserve = 10
