package engine

import (
	"context"
	hash "crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/lru"
	"github.com/muster-dev/muster/internal/store"
)

// checkSaved returns the reported checkpoints that are stored with all their files: a later
// attempt must find them. It reads on the session's own goroutine, so that only this worker
// waits.
func (s *session) checkSaved(ctx context.Context, list []link.Saved) ([]link.Saved, error) {
	var complete []link.Saved
	for _, c := range list {
		err := s.verifyTree(ctx, c.Attempt.Task, c.SHA256)
		if err == nil {
			complete = append(complete, c)
			continue
		}
		switch muster.CodeOf(err) {
		case muster.NotFound, muster.Invalid, muster.TooLarge, muster.Forbidden:
			s.warn(ctx, c.Attempt, "worker reported a checkpoint that is not stored, keeping the previous one", slog.Any("error", err))
		default:
			return nil, err
		}
	}
	return complete, nil
}

// verifyTree checks that a tree is stored with all its files, and that the worker may name them for the task's job. It
// does not check files of the task's last tree again.
func (s *session) verifyTree(ctx context.Context, task muster.TaskID, sha256 string) error {
	e := s.engine
	known := e.lastTree(task)
	if known != nil && known.sha256 == sha256 {
		return nil
	}
	files, err := e.trees.get(ctx, sha256)
	if err != nil {
		return err
	}
	found := &completeTree{sha256: sha256, files: make(map[[32]byte]struct{}, len(files)), checkedAt: time.Now()}
	if known != nil {
		found.checkedAt = known.checkedAt
	}
	names := []string{sha256}
	for i := range files {
		hash, ok := parseHash(files[i].SHA256)
		if !ok || !known.contains(hash) && !found.contains(hash) {
			names = append(names, files[i].SHA256)
		}
		found.files[hash] = struct{}{}
	}
	for _, name := range names {
		if _, err := e.cfg.Blobs.Touch(ctx, name); err != nil {
			return err
		}
	}
	unauthorized, err := s.unauthorizedBlobs(ctx, task.Job, names)
	if err == nil && len(unauthorized) > 0 {
		err = muster.Errorf(muster.Forbidden, "blob %s was not uploaded by this worker", unauthorized[0])
	}
	if err == nil {
		e.checkpoints.Put(task, found)
	}
	return err
}

const (
	// maxCheckpointFiles limits the files in the cache, of about 60 bytes each; a tree counts as treeCost files.
	maxCheckpointFiles = 500_000
	treeCost           = 8
	// recheckTree is how long a file that was found is assumed to exist. It must be much less than retention.MinGrace.
	recheckTree = 10 * time.Minute
)

// completeTree is a tree that is stored with all its files. It is immutable.
type completeTree struct {
	sha256    string
	files     map[[32]byte]struct{}
	checkedAt time.Time // when all files, of this tree or of one that it is based on, were looked up
}

// lastTree returns the last complete tree of a task, with which the next one shares most of its files, or nil if there is none or it is too old.
func (e *Engine) lastTree(task muster.TaskID) *completeTree {
	tree, ok := e.checkpoints.Get(task)
	if ok && time.Since(tree.checkedAt) >= recheckTree {
		e.checkpoints.Remove(task)
		return nil
	}
	return tree
}

// cost is the tree's part of maxCheckpointFiles.
func (w *completeTree) cost() int { return len(w.files) + treeCost }

// contains reports whether the tree has a file with a hash. The tree may be nil.
func (w *completeTree) contains(hash [32]byte) bool {
	if w == nil {
		return false
	}
	_, ok := w.files[hash]
	return ok
}

// parseHash parses a SHA-256 in 64 lower-case hex digits.
func parseHash(text string) (hash [32]byte, ok bool) {
	if len(text) != 2*len(hash) || strings.ToLower(text) != text {
		return hash, false
	}
	_, err := hex.Decode(hash[:], []byte(text))
	return hash, err == nil
}

const (
	maxTree        = 64 << 20 // bytes of a tree's JSON
	maxCachedFiles = 200_000  // files of all cached trees
)

// treeCache caches the files of trees, which are immutable.
type treeCache struct {
	blobs Blobs

	mu    sync.Mutex // held while a tree is read, to limit memory
	files *lru.Cache[string, []store.Blob]
}

func newTreeCache(blobs Blobs) treeCache {
	return treeCache{blobs: blobs, files: lru.New[string](maxCachedFiles, func(files []store.Blob) int { return len(files) + 1 })}
}

// get returns the files of a tree. Its errors are NotFound, and Invalid or TooLarge for blobs that are not trees.
func (t *treeCache) get(ctx context.Context, sha256 string) ([]store.Blob, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if files, ok := t.files.Get(sha256); ok {
		return files, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	files, err := t.read(ctx, sha256)
	if err == nil {
		t.files.Put(sha256, files)
	}
	return files, err
}

// getOnce is get without caching, for the sweep, which reads all trees: it would replace those that workers need.
func (t *treeCache) getOnce(ctx context.Context, sha256 string) ([]store.Blob, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if files, ok := t.files.Get(sha256); ok {
		return files, nil
	}
	return t.read(ctx, sha256)
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

// Files returns the files of a stored tree, for a sweep. Its errors are NotFound, and Invalid or TooLarge for blobs that are not trees.
func (e *Engine) Files(ctx context.Context, tree string) ([]store.Blob, error) {
	return e.trees.getOnce(ctx, tree)
}
