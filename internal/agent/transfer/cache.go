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

// cache stores verified blobs on disk, least recently used first to be evicted over the budget. An open file outlives its eviction.
type cache struct {
	dir    string
	budget int64

	mu     sync.Mutex
	byHash map[string]*list.Element // of *blob
	recent *list.List               // most recently used first
	total  int64
	locks  map[string]chan struct{} // by hash; see lock
}

type blob struct {
	sha  string
	size int64
}

const (
	maxBlobs   = 50_000         // in the cache
	partialAge = 24 * time.Hour // after which an unfinished download is removed
)

func openCache(dir string, budget int64) (*cache, error) {
	c := &cache{dir: dir, budget: budget, byHash: map[string]*list.Element{}, recent: list.New(), locks: map[string]chan struct{}{}}
	for _, d := range []string{c.blobs(), c.partials()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, muster.Errorf(muster.Invalid, "create the cache folder: %w", err)
		}
	}
	if err := c.load(); err != nil {
		return nil, muster.Errorf(muster.Internal, "read the cache folder %s: %w", dir, err)
	}
	return c, nil
}

func (c *cache) blobs() string    { return filepath.Join(c.dir, "blobs") }
func (c *cache) partials() string { return filepath.Join(c.dir, "partial") }

func (c *cache) path(sha string) string { return filepath.Join(c.blobs(), sha[:2], sha) }

// maxBlobSize is the size of the largest cached blob.
func (c *cache) maxBlobSize() int64 { return c.budget / 2 }

// load reads the cache folder after a start, in the order of last use, and removes old partial downloads.
func (c *cache) load() error {
	type savedBlob struct {
		blob

		used time.Time
	}
	var all []savedBlob
	err := filepath.WalkDir(c.blobs(), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !muster.IsSHA256(d.Name()) {
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
			_ = os.Remove(filepath.Join(c.partials(), p.Name())) // the next start retries
		}
	}
	return nil
}

// lock waits until no other caller holds the lock of a hash.
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

// open returns a blob, nil if it is missing or has another size. A negative size is unknown. The caller holds the hash's lock.
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
		_ = f.Close()
		c.drop(e)
		return nil
	}
	c.recent.MoveToFront(e)
	now := time.Now()
	_ = os.Chtimes(c.path(sha), now, now) // only for the order after a restart
	return f
}

// partial opens the partial download of a blob for reading and appending. The caller holds the hash's lock.
func (c *cache) partial(sha string) (*os.File, error) {
	return os.OpenFile(filepath.Join(c.partials(), sha), os.O_RDWR|os.O_CREATE, 0o600)
}

// add moves a complete, verified download into the cache and opens it. The caller holds the hash's lock.
func (c *cache) add(sha string, partial *os.File) (*os.File, error) {
	info, err := partial.Stat()
	if err != nil {
		return nil, err
	}
	// Without this, a power loss after the rename may leave an empty file.
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

// drop removes a blob. If its file cannot be removed, it stays and keeps counting.
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
	b, _ := e.Value.(*blob) // always a *blob
	return b
}
