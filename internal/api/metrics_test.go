package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/tasklog"
)

// What a worker writes as a point is one, or is left out; it can be answered as JSON.
func FuzzPointOf(f *testing.F) {
	for _, s := range []string{`{}`, `{"progress":2}`, `{"at":"2020-01-02T15:04:05.000Z","metrics":{"loss":1e999}}`, `{"metrics":null,"step":5}`, `{"checkpoint":true}`, "[]", "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		at := time.UnixMilli(1_700_000_000_000)
		p, ok := pointOf(tasklog.Record{Stream: tasklog.Points, At: at, Data: data})
		if _, err := json.Marshal(p); err != nil || ok && p.At != muster.TimeOf(at) || p.Progress != nil && (*p.Progress < 0 || *p.Progress > 1) {
			t.Errorf("%q is %+v, %v", data, p, err)
		}
		if _, ok := pointOf(tasklog.Record{Stream: tasklog.Stdout, Data: data}); ok {
			t.Error("output is a point")
		}
	})
}

func TestEverySecond(t *testing.T) {
	for n, want := range map[int][]muster.Time{1: {1}, 2: {2}, 3: {1, 3}, 4: {2, 4}} {
		var times []muster.Time
		for i := range n {
			times = append(times, muster.Time(i+1))
		}
		if got := everySecond(times); !slices.Equal(got, want) {
			t.Errorf("%s", fmt.Sprint(n, got, want))
		}
	}
}
