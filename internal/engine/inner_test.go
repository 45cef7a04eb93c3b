package engine

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/muster-dev/muster/internal/link"
)

// TestFramesAreHeldUp lets one session fill its part of the inbox and no more,
// and go on when that was decided.
func TestFramesAreHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Config{})
		s := e.newSession("w1", nil)
		ctx, cancel := context.WithCancel(t.Context())
		taken := 0
		go func() {
			for s.Handle(ctx, &link.ToServer{Ready: &link.Ready{}}) == nil {
				taken++
			}
		}()
		for rounds := 1; rounds <= 3; rounds++ {
			synctest.Wait()
			letters := e.inbox.take(nil)
			if len(letters) != maxFrames || taken != rounds*maxFrames {
				t.Fatalf("round %d: %d frames wait, %d were taken", rounds, len(letters), taken)
			}
			answer(letters, context.Canceled)
		}
		cancel()
		synctest.Wait()
	})
}
