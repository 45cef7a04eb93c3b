package workerd

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/agent/devices"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/meter"
	"github.com/muster-dev/muster/internal/agent/probe"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
)

// reprobing is why a worker with stale facts takes no new tasks.
const reprobing = "probing the machine again"

// recentReprobe is when a worker with recent facts probes the machine.
const recentReprobe = 5 * time.Second

// factsBasis is what the facts depend on besides the machine and the environment: the configuration, and the machine's boot ID.
func (w *Worker) factsBasis() string {
	return strings.Join([]string{w.cfg.Version, proctree.BootID(), w.cfg.Engine, w.cfg.Isolation.TaskUser, fmt.Sprint(w.cfg.Bandwidth)}, "\n")
}

// minBandwidth is the smallest limit of transfers: with less, answers would time out.
const minBandwidth muster.Size = 1 << 10

// Offered returns what a worker with this configuration offers on a machine with these facts.
func (c *Config) Offered(f probe.Facts) probe.Facts { return (&Worker{cfg: *c}).applyConfig(f) }

// applyConfig overrides the facts with the operator's configuration.
func (w *Worker) applyConfig(f probe.Facts) probe.Facts {
	f.Hostname = cmp.Or(w.cfg.Name, w.storedName, f.Hostname, "worker")
	if w.cfg.CPUs > 0 {
		f.Resources.CPUs = w.cfg.CPUs
		f.Resources.Slots = probe.Slots(w.cfg.CPUs)
	}
	w.applyLimits(&f.Resources)
	if w.cfg.Slots > 0 {
		f.Resources.Slots = w.cfg.Slots
	}
	f.Resources.MaxTasks = w.cfg.MaxTasks
	f.Tags = slices.Clone(f.Tags)
	for _, tag := range w.cfg.Tags {
		if !slices.Contains(f.Tags, tag) {
			f.Tags = append(f.Tags, tag)
		}
	}
	f.Kinds, f.Allow = w.cfg.Kinds, &w.cfg.Allow
	return f
}

// reprobe offers changes of the machine until ctx ends. It begins with a probe if the facts are stale, and probes soon if they are
// recent.
func (w *Worker) reprobe(ctx context.Context, machine prober, cache *probe.Cache, known probe.Facts, age probe.Age, a *agent.Agent, readings *gpu.Stream, allocator *devices.Allocator) error {
	offer := func(f probe.Facts) {
		cache.Write(f)
		known = f
		f = w.applyConfig(f)
		f.Resources.Disk += w.writtenDisk(ctx, runningGrants(a.Running()))
		readings.SetDevices(f.GPUs)
		allocator.SetDevices(f.GPUs)
		a.SetMachine(f.Tags, f.Resources)
	}
	first := probe.Interval
	switch age {
	case probe.Current:
	case probe.Recent:
		first = recentReprobe
	case probe.Stale:
		f, err := machine.Run(ctx)
		if err != nil {
			return nil //nolint:nilerr // ctx ended
		}
		offer(f)
		a.Constrain("machine", "")
	}
	return machine.Watch(ctx, known, first, probe.Interval, cache.Touch, func(f probe.Facts) {
		w.log.Info("machine changed", slog.String("gained", missing(f.Tags, known.Tags)), slog.String("lost", missing(known.Tags, f.Tags)), slog.Int("gpus", len(f.GPUs)))
		for _, note := range f.Notes {
			if !slices.Contains(known.Notes, note) {
				w.log.Info(note)
			}
		}
		offer(f)
	})
}

// missing lists the tags that are not in others.
func missing(tags, others []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(tags), func(t string) bool { return slices.Contains(others, t) }), " ")
}

// diskGrants is the disk that was granted to running attempts.
type diskGrants map[muster.AttemptID]muster.Size

// recoveredGrants returns the grants of recovered attempts that have not ended.
func recoveredGrants(list []run.Recovered) diskGrants {
	r := diskGrants{}
	for i := range list {
		if t, err := list[i].Task(); err == nil && list[i].Report == nil {
			r[t.Attempt] = t.Grant.Disk
		}
	}
	return r
}

// runningGrants returns the grants of attempts that are executed.
func runningGrants(list []agent.Running) diskGrants {
	r := diskGrants{}
	for i := range list {
		r[list[i].Attempt] = list[i].Grant.Disk
	}
	return r
}

// countTimeout limits the time to count the files of attempts.
const countTimeout = 2 * time.Second

// writtenDisk returns how much of their granted disk the attempts have used. It is offered together with the free disk: the server
// subtracts whole grants from the offer, and what was written is no longer free. What cannot be counted in time is not offered.
func (w *Worker) writtenDisk(ctx context.Context, grants diskGrants) (all muster.Size) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	for id, grant := range grants {
		if grant == 0 {
			continue
		}
		if size, ok := meter.DiskUsage(ctx, filepath.Join(w.cfg.Data, "tasks", id.Task.String()+"-"+strconv.Itoa(id.N))); ok {
			all += min(size, grant)
		}
	}
	return all
}
