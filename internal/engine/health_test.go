package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
)

// TestHealth checks Health of an engine that is loading its state, whose store failed, or which is stuck. It does not need
// the engine to run.
func TestHealth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := New(Config{})
		check := func(when, want string) {
			t.Helper()
			err := e.Health()
			if want == "" && err != nil || want != "" && (muster.CodeOf(err) != muster.Unavailable || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: %v, want %q", when, err, want)
			}
		}
		check("before the state is loaded", "is loading its state")
		close(e.ready)
		check("once it is loaded", "")
		time.Sleep(time.Hour)
		check("when there is nothing to do", "")
		e.batchStart.Store(int64(time.Since(e.start)))
		time.Sleep(slowBatch)
		check("while a batch takes long", "")
		time.Sleep(time.Second)
		check("while a batch takes too long", "busy with one batch for 11s")
		e.batchStart.Store(0)
		check("once it is done", "")
		failed := errors.New("the disk is gone")
		e.storeErr.Store(&failed)
		check("while the store fails", "the disk is gone")
		e.storeErr.Store(nil)
		check("once it works again", "")
	})
}

// TestPingOfAStuckEngine checks that an engine that waits for its store does not respond, and one that does not run yet.
func TestPingOfAStuckEngine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := New(Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.Ping(ctx); err == nil || time.Since(e.start) != time.Second {
			t.Errorf("a stuck engine returns %v after %s", err, time.Since(e.start))
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		e.inbox.close(errors.New("the engine stops"))
		if err := e.Ping(ctx); err != nil {
			t.Errorf("an engine that refuses requests is not alive: %v", err)
		}
	})
}
