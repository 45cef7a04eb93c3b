package work

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

// readGPUs is the time between two readings of a device.
const readGPUs = 2 * time.Second

// gpus are the worker's devices, as they are read while it runs.
type gpus struct {
	log *slog.Logger

	mu      sync.Mutex
	found   []gpu.Device
	stream  *gpu.Stream // nil for no devices
	read    []string    // the UUIDs of what it reads
	changed chan struct{}
}

func newGPUs(devices []gpu.Device, log *slog.Logger) *gpus {
	g := &gpus{log: log}
	g.set(devices)
	g.changed = make(chan struct{}, 1) // Run begins with them
	return g
}

// set has these devices read from now on.
func (g *gpus) set(devices []gpu.Device) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.found = devices
	var ids []string
	for i := range devices {
		ids = append(ids, devices[i].UUID)
	}
	if slices.Equal(ids, g.read) {
		return
	}
	g.read, g.stream = ids, nil
	if len(devices) > 0 {
		g.stream = gpu.NewStream(devices, readGPUs, g.log)
	}
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// known lists the devices.
func (g *gpus) known() []gpu.Device {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.found
}

func (g *gpus) now() *gpu.Stream {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stream
}

// Run reads until ctx ends.
func (g *gpus) Run(ctx context.Context) error {
	for {
		life, end := context.WithCancel(ctx)
		var reader errgroup.Group
		if s := g.now(); s != nil {
			reader.Go(func() error { return s.Run(life) })
		}
		select {
		case <-ctx.Done():
		case <-g.changed:
		}
		end()
		if err := reader.Wait(); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// Latest returns the last readings, and false while there are none.
func (g *gpus) Latest() (gpu.Readings, bool) {
	s := g.now()
	if s == nil {
		return gpu.Readings{}, false
	}
	return s.Latest()
}

// Seen implements devices.Readings.
func (g *gpus) Seen(uuid string) (figures, processes time.Time) {
	if s := g.now(); s != nil {
		return s.Seen(uuid)
	}
	return figures, processes
}

// Look implements devices.Readings.
func (g *gpus) Look() {
	if s := g.now(); s != nil {
		s.Look()
	}
}

// Forget implements devices.Readings.
func (g *gpus) Forget(uuid string, before time.Time) {
	if s := g.now(); s != nil {
		s.Forget(uuid, before)
	}
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
