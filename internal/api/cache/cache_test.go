package cache_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/cache"
)

// Calls that wait for another call's load return when their context ends, share its error, and load the value
// themselves if that call is cancelled.
func TestWaitingForAValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f cache.Value[int]
		loads := 0
		slow := func(ctx context.Context) (int, error) {
			loads++
			select {
			case <-time.After(30 * time.Second):
				return loads, muster.Errorf(muster.Undetermined, "no answer in time")
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		// ask sends the result of a call whose context ends after d.
		type answer struct {
			value int
			err   error
			after time.Duration
		}
		get := func(d time.Duration, load func(context.Context) (int, error)) chan answer {
			got := make(chan answer, 1)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), d)
				defer cancel()
				start := time.Now()
				v, err := f.Get(ctx, time.Second, load)
				got <- answer{v, err, time.Since(start)}
			}()
			synctest.Wait()
			return got
		}
		first, short, long := get(time.Minute, slow), get(time.Second, slow), get(time.Minute, slow)
		if a := <-short; a.err == nil || a.after != time.Second {
			t.Errorf("a request of one second got %+v", a)
		}
		for _, got := range []chan answer{first, long} {
			if a := <-got; muster.CodeOf(a.err) != muster.Undetermined || a.after != 30*time.Second {
				t.Errorf("a patient request got %+v", a)
			}
		}
		if loads != 1 {
			t.Errorf("loaded %d times, want once", loads)
		}
		cancelled, waiting := get(time.Second, slow), get(time.Minute, func(context.Context) (int, error) { return 7, nil })
		if a := <-cancelled; a.err == nil {
			t.Errorf("the cancelled call got %+v", a)
		}
		if a := <-waiting; a.value != 7 || a.err != nil || a.after != time.Second {
			t.Errorf("the waiting call got %+v, want its own load", a)
		}
		if v, err := f.Get(t.Context(), time.Second, slow); v != 7 || err != nil {
			t.Errorf("a fresh value is not used: %d, %v", v, err)
		}
	})
}
