package usageseries_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/usageseries"
)

func drawPoints(t *rapid.T) []muster.Point {
	all := make([]muster.Point, rapid.IntRange(0, 300).Draw(t, "points"))
	at := muster.Time(1_700_000_000_000)
	for i := range all {
		at += muster.Time(rapid.IntRange(1, 60_000).Draw(t, "span"))
		all[i] = muster.Point{
			At: at, Progress: rapid.Ptr(rapid.Float64Range(0, 1), true).Draw(t, "progress"), Step: rapid.Ptr(rapid.StringN(0, 3, 9), true).Draw(t, "step"),
			Metrics: rapid.MapOfN(rapid.SampledFrom([]string{"loss", "accuracy", "lr"}), rapid.Float64Range(-10, 10), 0, 3).Draw(t, "metrics"),
		}
	}
	return all
}

// A downsampled series is short, in order, ends with the exact last point, and has the lowest and the highest value of each
// metric of every part of the original.
func TestCurveKeepsPeaks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := drawPoints(t)
		maxPoints := rapid.IntRange(10, 80).Draw(t, "most")
		c := usageseries.NewProgressSeries(maxPoints, math.MaxInt)
		for _, p := range all {
			c.Add(p)
		}
		points := c.Points()
		switch {
		case points == nil || c.Len() != len(all):
			t.Fatalf("points %v of %d", points, c.Len())
		case len(points) > maxPoints:
			t.Fatalf("%d points of %d, at most %d were wanted", len(points), len(all), maxPoints)
		case len(all) <= maxPoints-4 && !cmp.Equal(all, points, cmp.Comparer(samePoint)):
			t.Fatalf("a short curve was changed: %s", cmp.Diff(all, points, cmp.Comparer(samePoint)))
		case len(all) > 0 && !samePoint(points[len(points)-1], all[len(all)-1]):
			t.Fatal("the last point is another one")
		case !slices.IsSortedFunc(points, func(a, b muster.Point) int { return int(a.At - b.At) }):
			t.Fatal("the points are not in order")
		}
		if want, got := ranges(all), ranges(points); !cmp.Equal(want, got) {
			t.Fatalf("the values are another range (-want +got):\n%s", cmp.Diff(want, got))
		}
		for _, p := range points { // no value is made up
			for name, v := range p.Metrics {
				if !slices.ContainsFunc(all, func(q muster.Point) bool { w, ok := q.Metrics[name]; return ok && w == v }) {
					t.Fatalf("%s was never %v", name, v)
				}
			}
		}
		progress := func(list []muster.Point) (last float64) {
			for _, p := range list {
				if p.Progress != nil {
					last = *p.Progress
				}
			}
			return last
		}
		if a, b := progress(all), progress(points); a != b {
			t.Fatalf("the last progress is %v, want %v", a, b)
		}
	})
}

// TestCurveIsBounded checks that a curve has about as many bytes as it may, whatever the names and steps of its points, and still keeps the peaks.
func TestCurveIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const maxPoints = 300
		width, names, step := rapid.IntRange(1, 60).Draw(t, "width"), rapid.IntRange(0, 100).Draw(t, "names"), rapid.IntRange(0, 4000).Draw(t, "step")
		bytes := rapid.IntRange(50_000, 500_000).Draw(t, "bytes")
		all := make([]muster.Point, rapid.IntRange(1, 400).Draw(t, "points"))
		for i := range all {
			all[i] = muster.Point{At: muster.Time(1_700_000_000_000 + i), Step: new(strings.Repeat("s", step)), Metrics: map[string]float64{}}
			for k := range names {
				all[i].Metrics[fmt.Sprintf("%0*d", width, k)] = float64(i*k%7) / 3
			}
		}
		c := usageseries.NewProgressSeries(maxPoints, bytes)
		for _, p := range all {
			c.Add(p)
		}
		text, err := json.Marshal(c.Points())
		if err != nil {
			t.Fatal(err)
		}
		slack := 5 * (names*(width+28) + step + 96) // a span that is not full, the last point, and one span however large it is
		if len(text) > bytes+slack {
			t.Fatalf("%d bytes, at most about %d were wanted", len(text), bytes)
		}
		if want, got := ranges(all), ranges(c.Points()); !cmp.Equal(want, got) {
			t.Fatalf("the values are another range (-want +got):\n%s", cmp.Diff(want, got))
		}
	})
}

func samePoint(a, b muster.Point) bool {
	if len(a.Metrics)+len(b.Metrics) == 0 {
		a.Metrics, b.Metrics = nil, nil
	}
	return cmp.Equal(a, b)
}

func ranges(list []muster.Point) map[string][2]float64 {
	m := map[string][2]float64{}
	for _, p := range list {
		for name, v := range p.Metrics {
			r, ok := m[name]
			if !ok {
				r = [2]float64{math.Inf(1), math.Inf(-1)}
			}
			m[name] = [2]float64{min(r[0], v), max(r[1], v)}
		}
	}
	return m
}
