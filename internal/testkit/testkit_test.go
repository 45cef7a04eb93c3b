package testkit_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster/internal/testkit"
)

func TestPoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("closed")
		start := time.Now()
		err := testkit.Poll(t.Context(), time.Minute, func() error {
			if time.Since(start) < time.Second {
				return failure
			}
			return nil
		})
		if waited := time.Since(start); err != nil || waited < time.Second || waited > 2*time.Second {
			t.Errorf("waited %s: %v", waited, err)
		}
		start = time.Now()
		err = testkit.Poll(t.Context(), time.Minute, func() error { return failure })
		if waited := time.Since(start); !errors.Is(err, failure) || waited != time.Minute {
			t.Errorf("waited %s: %v", waited, err)
		}
	})
}
