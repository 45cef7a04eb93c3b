package workerd

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
)

// gpuInterval is the time between two readings of a device.
const gpuInterval = 2 * time.Second

// gpuReader reads the worker's devices while it runs.
type gpuReader struct {
	log *slog.Logger

	mu       sync.Mutex
	found    []gpu.Device
	stream   *gpu.Stream // nil without devices
	streamed []string    // UUIDs of the devices of stream
	changed  chan struct{}
}

func newGPUs(devices []gpu.Device, log *slog.Logger) *gpuReader {
	g := &gpuReader{log: log}
	g.set(devices)
	g.changed = make(chan struct{}, 1) // Run begins with these devices
	return g
}

// set replaces the devices.
func (g *gpuReader) set(devices []gpu.Device) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.found = devices
	var ids []string
	for i := range devices {
		ids = append(ids, devices[i].UUID)
	}
	if slices.Equal(ids, g.streamed) {
		return
	}
	g.streamed, g.stream = ids, nil
	if len(devices) > 0 {
		g.stream = gpu.NewStream(devices, gpuInterval, g.log)
	}
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// known lists the devices.
func (g *gpuReader) known() []gpu.Device {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.found
}

func (g *gpuReader) current() *gpu.Stream {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stream
}

// Run reads the devices until ctx ends.
func (g *gpuReader) Run(ctx context.Context) error {
	for {
		streamCtx, cancel := context.WithCancel(ctx)
		var reader errgroup.Group
		if s := g.current(); s != nil {
			reader.Go(func() error { return s.Run(streamCtx) })
		}
		select {
		case <-ctx.Done():
		case <-g.changed:
		}
		cancel()
		if err := reader.Wait(); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// Latest returns the last readings, false if there are none.
func (g *gpuReader) Latest() (gpu.Readings, bool) {
	s := g.current()
	if s == nil {
		return gpu.Readings{}, false
	}
	return s.Latest()
}

// LastSampled implements devices.Readings.
func (g *gpuReader) LastSampled(uuid string) (metrics, processes time.Time) {
	if s := g.current(); s != nil {
		return s.LastSampled(uuid)
	}
	return metrics, processes
}

// PollFaults implements devices.Readings.
func (g *gpuReader) PollFaults() {
	if s := g.current(); s != nil {
		s.PollFaults()
	}
}

// ForgetFaults implements devices.Readings.
func (g *gpuReader) ForgetFaults(uuid string, before time.Time) {
	if s := g.current(); s != nil {
		s.ForgetFaults(uuid, before)
	}
}

// load returns a function that adds the load of the devices to that of the host.
func (g *gpuReader) load(host func(context.Context) *muster.Load) func(context.Context) *muster.Load {
	return func(ctx context.Context) *muster.Load {
		l := host(ctx)
		if rs, ok := g.Latest(); ok && l != nil {
			for i := range rs.Devices {
				l.GPUs = append(l.GPUs, rs.Devices[i].GPULoad)
			}
		}
		return l
	}
}
