package sweeper

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// marks is the set of blobs to which something refers. It holds 8 bytes of each hash: a collision only keeps a blob for longer.
type marks struct {
	list   []uint64
	sorted int                 // of list; the rest was added since
	trees  map[uint64]struct{} // whose files were added
}

func hashPrefix(sha256 string) uint64 {
	n, err := strconv.ParseUint(sha256[:min(16, len(sha256))], 16, 64)
	if err != nil {
		return 0 // not the name of a blob
	}
	return n
}

func (m *marks) add(sha256 string) {
	m.list = append(m.list, hashPrefix(sha256))
	if len(m.list) > 2*m.sorted+4096 {
		m.sort()
	}
}

func (m *marks) sort() {
	slices.Sort(m.list)
	m.list = slices.Compact(m.list)
	m.sorted = len(m.list)
}

// has reports whether a blob is marked. It must not be called between add and sort.
func (m *marks) has(sha256 string) bool {
	_, ok := slices.BinarySearch(m.list, hashPrefix(sha256))
	return ok
}

// mark finds all references. It reads in the order of store.BlobRefReader, see doc.go.
func (s *Sweeper) mark(ctx context.Context, paced bool) (*marks, error) {
	m := &marks{trees: map[uint64]struct{}{}}
	since, err := s.Store.UnfinishedSince(ctx)
	if err != nil {
		return nil, err
	}
	for w, at := range since {
		if err := s.markUploads(ctx, m, w, at.Add(-clockMargin), paced); err != nil {
			return nil, err
		}
	}
	visit := func(ref *store.BlobRef) error { return s.markRef(ctx, m, ref) }
	if err := eachPage(ctx, paced, s.Store.ScheduleBlobs, visit); err != nil {
		return nil, err
	}
	// Before tasks, which get artifacts of the cache, and touch them first.
	now := s.Engine.Now()
	cached := func(ctx context.Context, after int64, limit int) ([]store.BlobRef, int64, bool, error) {
		return s.Store.CacheBlobs(ctx, now, after, limit)
	}
	if err := eachPage(ctx, paced, cached, visit); err != nil {
		return nil, err
	}
	if err := eachPage(ctx, paced, s.Store.SpecBlobs, visit); err != nil {
		return nil, err
	}
	if err := s.eachResult(ctx, paced, visit); err != nil {
		return nil, err
	}
	m.sort()
	return m, nil
}

// clockMargin is subtracted from the time of a worker's oldest attempt: a grant is renewed when it is some hours old, and the clock may have been set.
const clockMargin = muster.Duration(24 * time.Hour)

// markUploads marks what a worker uploaded for attempts that are not reported yet.
func (s *Sweeper) markUploads(ctx context.Context, m *marks, w muster.WorkerID, since muster.Time, paced bool) error {
	for after := ""; ; {
		start := time.Now()
		page, err := s.Store.WorkerBlobs(ctx, w, since, after, pageSize)
		if err != nil {
			return err
		}
		for _, sum := range page {
			m.add(sum)
		}
		if len(page) < pageSize {
			return nil
		}
		after = page[len(page)-1]
		if err := rest(ctx, paced, start); err != nil {
			return err
		}
	}
}

func (s *Sweeper) markRef(ctx context.Context, m *marks, ref *store.BlobRef) error {
	for _, b := range ref.Blobs {
		m.add(b.SHA256)
	}
	for _, tree := range ref.Trees {
		if _, ok := m.trees[hashPrefix(tree)]; ok {
			continue
		}
		m.trees[hashPrefix(tree)] = struct{}{}
		m.add(tree)
		files, err := s.treeFiles(ctx, tree)
		if err != nil {
			return err
		}
		for i := range files {
			m.add(files[i].SHA256)
		}
	}
	return nil
}

// treeFiles returns the files of a tree, none if it is missing or is not a tree. Other errors must end the sweep.
func (s *Sweeper) treeFiles(ctx context.Context, tree string) ([]store.Blob, error) {
	files, err := s.Engine.Files(ctx, tree)
	if err == nil {
		return files, nil
	}
	switch muster.CodeOf(err) {
	case muster.NotFound, muster.Invalid, muster.TooLarge:
		return nil, nil
	default:
		return nil, err
	}
}

// eachResult visits the references of tasks, attempts and late reports, in this order.
func (s *Sweeper) eachResult(ctx context.Context, paced bool, visit func(*store.BlobRef) error) error {
	if err := eachPage(ctx, paced, s.Store.TaskBlobs, visit); err != nil {
		return err
	}
	if err := eachPage(ctx, paced, s.Store.AttemptBlobs, visit); err != nil {
		return err
	}
	return eachPage(ctx, paced, s.Store.LateBlobs, visit)
}

// eachPage visits all references of one list.
func eachPage[K any](ctx context.Context, paced bool, list func(context.Context, K, int) ([]store.BlobRef, K, bool, error), visit func(*store.BlobRef) error) error {
	var after K
	for {
		start := time.Now()
		page, next, done, err := list(ctx, after, pageSize)
		if err != nil {
			return err
		}
		for i := range page {
			if err := visit(&page[i]); err != nil {
				return err
			}
		}
		if done {
			return nil
		}
		after = next
		if err := rest(ctx, paced, start); err != nil {
			return err
		}
	}
}

// rest pauses after work that began at a time.
func rest(ctx context.Context, paced bool, start time.Time) error {
	if !paced {
		return context.Cause(ctx)
	}
	return pause(ctx, time.Since(start), 0)
}
