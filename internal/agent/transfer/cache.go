package transfer

import (
	"container/list"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster"
)

// cache keeps verified blobs on disk, the most recently used ones within a
// budget. An open file outlives its eviction.
type cache struct {
	dir    string
	budget int64

	mu     sync.Mutex
	byHash map[string]*list.Element // of *blob
	recent *list.List               // the most recently used first
	total  int64
	locks  map[string]chan struct{} // hashes that somebody works on
}

type blob struct {
	sha  string
	size int64
}

const (
	maxBlobs   = 50_000         // in the cache, whatever their size
	partialAge = 24 * time.Hour // of a part that nobody went on with
)

func openCache(dir string, budget int64) (*cache, error) {
	c := &cache{dir: dir, budget: budget, byHash: map[string]*list.Element{}, recent: list.New(), locks: map[string]chan struct{}{}}
	for _, d := range []string{c.blobs(), c.partials()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, muster.Errorf(muster.Invalid, "the cache folder cannot be made: %w", err)
		}
	}
	if err := c.load(); err != nil {
		return nil, muster.Errorf(muster.Internal, "the cache folder %s cannot be read: %w", dir, err)
	}
	return c, nil
}

func (c *cache) blobs() string    { return filepath.Join(c.dir, "blobs") }
func (c *cache) partials() string { return filepath.Join(c.dir, "partial") }

func (c *cache) path(sha string) string { return filepath.Join(c.blobs(), sha[:2], sha) }

// maxBlobSize is the size from which a blob is not cached.
func (c *cache) maxBlobSize() int64 { return c.budget / 2 }

// load takes up what an earlier life left, in the order of its last use, and
// removes parts that are too old.
func (c *cache) load() error {
	type savedBlob struct {
		blob

		used time.Time
	}
	var all []savedBlob
	err := filepath.WalkDir(c.blobs(), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !isHash(d.Name()) {
			return err
		}
		info, err := d.Info()
		if err == nil {
			all = append(all, savedBlob{blob{d.Name(), info.Size()}, info.ModTime()})
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b savedBlob) int { return a.used.Compare(b.used) })
	for _, f := range all {
		c.byHash[f.sha] = c.recent.PushFront(&f.blob)
		c.total += f.size
	}
	c.evict()
	partials, err := os.ReadDir(c.partials())
	if err != nil {
		return err
	}
	for _, p := range partials {
		if info, err := p.Info(); err == nil && time.Since(info.ModTime()) > partialAge {
			_ = os.Remove(filepath.Join(c.partials(), p.Name())) // the next start tries again
		}
	}
	return nil
}

// lock makes the caller the only one that works on a hash.
func (c *cache) lock(ctx context.Context, sha string) (unlock func(), err error) {
	for {
		c.mu.Lock()
		busy := c.locks[sha]
		if busy == nil {
			done := make(chan struct{})
			c.locks[sha] = done
			c.mu.Unlock()
			return func() {
				c.mu.Lock()
				delete(c.locks, sha)
				c.mu.Unlock()
				close(done)
			}, nil
		}
		c.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// open returns a blob, or nil if it is not there whole. A negative size is
// unknown. The hash is locked.
func (c *cache) open(sha string, size int64) *os.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byHash[sha]
	if e == nil {
		return nil
	}
	b := blobOf(e)
	f, err := os.Open(c.path(sha))
	if err != nil {
		c.drop(e)
		return nil
	}
	if info, err := f.Stat(); err != nil || info.Size() != b.size || size >= 0 && b.size != size {
		_ = f.Close() // only read
		c.drop(e)
		return nil
	}
	c.recent.MoveToFront(e)
	now := time.Now()
	_ = os.Chtimes(c.path(sha), now, now) // only the order after a restart hangs on it
	return f
}

// partial opens what there is of a blob, for reading and appending. The hash is
// locked.
func (c *cache) partial(sha string) (*os.File, error) {
	return os.OpenFile(filepath.Join(c.partials(), sha), os.O_RDWR|os.O_CREATE, 0o600)
}

// add makes a verified part a blob and opens it. The hash is locked.
func (c *cache) add(sha string, partial *os.File) (*os.File, error) {
	info, err := partial.Stat()
	if err != nil {
		return nil, err
	}
	// After a loss of power a file may have its name but not its bytes.
	if err := partial.Sync(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(c.path(sha)), 0o700); err != nil {
		return nil, err
	}
	if err := os.Rename(partial.Name(), c.path(sha)); err != nil {
		return nil, err
	}
	f, err := os.Open(c.path(sha))
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byHash[sha] = c.recent.PushFront(&blob{sha, info.Size()})
	c.total += info.Size()
	c.evict()
	return f, nil
}

func (c *cache) evict() {
	for e := c.recent.Back(); e != nil && (c.total > c.budget || len(c.byHash) > maxBlobs); {
		older := e
		e = e.Prev()
		c.drop(older)
	}
}

// drop removes a blob. One that the disk does not let go stays, and counted.
func (c *cache) drop(e *list.Element) {
	b := blobOf(e)
	if err := os.Remove(c.path(b.sha)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	c.recent.Remove(e)
	delete(c.byHash, b.sha)
	c.total -= b.size
}

func blobOf(e *list.Element) *blob {
	b, _ := e.Value.(*blob) // nothing else is ever put in
	return b
}
