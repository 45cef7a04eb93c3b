package agent

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
)

func TestReportStoreSurvivesItsProcess(t *testing.T) {
	dir := t.TempDir()
	k, err := OpenReportStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	code := 3
	a := &muster.Report{Attempt: attemptID(1), Outcome: muster.AttemptFailed, Reason: muster.ExitCode, ExitCode: &code,
		Artifacts: []muster.Artifact{{Name: "model", Size: 3, SHA256: "00"}}, Usage: &muster.Usage{WallSeconds: 1.5}, FinishedAt: 7}
	b := &muster.Report{Attempt: attemptID(2), Outcome: muster.AttemptSucceeded, Result: json.RawMessage(`{"x":1}`), FinishedAt: 8}
	if err := k.Update([]*muster.Report{a, b}, nil); err != nil {
		t.Fatal(err)
	}
	if err := k.Update(nil, []muster.AttemptID{attemptID(3)}); err != nil {
		t.Fatalf("removing unknown reports: %v", err)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	if k, err = OpenReportStore(dir); err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	got, err := k.Reports()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]muster.Report{*a, *b}, got); d != "" {
		t.Errorf("after reopening: %s", d)
	}
	if err := k.Update(nil, []muster.AttemptID{a.Attempt, b.Attempt}); err != nil {
		t.Fatal(err)
	}
	if got, err = k.Reports(); err != nil || len(got) != 0 {
		t.Errorf("remaining after removal: %v, %v", got, err)
	}
}

// The workers of one process have separate reports, which are removed separately.
func TestReportStoreOfSeveralWorkers(t *testing.T) {
	k, err := OpenReportStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	report := func(n int) []*muster.Report {
		return []*muster.Report{{Attempt: attemptID(n), Outcome: muster.AttemptSucceeded}}
	}
	if err := k.Update(report(1), nil); err != nil {
		t.Fatal(err)
	}
	for worker, n := range map[string]int{"a": 2, "b": 3} {
		part, err := k.ForWorker(worker)
		if err != nil {
			t.Fatal(err)
		}
		if err := part.Update(report(n), nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := k.ForWorker("c"); err != nil {
		t.Fatal(err)
	}
	parts, err := k.AttemptsByWorker()
	if d := cmp.Diff(map[string][]muster.AttemptID{"a": {attemptID(2)}, "b": {attemptID(3)}, "c": nil}, parts); err != nil || d != "" {
		t.Errorf("by worker: %v %s", err, d)
	}
	if err := k.RemoveWorkers("a", "c", "unknown"); err != nil {
		t.Fatal(err)
	}
	parts, err = k.AttemptsByWorker()
	if d := cmp.Diff(map[string][]muster.AttemptID{"b": {attemptID(3)}}, parts); err != nil || d != "" {
		t.Errorf("after the removal: %v %s", err, d)
	}
	if left, err := k.Reports(); err != nil || len(left) != 1 {
		t.Errorf("the store itself has %v, %v", left, err)
	}
}

func TestReportStoreLocksTheDataDir(t *testing.T) {
	dir := t.TempDir()
	k, err := OpenReportStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	_, err = OpenReportStore(dir)
	if muster.CodeOf(err) != muster.Conflict || !strings.Contains(err.Error(), "another worker uses") {
		t.Errorf("a second worker on the same data dir: %v", err)
	}
}

func TestCapacityIsNeverExceeded(t *testing.T) {
	offer := muster.Resources{Slots: 3, CPUs: 2, MaxTasks: 4, Memory: 100, GPUs: []muster.GPU{{UUID: "a", Memory: 10}, {UUID: "b", Memory: 20}}}
	rapid.Check(t, func(t *rapid.T) {
		c := newCapacity(offer)
		var out []muster.Grant
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if len(out) > 0 && rapid.Bool().Draw(t, "give") {
				i := rapid.IntRange(0, len(out)-1).Draw(t, "which")
				c.release(&out[i])
				out = slices.Delete(out, i, i+1)
				continue
			}
			g := muster.Grant{
				Slots:     rapid.IntRange(0, 2).Draw(t, "slots"),
				CPUs:      float64(rapid.IntRange(0, 25).Draw(t, "cpus")) / 10,
				Memory:    muster.Size(rapid.IntRange(0, 60).Draw(t, "memory")),
				GPUs:      rapid.SampledFrom([][]string{nil, {"a"}, {"b"}, {"a", "b"}, {"c"}}).Draw(t, "gpus"),
				GPUMemory: muster.Size(rapid.SampledFrom([]int{0, 4, 11}).Draw(t, "vram")),
			}
			before := c.slots
			if why := c.reserve(&g); why == "" {
				out = append(out, g)
			} else if c.slots != before {
				t.Fatal("a refusal changed the account")
			}
			if len(out) > offer.MaxTasks || c.tasks != len(out) {
				t.Fatalf("%d tasks are out, %d counted", len(out), c.tasks)
			}
			checkCapacity(t, offer, out)
		}
		for i := range out {
			c.release(&out[i])
		}
		if c.slots != 0 || c.milliCPUs != 0 || c.memory != 0 || len(c.gpus) != 0 {
			t.Fatalf("everything is released, but %+v is in use", c)
		}
	})
}

func checkCapacity(t *rapid.T, offer muster.Resources, out []muster.Grant) {
	var slots int
	var cpus float64
	var memory muster.Size
	for _, g := range out {
		slots, cpus, memory = slots+g.Slots, cpus+g.CPUs, memory+g.Memory
	}
	if slots > offer.Slots || cpus > offer.CPUs+1e-9 || memory > offer.Memory {
		t.Fatalf("assigned %d slots, %g cpus, %d bytes", slots, cpus, memory)
	}
	for _, d := range offer.GPUs {
		whole, shared := 0, muster.Size(0)
		for _, g := range out {
			if slices.Contains(g.GPUs, d.UUID) {
				if g.GPUMemory == 0 {
					whole++
				}
				shared += g.GPUMemory
			}
		}
		if whole > 1 || whole == 1 && shared > 0 || shared > d.Memory {
			t.Fatalf("GPU %s is assigned whole %d times and shared for %d of %d bytes", d.UUID, whole, shared, d.Memory)
		}
	}
}
