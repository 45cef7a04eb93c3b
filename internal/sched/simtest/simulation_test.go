package simtest

import (
	"flag"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

var (
	seeds = flag.Int("seeds", 60, "how many worlds to run")
	seed  = flag.Int("seed", -1, "the one world to run, with a trace")
)

const steps = 400

// TestWorld runs many simulations and checks every invariant.
func TestWorld(t *testing.T) {
	if *seed >= 0 {
		w := newSimulation(uint64(*seed), t.Logf)
		if err := w.run(steps); err != nil {
			t.Fatalf("seed %d at %s: %v", *seed, w.now, err)
		}
		t.Logf("met %+v", w.stats)
		return
	}
	var mu sync.Mutex
	var total stats
	t.Run("seeds", func(t *testing.T) {
		const shards = 4
		for shard := range shards {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for s := shard; s < *seeds; s += shards {
					w := newSimulation(uint64(s), nil)
					w.digest = nil
					if err := w.run(steps); err != nil {
						t.Fatalf("seed %d at %s: %v", s, w.now, err)
					}
					mu.Lock()
					total = total.add(w.stats)
					mu.Unlock()
				}
			})
		}
	})
	if *seeds >= 20 && total.lowest() == 0 {
		t.Errorf("some fault never happened: %+v", total)
	}
	t.Logf("met %+v", total)
}

// TestSameSeed checks that equal seeds have equal effects, byte for byte.
func TestSameSeed(t *testing.T) {
	for s := range uint64(3) {
		var sums [2]uint64
		for i := range sums {
			w := newSimulation(1000+s, nil)
			if err := w.run(steps); err != nil {
				t.Fatalf("seed %d: %v", 1000+s, err)
			}
			sums[i] = w.digest.Sum64()
		}
		if sums[0] != sums[1] {
			t.Errorf("seed %d has two different histories", 1000+s)
		}
	}
}

// TestNoTaskStarves submits small tasks all the time, so that every worker is always
// partly busy, and sometimes one that needs a whole worker, which must start within a
// bound.
func TestNoTaskStarves(t *testing.T) {
	const bound = 30 * time.Minute
	for s := range uint64(4) {
		w := newSimulation(2000+s, nil)
		w.digest, w.faults = nil, false
		for _, wk := range w.workers {
			wk.offer.Resources, wk.offer.Projects, wk.offer.UnsupportedFeatures = muster.Resources{CPUs: 4, Slots: 4}, nil, nil
		}
		big := map[muster.JobID]bool{}
		end := w.now.Add(muster.Duration(time.Hour))
		w.extraEvents = func() []sched.Event {
			var queued int64
			for _, j := range w.disk.jobs {
				queued += j.Counts[muster.Queued]
				if big[j.ID] && j.StartedAt == 0 && w.now-j.CreatedAt > muster.Time(bound.Milliseconds()) {
					t.Fatalf("seed %d: job %s waits for more than %s", 2000+s, j.ID, bound)
				}
			}
			switch {
			case w.now >= end:
				return nil
			case w.rng.IntN(400) == 0:
				big[w.st.NextJob()] = true
				return []sched.Event{sched.Submit{ID: w.st.NextJob(), Spec: smallSpec(w, 4, 1)}}
			case queued < 40:
				return []sched.Event{sched.Submit{ID: w.st.NextJob(), Spec: smallSpec(w, 1, 20)}}
			}
			return nil
		}
		for w.now < end {
			if err := w.step(); err != nil {
				t.Fatalf("seed %d at %s: %v", 2000+s, w.now, err)
			}
		}
		if err := w.heal(); err != nil {
			t.Fatalf("seed %d at %s: %v", 2000+s, w.now, err)
		}
		if len(big) < 3 {
			t.Errorf("seed %d has only %d big tasks", 2000+s, len(big))
		}
	}
}

func smallSpec(w *simulation, cpus float64, n int64) *muster.Spec {
	ts := muster.TaskSpec{Name: "stage", Kind: "process", Resources: muster.Request{CPUs: cpus}, Run: &muster.Command{Argv: []string{"true"}}}
	ts.Array = &muster.Array{Ranges: []muster.Range{{First: 0, Last: n - 1, Step: 1}}}
	return &muster.Spec{Name: "job", Project: []string{"red", "blue"}[w.rng.IntN(2)], Tasks: []muster.TaskSpec{ts}}
}
