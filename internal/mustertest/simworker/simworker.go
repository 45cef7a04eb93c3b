// Package simworker runs many simulated workers in one process, for load tests: each has a session of its own with a real
// server over the real protocol, reports made-up hardware and load, and finishes each task after a set time without a process.
package simworker

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/wake"
)

// Config says what fleet to simulate.
type Config struct {
	Server    string        // base URL
	JoinToken string        // a key that may join workers
	Workers   int           // how many there are
	Slots     int           // tasks that each runs at once
	GPUs      int           // devices of each
	Run       time.Duration // how long each task runs
}

const (
	maxConcurrentJoins = 16
	cores              = 16
	memory             = muster.Size(64 << 30)
	disk               = muster.Size(1 << 40)
	gpuMemory          = muster.Size(24 << 30)
)

// Run joins all workers and keeps them connected until ctx ends, which returns nil. ready is called once, when all are
// connected. The first worker that is refused or loses its session ends the fleet with an error.
func Run(ctx context.Context, cfg Config, ready func()) error {
	group, ctx := errgroup.WithContext(ctx)
	joins := make(chan struct{}, maxConcurrentJoins)
	var connected atomic.Int64
	for i := range cfg.Workers {
		group.Go(func() error {
			w := &worker{cfg: &cfg, index: i, wake: wake.New(), connected: func() {
				<-joins
				if connected.Add(1) == int64(cfg.Workers) {
					ready()
				}
			}}
			select {
			case joins <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
			if err := w.run(ctx); ctx.Err() == nil {
				return fmt.Errorf("simulated worker %d: %w", i, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// devices makes up the hardware of a worker.
func (c *Config) devices(id muster.WorkerID) []muster.GPU {
	gpus := make([]muster.GPU, c.GPUs)
	for i := range gpus {
		gpus[i] = muster.GPU{UUID: "GPU-" + string(id) + "-" + strconv.Itoa(i), Index: i, Vendor: "nvidia", Name: "Simulated 4090", Memory: gpuMemory}
	}
	return gpus
}

// load makes up what a worker's host does at a time: waves of different phase and length, with noise.
func load(index int, at time.Time, gpus []muster.GPU) *muster.Load {
	wave := func(shift float64) float64 {
		phase := float64(at.UnixMilli())/1000/(40+float64(index%30)) + float64(index) + shift
		return min(1, max(0, 0.5+0.45*math.Sin(phase)+0.05*rand.Float64()))
	}
	l := &muster.Load{CPU: wave(0), Memory: muster.Size(wave(1) * float64(memory))}
	for i := range gpus {
		used := wave(float64(2 + i))
		memoryUsed, temperature, power := muster.Size(used*float64(gpuMemory)), 35+45*used, 30+370*used
		l.GPUs = append(l.GPUs, muster.GPULoad{UUID: gpus[i].UUID, Utilization: &used, Memory: &memoryUsed, Temperature: &temperature, Power: &power})
	}
	return l
}
