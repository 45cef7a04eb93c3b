//go:build linux

package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

const workers = 3

// plan is everything that a run does, made from its seed.
type plan struct {
	Jobs   []jobPlan
	Prunes []prunePlan
	Faults []fault
}

// fault is one disturbance of one target. Those of one target do not overlap, those of
// several do.
type fault struct {
	Target string // such as "worker2"
	Kind   string
	At     time.Duration
	For    time.Duration // how long it lasts, before the target recovers
	N      int           // a size of the kind
}

func (f fault) String() string {
	return fmt.Sprintf("%6.1fs %-13s %-13s for %4.1fs", f.At.Seconds(), f.Target, f.Kind, f.For.Seconds())
}

// faultKind is a kind of fault, with its frequency and duration.
type faultKind struct {
	kind     string
	weight   int
	min, max time.Duration
}

const ms, s = time.Millisecond, time.Second

// The faults of each sort of target. A shim that is frozen for longer than a lease while its worker does, too, cannot end
// what outlives the lease (docs/guarantees.md promises it for workers), so shim_stop is short.
var (
	serverFaults = []faultKind{
		{"kill", 5, 0, 3 * s}, {"kill_thrice", 2, 0, 500 * ms}, {"restart", 3, 0, s}, {"stop", 3, s, 9 * s},
	}
	workerFaults = []faultKind{
		{"kill", 3, 0, s}, {"kill_long", 3, 4 * s, 14 * s}, {"restart", 3, 0, s}, {"drain", 2, 3 * s, 6 * s}, {"upgrade", 3, 0, s},
		{"stop", 3, s, 12 * s}, {"shim_kill", 2, 0, s}, {"both_kill", 2, 0, 3 * s}, {"shim_stop", 2, 500 * ms, 3 * s},
	}
	networkFaults = []faultKind{
		{"cut", 3, s, 16 * s}, {"silent", 3, s, 16 * s}, {"half_up", 2, s, 16 * s}, {"half_down", 2, s, 16 * s}, {"slow", 2, 3 * s, 10 * s},
		{"lag", 2, 3 * s, 10 * s}, {"reset", 2, s, 6 * s}, {"flap", 2, 2 * s, 8 * s},
	}
	diskFaults = []faultKind{{"full", 1, s, 8 * s}}
)

// targets are the possible targets of faults, with their faults.
func targets() map[string][]faultKind {
	m := map[string][]faultKind{"server": serverFaults, "client_net": networkFaults, "server_disk": diskFaults}
	for i := range workers {
		m[fmt.Sprintf("worker%d", i)] = workerFaults
		m[fmt.Sprintf("worker%d_net", i)] = networkFaults
	}
	// Only one worker's disk is ever full, so that what needs a disk can run elsewhere.
	m["worker0_disk"] = diskFaults
	return m
}

// makePlan creates the plan of a seed. A longer duration only adds to it, and each target has its own stream of random numbers, so that
// excluding faults changes no others.
func makePlan(seed uint64, duration time.Duration, excluded []string) plan {
	p := plan{Jobs: makeWorkload(newRand(seed, "workload"), duration)}
	planRetention(newRand(seed, "retention"), p.Jobs)
	p.Prunes = planPrunes(newRand(seed, "prunes"), duration)
	for target, kinds := range targets() {
		rng := newRand(seed, target)
		total := 0
		for _, x := range kinds {
			total += x.weight
		}
		pause := func() time.Duration { return time.Duration(4000+rng.IntN(44_000)) * ms }
		for at := pause() / 2; at < duration; {
			f := fault{Target: target, At: at, N: rng.IntN(1 << 16)}
			pick := rng.IntN(total)
			for _, x := range kinds {
				if pick -= x.weight; pick < 0 {
					f.Kind, f.For = x.kind, x.min+time.Duration(rng.Int64N(int64(x.max-x.min)+1))
					break
				}
			}
			at += f.For + pause()
			if !isExcluded(f, excluded) {
				p.Faults = append(p.Faults, f)
			}
		}
	}
	slices.SortFunc(p.Faults, func(a, b fault) int {
		if a.At != b.At {
			return int(a.At - b.At)
		}
		return strings.Compare(a.Target, b.Target)
	})
	return p
}

// isExcluded reports whether a fault is excluded, by its kind or by a part of its target's name.
func isExcluded(f fault, excluded []string) bool {
	return slices.ContainsFunc(excluded, func(w string) bool { return w != "" && (f.Kind == w || strings.Contains(f.Target, w)) })
}

// newRand is a source of random numbers for one purpose.
func newRand(seed uint64, purpose string) *rand.Rand {
	var key [32]byte
	copy(key[8:], purpose)
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	return rand.New(rand.NewChaCha8(key))
}
