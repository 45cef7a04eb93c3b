package sched

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
)

// TestTallyCountsTheLastMinute checks that the counts are the sum of all moves, and that a rate counts the last 60 seconds, with an error of
// at most five seconds.
func TestTallyCountsTheLastMinute(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type move struct {
			at       muster.Time
			from, to muster.TaskState
			n        int
		}
		var moves []move
		var tally projectStats
		var counts muster.Counts
		now := muster.Time(rapid.Int64Range(0, 1<<40).Draw(t, "start"))
		for range rapid.IntRange(0, 60).Draw(t, "moves") {
			now += muster.Time(rapid.Int64Range(0, 20_000).Draw(t, "later"))
			from := rapid.SampledFrom(muster.TaskStates).Draw(t, "from")
			m := move{now, from, rapid.SampledFrom(muster.TaskStates).Draw(t, "to"), rapid.IntRange(1, 1000).Draw(t, "n")}
			tally.recordTransition(m.at, m.from, m.to, m.n)
			counts[m.from] -= int64(m.n)
			counts[m.to] += int64(m.n)
			moves = append(moves, m)
		}
		now += muster.Time(rapid.Int64Range(0, 100_000).Draw(t, "until"))
		got := tally.workload(now)
		if got.Counts != counts {
			t.Fatalf("counts %v, want %v", got.Counts, counts)
		}
		var total Total
		least, most := [3]float64{}, [3]float64{}
		for _, m := range moves {
			is := [3]bool{m.to == muster.Running, m.to.Final(), m.to == muster.Failed || m.to == muster.TimedOut}
			for i, sum := range []*int64{&total.Started, &total.Finished, &total.Failed} {
				if !is[i] {
					continue
				}
				*sum += int64(m.n)
				if now-m.at <= 65_000 {
					most[i] += float64(m.n) / 60
				}
				if now-m.at < 55_000 {
					least[i] += float64(m.n) / 60
				}
			}
		}
		if got.Total != total {
			t.Fatalf("total %+v, want %+v", got.Total, total)
		}
		for i, rate := range []float64{got.Rate.Started, got.Rate.Finished, got.Rate.Failed} {
			if rate < least[i]-1e-9 || rate > most[i]+1e-9 {
				t.Fatalf("rate %d is %v, want %v to %v", i, rate, least[i], most[i])
			}
		}
	})
}

// TestSums checks that only connected workers are added up, and readings by the devices' UUIDs.
func TestSums(t *testing.T) {
	t.Parallel()
	half, watts, used := 0.5, 200.0, muster.Size(3)
	offers := &muster.Resources{CPUs: 8, Memory: 100, Slots: 4, GPUs: []muster.GPU{{UUID: "a", Memory: 10}, {UUID: "b", Memory: 20}}}
	worker := func(state muster.WorkerState, running int) WorkerSnapshot {
		return WorkerSnapshot{
			State: state, Price: 2, Offers: offers, GPUTasks: []int{0, 0}, Running: running, Reserved: FleetResources{Slots: 1, GPUs: 1, GPUMemory: 5},
			Load: &muster.Load{CPU: 0.25, Memory: 40, GPUs: []muster.GPULoad{{UUID: "b", Utilization: &half, Power: &watts, Memory: &used}, {UUID: "gone", Power: &watts}}},
		}
	}
	p := FleetSnapshot{Workers: []WorkerSnapshot{
		worker(muster.WorkerActive, 1), worker(muster.WorkerDraining, 0), worker(muster.WorkerUnreachable, 1), worker(muster.WorkerGone, 0),
	}}
	want := Sums{
		Workers: 2, Price: 4, Cost: 2, Capacity: FleetResources{Slots: 8, CPUs: 16, Memory: 200, GPUs: 4, GPUMemory: 60},
		Reserved: FleetResources{Slots: 2, GPUs: 2, GPUMemory: 10}, Used: Used{CPUs: 4, Memory: 80, GPUs: 1, GPUMemory: 6, Power: 400},
	}
	if got := p.Sums(); got != want {
		t.Errorf("sums %+v\nwant %+v", got, want)
	}
	p.Workers[0].Load = nil
	if got := p.Sums().Used; math.Abs(got.CPUs-2) > 1e-9 || got.Power != 200 {
		t.Errorf("with one worker whose load is not known: %+v", got)
	}
}
