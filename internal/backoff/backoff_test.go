package backoff_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster/internal/backoff"
)

// The longest of many pauses is close to the limit, and none exceeds it.
func TestPausesDoubleUpToMax(t *testing.T) {
	t.Parallel()
	limits := []time.Duration{100, 200, 400, 800, 1000, 1000, 1000}
	longest := make([]time.Duration, len(limits))
	for range 500 {
		b := backoff.Backoff{Min: 100, Max: 1000}
		for i, limit := range limits {
			d := b.Next()
			if d <= 0 || d > limit {
				t.Fatalf("pause %d is %d of at most %d", i, d, limit)
			}
			longest[i] = max(longest[i], d)
		}
		b.Reset()
		if d := b.Next(); d > limits[0] {
			t.Fatalf("after Reset the pause is %d", d)
		}
	}
	for i, limit := range limits {
		if longest[i] < limit/2 {
			t.Errorf("the longest of 500 pauses is %d, the limit %d", longest[i], limit)
		}
	}
}

// Any number of attempts stays within the bounds.
func TestZeroValue(t *testing.T) {
	t.Parallel()
	var b backoff.Backoff
	for range 1000 {
		if d := b.Next(); d <= 0 || d > backoff.DefaultMax {
			t.Fatalf("a pause of %s", d)
		}
	}
}

func TestSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := backoff.Sleep(t.Context(), time.Hour); err != nil || time.Since(start) != time.Hour {
			t.Errorf("slept %s: %v", time.Since(start), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		b := backoff.Backoff{Min: time.Hour, Max: time.Hour}
		start = time.Now()
		for b.Wait(ctx) == nil {
		}
		if waited := time.Since(start); !errors.Is(ctx.Err(), context.DeadlineExceeded) || waited != time.Minute {
			t.Errorf("waited %s: %v", waited, ctx.Err())
		}
	})
}
