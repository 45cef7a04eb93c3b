package probe

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
)

// Interval is how often a worker probes everything again, unless a hint triggers a probe earlier.
const Interval = 10 * time.Minute

const (
	hintInterval = time.Second      // between checks of the hints, each of which takes some 0.1 ms of CPU
	hintSettle   = 10 * time.Second // how long to wait for further hints: an installation may be in progress
	hintBackoff  = 3 * time.Second  // between two Runs because of hints; longer after false hints
	hintRecheck  = 30 * time.Second // until one more Run after a false hint: a driver takes time to load
)

// Watch probes the machine repeatedly, and calls onChange when the offer differs from the previous one, at first from known. It probes
// after the time first, then every interval, and soon after a change of files that hint at a change: a new device, an installed
// tool, an engine's socket. It reports that something was removed only after a second probe. Watch calls onProbe after each probe,
// and returns nil when ctx ends.
func (p *Probe) Watch(ctx context.Context, known Facts, first, interval time.Duration, onProbe func(), onChange func(Facts)) error {
	run := func(ctx context.Context) (Facts, error) {
		f, err := p.Run(ctx)
		if err == nil {
			onProbe()
		}
		return f, err
	}
	w := watcher{probe: run, hints: func() string { return fingerprint(p.hints()...) }, first: first, interval: interval, onChange: onChange}
	return w.run(ctx, known)
}

// hints are files that change when the offer may have changed.
func (p *Probe) hints() []string {
	h := p.host
	all := filepath.SplitList(h.env("PATH"))
	all = append(all, filepath.Join(p.cfg.Data, "tools", "uv", "bin"))
	if h.os == "windows" {
		return all
	}
	all = append(all, "/dev", "/dev/dri", "/dev/accel", "/etc/docker/daemon.json")
	all = append(append(append(all, docker.CDIDirs...), h.dockerSockets()...), h.podmanSockets()...)
	roots := h.pythonRoots(p.cfg.Data)
	for _, root := range roots.pyenv {
		all = append(all, filepath.Join(root, "versions"), filepath.Join(root, "version"))
	}
	for _, root := range roots.conda {
		all = append(all, filepath.Join(root, "envs"))
	}
	return append(append(all, roots.uv...), p.pythons.packageDirs()...)
}

// watcher is Watch with its dependencies.
type watcher struct {
	probe    func(context.Context) (Facts, error)
	hints    func() string // returns a different text after a hint
	first    time.Duration // until the first probe without a hint; 0 means interval
	interval time.Duration
	onChange func(Facts)
}

func (w *watcher) run(ctx context.Context, known Facts) error {
	tick := time.NewTicker(min(hintInterval, w.interval))
	defer tick.Stop()
	var (
		hint     = w.hints()
		hintedAt time.Time                                   // the first hint that led to no Run yet; zero for none
		probedAt = time.Now()                                // the last probe
		next     = probedAt.Add(cmp.Or(w.first, w.interval)) // the next probe without a hint
		pause    = hintBackoff
		confirm  bool // something was removed: probe again at once
	)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, quiet := time.Now(), true
		if h := w.hints(); h != hint {
			hint, quiet = h, false
			if hintedAt.IsZero() {
				hintedAt = now
			}
		}
		hinted := !hintedAt.IsZero() && (quiet || now.Sub(hintedAt) >= hintSettle)
		if hinted && now.Sub(probedAt) >= 2*pause {
			pause = hintBackoff
		}
		if !confirm && now.Before(next) && (!hinted || now.Sub(probedAt) < pause) {
			continue
		}
		f, err := w.probe(ctx)
		if err != nil {
			return nil // ctx ended
		}
		probedAt = time.Now()
		next = probedAt.Add(w.interval)
		switch lost := lostAny(&known, &f); {
		case sameOffer(&known, &f):
			confirm = false
			if hinted && pause == hintBackoff {
				next = probedAt.Add(min(hintRecheck, w.interval))
			}
			if hinted { // perhaps by a file that changes all the time
				pause = min(2*pause, w.interval)
			}
		case lost && !confirm:
			confirm = true
		default:
			known, confirm, pause = f, false, hintBackoff
			w.onChange(f)
		}
		hintedAt = time.Time{}
	}
}

// sameOffer reports whether both offers are the same, except for small changes of the free disk.
func sameOffer(a, b *Facts) bool {
	x, y := a.Resources, b.Resources
	return x.CPUs == y.CPUs && x.Memory == y.Memory && x.Slots == y.Slots && slices.Equal(x.GPUs, y.GPUs) &&
		max(x.Disk-y.Disk, y.Disk-x.Disk) <= max(a.Disk.Total, b.Disk.Total)/20 &&
		len(a.Tags) == len(b.Tags) && !lostTag(a, b)
}

// lostAny reports whether a part of offer a is missing in b. A tool that timed out looks the same.
func lostAny(a, b *Facts) bool {
	lostGPU := slices.ContainsFunc(a.Resources.GPUs, func(g muster.GPU) bool {
		return !slices.ContainsFunc(b.Resources.GPUs, func(o muster.GPU) bool { return o.UUID == g.UUID })
	})
	return lostGPU || lostTag(a, b) || b.Resources.CPUs < a.Resources.CPUs || b.Resources.Memory < a.Resources.Memory
}

func lostTag(a, b *Facts) bool {
	return slices.ContainsFunc(a.Tags, func(tag string) bool { return !slices.Contains(b.Tags, tag) })
}
