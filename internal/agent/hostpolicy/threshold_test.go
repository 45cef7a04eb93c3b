package hostpolicy

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var epoch = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

func TestGate(t *testing.T) {
	type step struct {
		after   time.Duration
		percent float64
		closed  bool
		want    string // part of why
	}
	none := math.NaN()
	for _, test := range []struct {
		name     string
		coolDown time.Duration
		steps    []step
	}{
		{"exactly at the threshold is not over it", 30 * time.Second, []step{{0, 80, false, ""}, {2 * time.Second, 80.01, true, "cpu at 80.1% is over"}}},
		{"it opens after the cool-down below", 30 * time.Second, []step{
			{0, 93, true, "cpu at 93% is over --max-cpu-percent 80; takes tasks again below 75% for 30s"},
			{2 * time.Second, 74, true, "93%"},
			{28 * time.Second, 74, true, "93%"},
			{2 * time.Second, 74, false, ""},
		}},
		{"between the two nothing changes", 30 * time.Second, []step{
			{0, 93, true, ""}, {2 * time.Second, 70, true, ""}, {2 * time.Second, 77, true, ""}, {30 * time.Second, 70, true, ""}, {30 * time.Second, 70, false, ""}, {2 * time.Second, 79, false, ""},
		}},
		{"over once restarts the cool-down", 30 * time.Second, []step{
			{0, 93, true, ""}, {2 * time.Second, 70, true, ""}, {28 * time.Second, 81, true, ""}, {2 * time.Second, 70, true, ""}, {29 * time.Second, 70, true, ""}, {time.Second, 70, false, ""},
		}},
		{"the figures are renewed, not often", 30 * time.Second, []step{
			{0, 93, true, "93%"}, {30 * time.Second, 88, true, "93%"}, {30 * time.Second, 88, true, "88% is over"}, {60 * time.Second, 79, true, "cpu at 79% was over"},
		}},
		{"no cool-down", 0, []step{{0, 93, true, "below 75%"}, {2 * time.Second, 75, true, ""}, {2 * time.Second, 74, false, ""}}},
		{"what is unknown changes nothing", 30 * time.Second, []step{
			{0, none, false, ""}, {2 * time.Second, 93, true, "93%"}, {2 * time.Second, 70, true, ""}, {28 * time.Second, none, true, "93%"}, {2 * time.Second, 70, false, ""},
		}},
		{"what stays unknown does not close", 30 * time.Second, []step{
			{0, 93, true, ""}, {blindTimeout - time.Second, none, true, "93%"}, {time.Second, none, false, ""}, {time.Second, 93, true, ""},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			th := newThreshold("cpu", "--max-cpu-percent 80", 80, test.coolDown)
			now := epoch
			for i, s := range test.steps {
				now = now.Add(s.after)
				why := th.update(now, s.percent)
				if why != "" != s.closed || !strings.Contains(why, s.want) {
					t.Fatalf("look %d: %q, want closed %t and %q", i, why, s.closed, s.want)
				}
			}
		})
	}
}

// A gate is never open after a look that was over, opens only after a cool-down
// of looks that were all below, and opens after one.
func TestGateProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.Float64Range(0.5, 99.5).Draw(t, "most")
		coolDown := time.Duration(rapid.IntRange(0, 120).Draw(t, "coolDown")) * time.Second
		th := newThreshold("cpu", "--max-cpu-percent", most, coolDown)
		if th.low >= th.high || th.low <= 0 {
			t.Fatalf("opens below %g, closes over %g", th.low, th.high)
		}
		now, closed := epoch, false
		below := time.Duration(-1) // since the first of the looks below; -1 for none
		for range rapid.IntRange(1, 200).Draw(t, "looks") {
			step := time.Duration(rapid.IntRange(0, 40).Draw(t, "step")) * time.Second
			now = now.Add(step)
			percent := rapid.Float64Range(0, 100).Draw(t, "percent")
			switch {
			case percent >= th.low:
				below = -1
			case below < 0:
				below = 0
			default:
				below += step
			}
			why := th.update(now, percent)
			switch {
			case percent > most && why == "":
				t.Fatalf("open at %g%%", percent)
			case !closed && percent <= most && why != "":
				t.Fatalf("closed at %g%%: %s", percent, why)
			case closed && why == "" && below < coolDown:
				t.Fatalf("open %v after the last look that was not below", below)
			case why != "" && below >= coolDown:
				t.Fatalf("still closed after %v below", below)
			}
			closed = why != ""
		}
	})
}
