package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/lru"
	"github.com/muster-dev/muster/internal/tasklog"
)

// countingLogs counts how often logs are read.
type countingLogs struct {
	tasklog.Store

	opened int
}

func (l *countingLogs) Open(ctx context.Context, a muster.AttemptID, offset int64) (io.ReadCloser, error) {
	l.opened++
	return l.Store.Open(ctx, a, offset)
}

// TestEndedAttemptsAreReadOnce checks that the log of a finished attempt is read for its metrics once, unless it has grown or other limits are
// requested, and that of a running attempt each time.
func TestEndedAttemptsAreReadOnce(t *testing.T) {
	dir, err := tasklog.OpenIndexedDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	logs := &countingLogs{Store: dir}
	s := &server{Config: Config{Logs: logs}, curveCache: lru.New[curveKey](maxCurveBytes, func(b []byte) int { return len(b) })}
	ended := muster.Attempt{ID: muster.AttemptID{Task: muster.TaskID{Job: 1}, N: 1}, FinishedAt: 1}
	running := muster.Attempt{ID: muster.AttemptID{Task: muster.TaskID{Job: 1}, N: 2}}
	size := int64(0)
	appendPoint := func(id muster.AttemptID) {
		t.Helper()
		r := tasklog.AppendRecord(nil, tasklog.Record{Stream: tasklog.Progress, At: time.UnixMilli(1), Data: []byte(`{"metrics":{"loss":1}}`)})
		if size, err = dir.Append(t.Context(), id, size, r); err != nil {
			t.Fatal(err)
		}
	}
	check := func(name string, a *muster.Attempt, points, wantOpened, wantTaken int) {
		t.Helper()
		logs.opened = 0
		text, err := s.attemptMetrics(t.Context(), a, curveLimits{points, maxMetricBytes})
		var m wire.AttemptMetrics
		if err == nil {
			err = json.Unmarshal(text, &m)
		}
		if err != nil || logs.opened != wantOpened || m.Taken != wantTaken || m.Attempt != a.ID.N {
			t.Errorf("%s: the log was read %d times, want %d: %s, %v", name, logs.opened, wantOpened, text, err)
		}
	}
	appendPoint(ended.ID)
	check("at first", &ended, 100, 1, 1)
	check("again", &ended, 100, 0, 1)
	check("with other limits", &ended, 50, 1, 1)
	appendPoint(ended.ID)
	check("with the rest of the log", &ended, 100, 1, 2)
	check("again with the rest", &ended, 100, 0, 2)
	size = 0
	appendPoint(running.ID)
	check("while it runs", &running, 100, 1, 1)
	check("again while it runs", &running, 100, 1, 1)
}

// A worker's point is valid or ignored; it can be encoded as JSON.
func FuzzPointOf(f *testing.F) {
	for _, s := range []string{`{}`, `{"progress":2}`, `{"at":"2020-01-02T15:04:05.000Z","metrics":{"loss":1e999}}`, `{"metrics":null,"step":5}`, `{"checkpoint":true}`, "[]", "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		at := time.UnixMilli(1_700_000_000_000)
		p, ok := pointOf(tasklog.Record{Stream: tasklog.Progress, At: at, Data: data})
		if _, err := json.Marshal(p); err != nil || ok && p.At != muster.NewTime(at) || p.Progress != nil && (*p.Progress < 0 || *p.Progress > 1) {
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
		if got := halve(times); !slices.Equal(got, want) {
			t.Errorf("%s", fmt.Sprint(n, got, want))
		}
	}
}
