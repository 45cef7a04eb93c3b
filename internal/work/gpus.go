package work

import (
	"context"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
)

// readGPUs is the time between two readings of a device.
const readGPUs = 2 * time.Second

// gpus are the worker's devices, as they are read while it runs; nil for none.
type gpus struct{ *gpu.Stream }

func watchGPUs(devices []gpu.Device, log *slog.Logger) *gpus {
	if len(devices) == 0 {
		return nil
	}
	return &gpus{gpu.NewStream(devices, readGPUs, log)}
}

// Run reads until ctx ends.
func (g *gpus) Run(ctx context.Context) error {
	if g == nil {
		return nil
	}
	return g.Stream.Run(ctx)
}

// Latest returns the last readings, and false while there are none.
func (g *gpus) Latest() (gpu.Readings, bool) {
	if g == nil {
		return gpu.Readings{}, false
	}
	return g.Stream.Latest()
}

// load adds what the devices do to what the host does.
func (g *gpus) load(host func(context.Context) *muster.Load) func(context.Context) *muster.Load {
	return func(ctx context.Context) *muster.Load {
		l := host(ctx)
		if rs, ok := g.Latest(); ok && l != nil {
			for i := range rs.Each {
				l.GPUs = append(l.GPUs, rs.Each[i].GPULoad)
			}
		}
		return l
	}
}
