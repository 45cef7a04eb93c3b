package workerd

import (
	"context"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
)

// gpuInterval is the time between two readings of a device.
const gpuInterval = 2 * time.Second

// withGPUs returns a function that adds the load of the devices to that of the host.
func withGPUs(host func(context.Context) *muster.Load, devices *gpu.Stream) func(context.Context) *muster.Load {
	return func(ctx context.Context) *muster.Load {
		l := host(ctx)
		if rs, ok := devices.Latest(); ok && l != nil {
			for i := range rs.Devices {
				l.GPUs = append(l.GPUs, rs.Devices[i].GPULoad)
			}
		}
		return l
	}
}
