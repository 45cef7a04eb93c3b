package engine

import (
	"encoding/hex"
	"sync"
	"time"

	"github.com/muster-dev/muster"
)

const (
	// maxTreeFiles bounds the files that checkpoints remembers, of about 60 bytes each; a tree counts as treeCost more.
	maxTreeFiles = 500_000
	treeCost     = 8
	// recheckTree is how long a file that was found is taken to be here.
	recheckTree = 10 * time.Minute
)

// checkpoints remembers the checkpoint of each task that was last found to be here with all its
// files: the next one has most of them, too.
type checkpoints struct {
	mu    sync.Mutex
	whole map[muster.TaskID]*wholeTree
	files int // of all
}

// wholeTree is a tree that is here with all its files. It is not changed.
type wholeTree struct {
	sha256 string
	files  map[[32]byte]struct{}
	looked time.Time // when all of its files were looked up, or all of a tree that it goes back to
}

// cost is what the tree takes of maxTreeFiles.
func (w *wholeTree) cost() int { return len(w.files) + treeCost }

// has reports whether a file with a hash was found.
func (w *wholeTree) has(hash [32]byte) bool {
	if w == nil {
		return false
	}
	_, ok := w.files[hash]
	return ok
}

// of returns the last whole tree of a task; nil if there is none, or if it was looked up
// too long ago.
func (t *checkpoints) of(id muster.TaskID) *wholeTree {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.whole[id]
	if w != nil && time.Since(w.looked) >= recheckTree {
		t.forget(id)
		return nil
	}
	return w
}

// put replaces the last whole tree of a task. Others are forgotten for it, those first
// that are too old.
func (t *checkpoints) put(id muster.TaskID, w *wholeTree) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.whole == nil {
		t.whole = map[muster.TaskID]*wholeTree{}
	}
	t.forget(id)
	if t.files+w.cost() > maxTreeFiles {
		for other, old := range t.whole {
			if time.Since(old.looked) >= recheckTree {
				t.forget(other)
			}
		}
	}
	for other := range t.whole {
		if t.files+w.cost() <= maxTreeFiles {
			break
		}
		t.forget(other)
	}
	t.whole[id] = w
	t.files += w.cost()
}

func (t *checkpoints) forget(id muster.TaskID) {
	if w := t.whole[id]; w != nil {
		t.files -= w.cost()
		delete(t.whole, id)
	}
}

// hashOf is a SHA-256 in hex as bytes.
func hashOf(text string) (hash [32]byte, ok bool) {
	n, err := hex.Decode(hash[:], []byte(text[:min(len(text), 64)]))
	return hash, err == nil && n == len(hash) && len(text) == 64
}
