package progress_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/progress"
)

// recordedPoints are the written points.
type recordedPoints struct {
	points []muster.Point
	at     []time.Time
	bytes  int64
}

func (k *recordedPoints) write(at time.Time, data []byte) {
	var p muster.Point
	if err := json.Unmarshal(data, &p); err != nil {
		panic(err)
	}
	k.points, k.at, k.bytes = append(k.points, p), append(k.at, at), k.bytes+int64(len(data))
}

func loss(v float64) *muster.Progress {
	return &muster.Progress{Metrics: map[string]float64{"loss": v}}
}

// A task that reports a thousand times per second has ten points per second, including the first and the last value.
func TestPointsAreDownsampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k recordedPoints
		p := progress.NewPointLogger(k.write)
		for i := range 5_000 {
			p.Add(loss(float64(i)))
			time.Sleep(time.Millisecond)
		}
		p.Close()
		p.Add(loss(-1))
		p.Close()
		time.Sleep(time.Hour)
		if n := len(k.points); n < 48 || n > 52 {
			t.Errorf("%d points in 5 s, want about 50", n)
		}
		if first, final := k.points[0].Metrics["loss"], k.points[len(k.points)-1].Metrics["loss"]; first != 0 || final != 4999 {
			t.Errorf("the first point is %v, the last one %v", first, final)
		}
		for i := 1; i < len(k.at)-1; i++ {
			if d := k.at[i].Sub(k.at[i-1]); d < progress.MinPointInterval-time.Millisecond {
				t.Fatalf("points %d and %d are %s apart", i-1, i, d)
			}
		}
	})
}

// Progress between two points is merged, and written without another report.
func TestPointsAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k recordedPoints
		p := progress.NewPointLogger(k.write)
		p.Add(&muster.Progress{Step: new("epoch 1")})
		p.Add(&muster.Progress{Artifacts: []muster.Artifact{{}}}) // not part of a point
		p.Add(&muster.Progress{Progress: new(0.1), Metrics: map[string]float64{"loss": 3, "accuracy": 0.5}})
		p.Add(&muster.Progress{Metrics: map[string]float64{"loss": 2}})
		time.Sleep(time.Second)
		p.Add(&muster.Progress{Metrics: map[string]float64{"broken": math.NaN()}}) // no task can report it
		time.Sleep(time.Second)
		p.Add(&muster.Progress{Progress: new(0.2), Step: new("epoch 2")})
		p.Add(&muster.Progress{Step: new("epoch 3")})
		p.Close()
		var got []string
		for _, point := range k.points {
			b, err := json.Marshal(point)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(b))
		}
		want := `{"step":"epoch 1"} {"progress":0.1,"metrics":{"accuracy":0.5,"loss":2}} {"progress":0.2,"step":"epoch 2"} {"step":"epoch 3"}`
		if strings.Join(got, " ") != want {
			t.Errorf("the points are %s, want %s", got, want)
		}
	})
}

// The points of a task of any length fit in MaxPointBytes: the more there are, the longer the time between them.
func TestPointsFitTheirLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &recordedPoints{}
		p := progress.NewPointLogger(func(at time.Time, data []byte) { k.bytes, k.at = k.bytes+int64(len(data)), append(k.at, at) })
		metrics := map[string]float64{}
		for i := range progress.MaxMetrics {
			metrics[fmt.Sprintf("%0*d", progress.MaxMetricName, i)] = 1.0 / 3
		}
		for range 30 * 24 * 60 { // a month
			p.Add(&muster.Progress{Metrics: metrics})
			p.Add(&muster.Progress{Metrics: metrics})
			time.Sleep(time.Minute)
		}
		p.Close()
		if k.bytes > progress.MaxPointBytes || k.bytes < progress.MaxPointBytes/4 {
			t.Errorf("%d bytes of points", k.bytes)
		}
		if span := k.at[len(k.at)-1].Sub(k.at[0]); span < 25*24*time.Hour {
			t.Errorf("the points end after %s", span)
		}
	})
}
