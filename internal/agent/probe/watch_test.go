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

// world is a machine that changes, as a watch sees it.
type world struct {
	tags  string
	gpus  []string
	disk  muster.Size
	hint  string
	fails int // looks that find nothing

	looks []time.Duration
	told  []string
}

func (w *world) facts() Facts {
	f := Facts{Tags: strings.Fields(w.tags), Disk: Disk{Total: 1000}, Resources: muster.Resources{CPUs: 2, Memory: 1 << 30, Disk: w.disk}}
	for _, id := range w.gpus {
		f.GPUs = append(f.GPUs, gpu.Device{GPU: muster.GPU{UUID: id}})
		f.Resources.GPUs = append(f.Resources.GPUs, muster.GPU{UUID: id})
	}
	return f
}

// at watches for as long as the changes take, each at its time.
func (w *world) at(t *testing.T, end time.Duration, changes map[time.Duration]func()) {
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
		watcher := watch{
			every: 10 * time.Minute,
			hints: func() string { now(); return w.hint },
			look: func(ctx context.Context) (Facts, error) {
				now()
				w.looks = append(w.looks, time.Since(began))
				if w.fails > 0 {
					w.fails--
					return Facts{}, ctx.Err()
				}
				return w.facts(), ctx.Err()
			},
			changed: func(f Facts) { w.told = append(w.told, strings.Join(f.Tags, " ")) },
		}
		if err := watcher.run(ctx, w.facts()); err != nil {
			t.Error(err)
		}
	})
}

func (w *world) expect(t *testing.T, told []string, looks ...time.Duration) {
	t.Helper()
	if !slices.Equal(w.told, told) || !slices.Equal(w.looks, looks) {
		t.Errorf("told %q after looks at %v, want %q and %v", w.told, w.looks, told, looks)
	}
}

const s, m = time.Second, time.Minute

func TestWatchLooksFromTimeToTime(t *testing.T) {
	w := &world{tags: "linux"}
	w.at(t, 35*m, map[time.Duration]func(){12 * m: func() { w.tags = "linux podman" }})
	w.expect(t, []string{"linux podman"}, 10*m, 20*m, 30*m)
}

func TestWatchHeedsHints(t *testing.T) {
	w := &world{tags: "linux"}
	w.at(t, m, map[time.Duration]func(){20 * s: func() { w.tags, w.hint = "linux podman", "podman" }})
	w.expect(t, []string{"linux podman"}, 21*s) // and not while it is being installed
}

// TestWatchWaitsForAnInstallation looks when nothing has changed any more for a
// moment, and not much later where that does not come.
func TestWatchWaitsForAnInstallation(t *testing.T) {
	w := &world{tags: "linux"}
	changes := map[time.Duration]func(){}
	for at := 20 * s; at < 28*s; at += 1 * s {
		changes[at] = func() { w.hint += "x" }
	}
	changes[26500*time.Millisecond] = func() { w.tags = "linux torch" }
	w.at(t, m, changes)
	w.expect(t, []string{"linux torch"}, 28*s)

	w = &world{tags: "linux"}
	for at := 20 * s; at < 60*s; at += 1 * s {
		changes[at] = func() { w.hint += "x" }
	}
	changes[26500*time.Millisecond] = func() { w.tags = "linux torch" }
	w.at(t, 32*s, changes)
	w.expect(t, []string{"linux torch"}, 30*s)
}

// TestWatchLooksOnceMore holds that a driver may take its time after its device has
// appeared.
func TestWatchLooksOnceMore(t *testing.T) {
	w := &world{tags: "linux"}
	w.at(t, 2*m, map[time.Duration]func(){20 * s: func() { w.hint = "/dev/nvidia0" }, 40 * s: func() { w.tags = "linux cuda" }})
	w.expect(t, []string{"linux cuda"}, 21*s, 51*s)
}

// TestWatchBelievesALossTwice holds that a tool which hangs once takes nothing
// away.
func TestWatchBelievesALossTwice(t *testing.T) {
	w := &world{tags: "linux cuda", gpus: []string{"GPU-a"}}
	w.at(t, 11*m, map[time.Duration]func(){9 * m: func() { w.fails = 1 }})
	w.expect(t, nil, 10*m, 10*m+1*s)

	w = &world{tags: "linux cuda", gpus: []string{"GPU-a"}}
	w.at(t, 11*m, map[time.Duration]func(){9 * m: func() { w.tags, w.gpus = "linux", nil }})
	w.expect(t, []string{"linux"}, 10*m, 10*m+1*s)
}

// TestWatchTiresOfHints holds that files which change all the time do not keep the
// worker busy.
func TestWatchTiresOfHints(t *testing.T) {
	w := &world{tags: "linux"}
	changes := map[time.Duration]func(){}
	for at := 5 * s; at < time.Hour; at += 6 * s {
		changes[at] = func() { w.hint += "x" }
	}
	w.at(t, time.Hour, changes)
	if len(w.told) != 0 || len(w.looks) > 20 {
		t.Errorf("%d looks in an hour at %v; told %q", len(w.looks), w.looks, w.told)
	}
}

func TestWatchOfTheDisk(t *testing.T) {
	w := &world{tags: "linux", disk: 900}
	w.at(t, 45*m, map[time.Duration]func(){
		1 * m:  func() { w.disk = 870 }, // it always changes a little
		21 * m: func() { w.disk = 500 },
	})
	w.expect(t, []string{"linux"}, 10*m, 20*m, 30*m, 40*m)
}

// TestHints holds that a tool which appears on the PATH is a hint.
func TestHints(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	p := New(Config{Data: t.TempDir()})
	before := stamp(p.hints()...)
	path := tool(t, "podman", "")
	t.Setenv("PATH", dir)
	if stamp(p.hints()...) != before {
		t.Error("a tool elsewhere is a hint")
	}
	if err := os.Rename(path, filepath.Join(dir, "podman")); err != nil {
		t.Fatal(err)
	}
	after := stamp(p.hints()...)
	if after == before {
		t.Error("a tool on the PATH is no hint")
	}
}
