package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/muster-dev/muster/internal/engine"
	"github.com/muster-dev/muster/internal/link"
)

// countedBlobs counts the files that are looked up.
type countedBlobs struct {
	engine.Blobs

	stats atomic.Int64
}

func (c *countedBlobs) Touch(ctx context.Context, sha256 string) (int64, error) {
	c.stats.Add(1)
	return c.Blobs.Touch(ctx, sha256)
}

// TestOnlyNewHashesAreLookedUp saves checkpoints that differ in few files: only those are
// looked up, and a missing one is detected.
func TestOnlyNewHashesAreLookedUp(t *testing.T) {
	blobs := &countedBlobs{}
	r := start(t, func(cfg *engine.Config) {
		blobs.Blobs = cfg.Blobs
		cfg.Blobs = blobs
	})
	p := r.connect(t)
	r.submit(t, 1)
	a := p.next(t, "an offer", assigns).Assign[0].Attempt
	var files []string
	for i := range 200 {
		files = append(files, r.put(t, fmt.Appendf(nil, "file %d", i)))
	}
	save := func(tree string) string {
		t.Helper()
		if err := p.Handle(t.Context(), &link.ToServer{Saved: []link.Saved{{Attempt: a, SHA256: tree}}, Started: []link.Started{{Attempt: a, At: 1}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Workers(t.Context()); err != nil { // it is decided in turn
			t.Fatal(err)
		}
		task, err := r.store.Task(t.Context(), a.Task)
		if err != nil {
			t.Fatal(err)
		}
		return task.Checkpoint
	}
	first := r.putTree(t, files...)
	if got := save(first); got != first || blobs.stats.Load() != 201 { // with the tree itself
		t.Errorf("the first one: %q after %d files were looked up", got, blobs.stats.Load())
	}
	before := blobs.stats.Load()
	files[7] = r.put(t, []byte("changed"))
	second := r.putTree(t, files...)
	if got := save(second); got != second || blobs.stats.Load()-before != 2 {
		t.Errorf("one of 200 files changed: %q after %d files were looked up", got, blobs.stats.Load()-before)
	}
	files[8] = fmt.Sprintf("%064d", 0)
	if got := save(r.putTree(t, files...)); got != second {
		t.Errorf("a file is missing: the task continues from %q", got)
	}
}
