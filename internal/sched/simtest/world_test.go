package simtest

import (
	"flag"
	"sync"
	"testing"
)

var (
	seeds = flag.Int("seeds", 60, "how many worlds to run")
	seed  = flag.Int("seed", -1, "the one world to run, with a trace")
)

const steps = 400

// TestWorld runs many worlds; each must keep every invariant.
func TestWorld(t *testing.T) {
	if *seed >= 0 {
		w := newWorld(uint64(*seed), t.Logf)
		if err := w.run(steps); err != nil {
			t.Fatalf("seed %d at %s: %v", *seed, w.now, err)
		}
		t.Logf("met %+v", w.stats)
		return
	}
	var mu sync.Mutex
	var met stats
	t.Run("seeds", func(t *testing.T) {
		const lanes = 4
		for lane := range lanes {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for s := lane; s < *seeds; s += lanes {
					w := newWorld(uint64(s), nil)
					w.digest = nil
					if err := w.run(steps); err != nil {
						t.Fatalf("seed %d at %s: %v", s, w.now, err)
					}
					mu.Lock()
					met = met.add(w.stats)
					mu.Unlock()
				}
			})
		}
	})
	if *seeds >= 20 && met.least() == 0 {
		t.Errorf("the worlds never met some fault: %+v", met)
	}
	t.Logf("met %+v", met)
}

// TestSameSeed holds that a world is a function of its seed: the same effects,
// to the byte.
func TestSameSeed(t *testing.T) {
	for s := range uint64(3) {
		var sums [2]uint64
		for i := range sums {
			w := newWorld(1000+s, nil)
			if err := w.run(steps); err != nil {
				t.Fatalf("seed %d: %v", 1000+s, err)
			}
			sums[i] = w.digest.Sum64()
		}
		if sums[0] != sums[1] {
			t.Errorf("seed %d gave two histories", 1000+s)
		}
	}
}
