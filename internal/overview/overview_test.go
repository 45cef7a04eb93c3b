package overview_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/overview"
	"github.com/muster-dev/muster/internal/sched"
	"github.com/muster-dev/muster/internal/store"
)

const day = muster.Time(24 * 3600 * 1000)

// unhealthyFleet returns a fleet with one problem of each kind.
func unhealthyFleet() *overview.Input {
	none := &muster.Resources{CPUs: 4}
	worker := func(name string, state muster.WorkerState, change func(*sched.WorkerSnapshot)) sched.WorkerSnapshot {
		w := sched.WorkerSnapshot{ID: muster.WorkerID("id-" + name), Name: name, State: state, Version: "v2", Offers: none, SeenAt: 100 * day}
		if change != nil {
			change(&w)
		}
		return w
	}
	return &overview.Input{
		Version: "v2", OldestReason: "no worker fits", Disk: overview.Disk{Free: 20 << 30, Size: 100 << 30},
		Workload: sched.Workload{Oldest: &sched.OldestTask{Task: muster.TaskID{Job: 3, Num: 4}, Name: "big", QueuedAt: 5}},
		Gateways: []wire.Gateway{{Name: "qubix", Status: "ok"}, {Name: "mloc", Status: "Redis does not answer"}},
		Failing:  []store.FailingName{{Project: "red", Name: "nightly", Job: 8, FinishedAt: 100 * day}, {Project: "blue", Name: "old", Job: 2, FinishedAt: 50 * day}},
		Fleet: &sched.FleetSnapshot{
			At:      101 * day,
			Failing: []sched.FailingJob{{ID: 9, Name: "train", Project: "blue", Failures: 4}},
			Workers: []sched.WorkerSnapshot{
				worker("well", muster.WorkerActive, nil),
				worker("silent", muster.WorkerUnreachable, nil),
				worker("busy-silent", muster.WorkerUnreachable, func(w *sched.WorkerSnapshot) { w.Running = 2 }),
				worker("lost", muster.WorkerGone, nil),
				worker("lost-long-ago", muster.WorkerGone, func(w *sched.WorkerSnapshot) { w.SeenAt = day }),
				worker("left", muster.WorkerGone, func(w *sched.WorkerSnapshot) { w.CleanShutdown = true }),
				worker("held", muster.WorkerPaused, nil),
				worker("old", muster.WorkerPaused, func(w *sched.WorkerSnapshot) { w.Version, w.Deadline = "v1", 102*day }),
				worker("full", muster.WorkerActive, func(w *sched.WorkerSnapshot) { w.Constrained = "disk at 1GiB free is under 5GiB" }),
				worker("filling", muster.WorkerActive, func(w *sched.WorkerSnapshot) {
					w.Load = &muster.Load{Disk: &muster.DiskLoad{Free: 2 << 30, Total: 100 << 30, Low: true}}
				}),
				worker("bad", muster.WorkerActive, func(w *sched.WorkerSnapshot) {
					w.Avoided = "is avoided until noon, because attempts keep failing there"
				}),
				worker("gpu", muster.WorkerActive, func(w *sched.WorkerSnapshot) {
					w.Offers = &muster.Resources{GPUs: []muster.GPU{{UUID: "GPU-1", Index: 1, Quarantined: "it fell off the bus"}}}
					w.GPUTasks = []int{0}
				}),
			},
		},
	}
}

// TestAttention checks the rows of an unhealthy fleet, their order and their actions.
func TestAttention(t *testing.T) {
	t.Parallel()
	list := func(f *overview.Input) []string {
		var got []string
		for _, a := range overview.Build(f).Attention {
			got = append(got, fmt.Sprintf("%s %s %s: %s", a.Severity, a.Kind, a.Action, a.Message))
		}
		return got
	}
	want := []string{
		"critical gateway_down open_docs: The gateway to mloc does not work: Redis does not answer.",
		"critical worker_unreachable open_worker: Worker busy-silent is unreachable and holds 2 tasks.",
		"warning job_failing open_job: 4 attempts of job 9 (train) have failed.",
		"warning worker_lost remove: Worker lost was lost and has not come back.",
		"warning worker_constrained open_worker: Worker full takes no tasks now: disk at 1GiB free is under 5GiB.",
		"warning disk_filling free_disk: The disk of worker filling has 2GiB of 100GiB free.",
		"warning worker_avoided resume: Worker bad is avoided until noon, because attempts keep failing there.",
		"warning gpu_quarantined heal: GPU 1 of worker gpu is quarantined: it fell off the bus.",
		`warning job_failing open_job: The last 3 jobs named "nightly" in project "red" have failed.`,
		"warning worker_unreachable open_worker: Worker silent is unreachable.",
		"info worker_paused resume: Worker held is paused: it takes no new tasks until it is resumed.",
		"info worker_outdated upgrade: Worker old runs version v1, the server runs v2.",
	}
	if got := list(unhealthyFleet()); !slices.Equal(got, want) {
		t.Errorf("attention:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	bound := unhealthyFleet()
	bound.Project = "red"
	if got := list(bound); !slices.Equal(got, want[8:9]) {
		t.Errorf("a key of one project sees:\n%s", strings.Join(got, "\n"))
	}
}

// TestManyRowsOfAKind checks that many rows of one kind do not hide other kinds, and are counted.
func TestManyRowsOfAKind(t *testing.T) {
	t.Parallel()
	f := unhealthyFleet()
	f.Fleet.Failing = nil
	for i := range 1000 {
		f.Fleet.Failing = append(f.Fleet.Failing, sched.FailingJob{ID: muster.JobID(i + 1), Name: "train", Failures: 3})
	}
	o := overview.Build(f)
	var order []wire.AttentionKind
	failing := 0
	for _, a := range o.Attention {
		if a.Severity == wire.Warning && len(order) < 5 {
			order = append(order, a.Kind)
		}
		if a.Kind == wire.JobFailing {
			failing++
		}
		if a.More > 0 && (a.Kind != wire.JobFailing || a.Severity != wire.Warning || a.Action != wire.ActListJobs || a.More != 982 || a.Message != "982 more jobs keep failing.") {
			t.Errorf("the rest is %+v", a)
		}
	}
	want := []wire.AttentionKind{wire.JobFailing, wire.WorkerLost, wire.WorkerConstrained, wire.DiskFilling, wire.WorkerAvoided}
	if !slices.Equal(order, want) {
		t.Errorf("the first warnings are %v, want %v", order, want)
	}
	if failing != overview.MaxRowsPerKind || o.AttentionTotal != 1011 || len(o.Attention) != overview.MaxRowsPerKind+10 {
		t.Errorf("%d rows, %d of them of failing jobs, for %d things", len(o.Attention), failing, o.AttentionTotal)
	}
}

func TestDisk(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		free, size muster.Size
		want       wire.Severity
	}{
		{50 << 30, 100 << 30, ""}, {11 << 30, 100 << 30, ""}, {9 << 30, 100 << 30, wire.Warning}, {90 << 30, 1000 << 30, wire.Warning},
		{4 << 30, 20 << 30, wire.Warning}, {1<<30 - 1, 20 << 30, wire.Critical}, {10 << 30, 1000 << 30, wire.Critical}, {0, 100 << 30, wire.Critical}, {0, 0, ""},
	} {
		o := overview.Build(&overview.Input{Fleet: &sched.FleetSnapshot{}, Disk: overview.Disk{Free: c.free, Size: c.size}})
		var got wire.Severity
		for _, a := range o.Attention {
			if a.Kind == wire.DiskFilling && a.Action == wire.ActFreeDisk {
				got = a.Severity
			}
		}
		if got != c.want {
			t.Errorf("%s of %s free: %q, want %q", c.free, c.size, got, c.want)
		}
	}
}

// TestMake checks for random fleets that each worker is counted once, and that the lists are limited and sorted.
func TestMake(t *testing.T) {
	t.Parallel()
	states := []muster.WorkerState{muster.WorkerActive, muster.WorkerPaused, muster.WorkerDraining, muster.WorkerUnreachable, muster.WorkerGone}
	rapid.Check(t, func(t *rapid.T) {
		f := &overview.Input{Fleet: &sched.FleetSnapshot{}, Version: "v1", WithGPUs: true}
		gpus := 0
		for i := range rapid.IntRange(0, 150).Draw(t, "workers") {
			w := sched.WorkerSnapshot{
				ID: muster.WorkerID(strconv.Itoa(i)), State: rapid.SampledFrom(states).Draw(t, "state"), Running: rapid.IntRange(0, 2).Draw(t, "running"), Price: 1,
				Version: rapid.SampledFrom([]string{"v1", "v0", ""}).Draw(t, "version"), Offers: &muster.Resources{GPUs: make([]muster.GPU, rapid.IntRange(0, 200).Draw(t, "gpus"))},
			}
			w.GPUTasks = make([]int, len(w.Offers.GPUs))
			if w.Connected() {
				gpus += len(w.GPUTasks)
			}
			f.Fleet.Workers = append(f.Fleet.Workers, w)
		}
		o := overview.Build(f)
		c := o.Workers
		if c.Total != len(f.Fleet.Workers) || c.Active+c.Paused+c.Draining+c.Unreachable+c.Gone != c.Total {
			t.Fatalf("%d workers are counted as %+v", len(f.Fleet.Workers), c)
		}
		if o.Capacity.GPUs != gpus || len(o.GPUs) != min(gpus, overview.MaxGPUs) || o.CostPerHour > o.PricePerHour || o.PricePerHour != float64(c.Active+c.Paused+c.Draining) {
			t.Fatalf("%d GPUs: %d are listed, %d counted; it costs %v of %v", gpus, len(o.GPUs), o.Capacity.GPUs, o.CostPerHour, o.PricePerHour)
		}
		kinds, things := map[wire.AttentionKind]int{}, 0
		for _, a := range o.Attention {
			kinds[a.Kind]++
			if things += max(1, a.More); kinds[a.Kind] > overview.MaxRowsPerKind || a.More == 1 {
				t.Fatalf("%d rows of kind %s, the last of which stands for %d", kinds[a.Kind], a.Kind, a.More)
			}
		}
		if things != o.AttentionTotal {
			t.Fatalf("the rows represent %d of %d", things, o.AttentionTotal)
		}
		order := []wire.Severity{wire.Critical, wire.Warning, wire.Notice}
		if !slices.IsSortedFunc(o.Attention, func(a, b wire.Attention) int {
			return slices.Index(order, a.Severity) - slices.Index(order, b.Severity)
		}) {
			t.Fatal("the rows are not sorted")
		}
	})
}
