package probe

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
)

// fakeMachine is a machine that changes, as a watch sees it.
type fakeMachine struct {
	tags     string
	gpus     []string
	disk     muster.Size
	hint     string
	failures int // looks that find nothing

	probes  []time.Duration
	changes []string
}

func (w *fakeMachine) facts() Facts {
	f := Facts{Tags: strings.Fields(w.tags), Disk: Disk{Total: 1000}, Resources: muster.Resources{CPUs: 2, Memory: 1 << 30, Disk: w.disk}}
	for _, id := range w.gpus {
		f.GPUs = append(f.GPUs, gpu.Device{GPU: muster.GPU{UUID: id}})
		f.Resources.GPUs = append(f.Resources.GPUs, muster.GPU{UUID: id})
	}
	return f
}

// watch watches for as long as the changes take, each at its time.
func (w *fakeMachine) watch(t *testing.T, end time.Duration, changes map[time.Duration]func()) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), end)
		defer cancel()
		due := []time.Duration{}
		for at := range changes {
			due = append(due, at)
		}
		slices.Sort(due)
		now := func() {
			for len(due) > 0 && time.Since(began) >= due[0] {
				changes[due[0]]()
				due = due[1:]
			}
		}
		watcher := watcher{
			interval: 10 * time.Minute,
			hints:    func() string { now(); return w.hint },
			probe: func(ctx context.Context) (Facts, error) {
				now()
				w.probes = append(w.probes, time.Since(began))
				if w.failures > 0 {
					w.failures--
					return Facts{}, ctx.Err()
				}
				return w.facts(), ctx.Err()
			},
			onChange: func(f Facts) { w.changes = append(w.changes, strings.Join(f.Tags, " ")) },
		}
		if err := watcher.run(ctx, w.facts()); err != nil {
			t.Error(err)
		}
	})
}

func (w *fakeMachine) expect(t *testing.T, changes []string, probes ...time.Duration) {
	t.Helper()
	if !slices.Equal(w.changes, changes) || !slices.Equal(w.probes, probes) {
		t.Errorf("changes %q after probes at %v, want %q and %v", w.changes, w.probes, changes, probes)
	}
}

const s, m = time.Second, time.Minute

func TestWatchProbesPeriodically(t *testing.T) {
	w := &fakeMachine{tags: "linux"}
	w.watch(t, 35*m, map[time.Duration]func(){12 * m: func() { w.tags = "linux podman" }})
	w.expect(t, []string{"linux podman"}, 10*m, 20*m, 30*m)
}

func TestWatchProbesOnHints(t *testing.T) {
	w := &fakeMachine{tags: "linux"}
	w.watch(t, m, map[time.Duration]func(){20 * s: func() { w.tags, w.hint = "linux podman", "podman" }})
	w.expect(t, []string{"linux podman"}, 21*s) // and not while it is being installed
}

// TestWatchWaitsForAnInstallation checks that the machine is probed when nothing has changed for a moment, and not much later if changes
// continue.
func TestWatchWaitsForAnInstallation(t *testing.T) {
	w := &fakeMachine{tags: "linux"}
	changes := map[time.Duration]func(){}
	for at := 20 * s; at < 28*s; at += 1 * s {
		changes[at] = func() { w.hint += "x" }
	}
	changes[26500*time.Millisecond] = func() { w.tags = "linux torch" }
	w.watch(t, m, changes)
	w.expect(t, []string{"linux torch"}, 28*s)

	w = &fakeMachine{tags: "linux"}
	for at := 20 * s; at < 60*s; at += 1 * s {
		changes[at] = func() { w.hint += "x" }
	}
	changes[26500*time.Millisecond] = func() { w.tags = "linux torch" }
	w.watch(t, 32*s, changes)
	w.expect(t, []string{"linux torch"}, 30*s)
}

// TestWatchProbesOnceMore checks that a driver may take its time after its device has
// appeared.
func TestWatchProbesOnceMore(t *testing.T) {
	w := &fakeMachine{tags: "linux"}
	w.watch(t, 2*m, map[time.Duration]func(){20 * s: func() { w.hint = "/dev/nvidia0" }, 40 * s: func() { w.tags = "linux cuda" }})
	w.expect(t, []string{"linux cuda"}, 21*s, 51*s)
}

// TestWatchConfirmsALoss checks that a tool that hangs once does not remove tags.
func TestWatchConfirmsALoss(t *testing.T) {
	w := &fakeMachine{tags: "linux cuda", gpus: []string{"GPU-a"}}
	w.watch(t, 11*m, map[time.Duration]func(){9 * m: func() { w.failures = 1 }})
	w.expect(t, nil, 10*m, 10*m+1*s)

	w = &fakeMachine{tags: "linux cuda", gpus: []string{"GPU-a"}}
	w.watch(t, 11*m, map[time.Duration]func(){9 * m: func() { w.tags, w.gpus = "linux", nil }})
	w.expect(t, []string{"linux"}, 10*m, 10*m+1*s)
}

// TestWatchBacksOffFromFalseHints checks that files which change all the time do not keep the
// worker busy.
func TestWatchBacksOffFromFalseHints(t *testing.T) {
	w := &fakeMachine{tags: "linux"}
	changes := map[time.Duration]func(){}
	for at := 5 * s; at < time.Hour; at += 6 * s {
		changes[at] = func() { w.hint += "x" }
	}
	w.watch(t, time.Hour, changes)
	if len(w.changes) != 0 || len(w.probes) > 20 {
		t.Errorf("%d probes in an hour at %v; changes %q", len(w.probes), w.probes, w.changes)
	}
}

func TestWatchOfTheDisk(t *testing.T) {
	w := &fakeMachine{tags: "linux", disk: 900}
	w.watch(t, 45*m, map[time.Duration]func(){
		1 * m:  func() { w.disk = 870 }, // it always changes a little
		21 * m: func() { w.disk = 500 },
	})
	w.expect(t, []string{"linux"}, 10*m, 20*m, 30*m, 40*m)
}

// TestHints checks that a tool which appears on the PATH is a hint.
func TestHints(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	p := New(Config{Data: t.TempDir()})
	before := fingerprint(p.hints()...)
	path := writeTool(t, "podman", "")
	t.Setenv("PATH", dir)
	if fingerprint(p.hints()...) != before {
		t.Error("a tool elsewhere is a hint")
	}
	if err := os.Rename(path, filepath.Join(dir, "podman")); err != nil {
		t.Fatal(err)
	}
	after := fingerprint(p.hints()...)
	if after == before {
		t.Error("a tool on the PATH is no hint")
	}
}
