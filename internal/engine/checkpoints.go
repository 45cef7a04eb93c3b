package engine

import (
	"context"
	"encoding/hex"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
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
	known := e.checkpoints.get(task)
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
		if _, err := e.cfg.Blobs.Stat(ctx, name); err != nil {
			return err
		}
	}
	unauthorized, err := s.unauthorizedBlobs(ctx, task.Job, names)
	if err == nil && len(unauthorized) > 0 {
		err = muster.Errorf(muster.Forbidden, "blob %s was not uploaded by this worker", unauthorized[0])
	}
	if err == nil {
		e.checkpoints.put(task, found)
	}
	return err
}

const (
	// maxCheckpointFiles limits the files in the cache, of about 60 bytes each; a tree counts as treeCost files.
	maxCheckpointFiles = 500_000
	treeCost           = 8
	// recheckTree is how long a file that was found is assumed to exist.
	recheckTree = 10 * time.Minute
)

// checkpointCache caches the last complete checkpoint of each task: the next one shares most of its
// files.
type checkpointCache struct {
	mu     sync.Mutex
	byTask map[muster.TaskID]*completeTree
	files  int // of all
}

// completeTree is a tree that is stored with all its files. It is immutable.
type completeTree struct {
	sha256    string
	files     map[[32]byte]struct{}
	checkedAt time.Time // when all files, of this tree or of one that it is based on, were looked up
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

// get returns the last complete tree of a task, or nil if there is none or it is too old.
func (t *checkpointCache) get(id muster.TaskID) *completeTree {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.byTask[id]
	if w != nil && time.Since(w.checkedAt) >= recheckTree {
		t.remove(id)
		return nil
	}
	return w
}

// put replaces the last complete tree of a task. It evicts others if necessary, the ones that
// are too old first.
func (t *checkpointCache) put(id muster.TaskID, w *completeTree) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byTask == nil {
		t.byTask = map[muster.TaskID]*completeTree{}
	}
	t.remove(id)
	if t.files+w.cost() > maxCheckpointFiles {
		for other, old := range t.byTask {
			if time.Since(old.checkedAt) >= recheckTree {
				t.remove(other)
			}
		}
	}
	for other := range t.byTask {
		if t.files+w.cost() <= maxCheckpointFiles {
			break
		}
		t.remove(other)
	}
	t.byTask[id] = w
	t.files += w.cost()
}

func (t *checkpointCache) remove(id muster.TaskID) {
	if w := t.byTask[id]; w != nil {
		t.files -= w.cost()
		delete(t.byTask, id)
	}
}

// parseHash parses a SHA-256 in 64 lower-case hex digits.
func parseHash(text string) (hash [32]byte, ok bool) {
	if len(text) != 2*len(hash) || strings.ToLower(text) != text {
		return hash, false
	}
	_, err := hex.Decode(hash[:], []byte(text))
	return hash, err == nil
}
