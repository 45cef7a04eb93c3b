package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// TestFramesAreDelayed checks that one session can fill only its part of the inbox, and
// continues when its frames were handled.
func TestFramesAreDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Config{})
		s := e.newSession("w1", nil)
		ctx, cancel := context.WithCancel(t.Context())
		handled := 0
		go func() {
			for s.Handle(ctx, &link.ToServer{Ready: &link.Ready{}}) == nil {
				handled++
			}
		}()
		for rounds := 1; rounds <= 3; rounds++ {
			synctest.Wait()
			requests := e.inbox.drain(nil)
			if len(requests) != maxFrames || handled != rounds*maxFrames {
				t.Fatalf("round %d: %d frames wait, %d were accepted", rounds, len(requests), handled)
			}
			replyAll(requests, context.Canceled)
		}
		cancel()
		synctest.Wait()
	})
}

// TestTreesAreRemoved checks that the cache is bounded in size and time.
func TestTreesAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Config{})
		id := func(n int) muster.TaskID { return muster.TaskID{Job: 1, Num: n} }
		for n := range 10 {
			w := &completeTree{files: map[[32]byte]struct{}{}, checkedAt: time.Now()}
			for i := range maxCheckpointFiles / 5 {
				w.files[[32]byte{byte(i), byte(i >> 8), byte(i >> 16)}] = struct{}{}
			}
			e.checkpoints.Put(id(n), w)
			if e.lastTree(id(n)) != w {
				t.Fatalf("tree %d is not remembered", n)
			}
		}
		kept := 0
		for n := range 10 {
			if e.lastTree(id(n)) != nil {
				kept++
			}
		}
		if kept != 4 { // each counts a bit more than its files
			t.Errorf("%d trees are remembered, want 4", kept)
		}
		time.Sleep(recheckTree)
		if e.lastTree(id(9)) != nil {
			t.Error("a tree is cached forever")
		}
	})
}
