package faulty_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/store/faulty"
)

// counter counts the commits that reach it.
type counter struct{ commits int }

func (c *counter) Load(context.Context) (muster.Snapshot, error) {
	return muster.Snapshot{NextJob: 7}, nil
}

func (c *counter) Commit(context.Context, *store.Batch) error {
	c.commits++
	return nil
}

func TestOnlyTheNthCommitFails(t *testing.T) {
	t.Parallel()
	inner := &counter{}
	w := faulty.New(inner)
	if err := w.Commit(t.Context(), &store.Batch{}); err != nil {
		t.Fatal(err)
	}
	w.FailCommit(2)
	for i, fails := range []bool{false, true, false, false} {
		if err := w.Commit(t.Context(), &store.Batch{}); (err != nil) != fails {
			t.Fatalf("commit %d from now: %v", i+1, err)
		}
	}
	if inner.commits != 4 || w.Commits() != 5 {
		t.Fatalf("%d of %d commits reached the store, want 4 of 5", inner.commits, w.Commits())
	}
}

func TestCommitsFailUntilReset(t *testing.T) {
	t.Parallel()
	inner := &counter{}
	w := faulty.New(inner)
	full := muster.Errorf(muster.StorageFull, "full")
	w.SetError(full)
	if err := w.Commit(t.Context(), &store.Batch{}); !errors.Is(err, full) {
		t.Fatalf("Commit = %v", err)
	}
	if _, err := w.Load(t.Context()); !errors.Is(err, full) {
		t.Fatalf("Load = %v", err)
	}
	w.ClearError()
	if err := w.Commit(t.Context(), &store.Batch{}); err != nil || inner.commits != 1 {
		t.Fatalf("after Mend: %v, %d commits", err, inner.commits)
	}
}

func TestDelayStopsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := &counter{}
		w := faulty.New(inner)
		w.Delay(time.Second)
		start := time.Now()
		if err := w.Commit(t.Context(), &store.Batch{}); err != nil || time.Since(start) != time.Second {
			t.Fatalf("after %v: %v", time.Since(start), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := w.Commit(ctx, &store.Batch{}); muster.CodeOf(err) != muster.Unavailable || inner.commits != 1 {
			t.Fatalf("abandoned: %v, %d commits", err, inner.commits)
		}
	})
}
