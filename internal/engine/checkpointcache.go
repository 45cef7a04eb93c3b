package engine

import (
	"encoding/hex"
	"sync"
	"time"

	"github.com/muster-dev/muster"
)

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

// hashOf is a SHA-256 in hex as bytes.
func hashOf(text string) (hash [32]byte, ok bool) {
	n, err := hex.Decode(hash[:], []byte(text[:min(len(text), 64)]))
	return hash, err == nil && n == len(hash) && len(text) == 64
}
