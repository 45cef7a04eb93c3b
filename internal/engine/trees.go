package engine

import (
	"context"
	hash "crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

const (
	maxTree        = 64 << 20 // bytes of a tree's JSON
	maxCachedFiles = 200_000  // files of all cached trees
)

// treeCache caches the files of trees, which are immutable.
type treeCache struct {
	blobs Blobs

	mu    sync.Mutex // also held while a tree is read, to limit memory
	cache map[string][]store.Blob
	files int
}

// get returns the files of a tree. Its errors are NotFound, and Invalid or TooLarge for blobs that are not trees.
func (t *treeCache) get(ctx context.Context, sha256 string) ([]store.Blob, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if files, ok := t.cache[sha256]; ok {
		return files, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	files, err := t.read(ctx, sha256)
	if err != nil {
		return nil, err
	}
	if t.files += len(files) + 1; t.files > maxCachedFiles {
		clear(t.cache)
		t.files = len(files) + 1
	}
	t.cache[sha256] = files
	return files, nil
}

// load returns the verified bytes of a tree.
func (t *treeCache) load(ctx context.Context, sha256 string) ([]byte, error) {
	r, err := t.blobs.Open(ctx, sha256)
	if err != nil {
		return nil, err
	}
	defer r.Close() // it is only read
	b, err := io.ReadAll(io.LimitReader(r, maxTree+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxTree {
		return nil, muster.Errorf(muster.TooLarge, "the list of files %s is larger than %s", sha256, muster.Size(maxTree))
	}
	if sum := hash.Sum256(b); hex.EncodeToString(sum[:]) == sha256 {
		return b, nil
	}
	quarantined, err := t.blobs.Quarantine(ctx, sha256, r)
	if err != nil {
		return nil, err
	}
	if !quarantined {
		return nil, muster.Errorf(muster.Unavailable, "the file of blob %s was replaced while it was read: try again", sha256)
	}
	return nil, muster.Errorf(muster.NotFound, "blob %s was corrupt and is quarantined", sha256)
}

func (t *treeCache) read(ctx context.Context, sha256 string) ([]store.Blob, error) {
	b, err := t.load(ctx, sha256)
	if err != nil {
		return nil, err
	}
	var tree muster.Tree
	if err := json.Unmarshal(b, &tree); err != nil {
		return nil, muster.Errorf(muster.Invalid, "blob %s is not a list of files: %w", sha256, err)
	}
	var files []store.Blob
	for i := range tree.Files {
		if f := &tree.Files[i]; f.SHA256 != "" {
			files = append(files, store.Blob{SHA256: f.SHA256, Size: f.Size})
		}
	}
	return files, nil
}

// Files returns the files of a stored tree. Its errors are NotFound, and Invalid or TooLarge for blobs that are not trees.
func (e *Engine) Files(ctx context.Context, tree string) ([]store.Blob, error) {
	return e.trees.get(ctx, tree)
}
