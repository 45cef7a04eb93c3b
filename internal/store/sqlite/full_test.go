package sqlite

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// The same as on a full disk, on every system: the database may not grow.
func TestFullDiskIsStorageFullAndChangesNothing(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "muster.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	limit := func(pages int) {
		if err := s.writer.query(fmt.Sprintf("PRAGMA max_page_count = %d", pages), nil, func(*columns) bool { return true }); err != nil {
			t.Fatal(err)
		}
	}
	worker := func(n int) *store.Batch {
		return &store.Batch{Rows: muster.Rows{Workers: []muster.Worker{{
			ID: muster.WorkerID(fmt.Sprint("w", n)), Name: "w", State: muster.WorkerActive, Version: string(make([]byte, 3000)),
		}}}}
	}
	limit(60)
	n := 0
	for ; n < 200; n++ {
		if err = s.Commit(t.Context(), worker(n)); err != nil {
			break
		}
	}
	if muster.CodeOf(err) != muster.StorageFull {
		t.Fatalf("after %d commits: %v, want a StorageFull error", n, err)
	}
	if workers, err := s.Workers(t.Context()); err != nil || len(workers) != n {
		t.Fatalf("%d workers, %v: want %d", len(workers), err, n)
	}
	limit(1000)
	if err := s.Commit(t.Context(), worker(n)); err != nil {
		t.Fatalf("with space again: %v", err)
	}
}
