package sched

import (
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/effect"
)

// BlobRefs lists the stored blobs that an attempt reads.
type BlobRefs struct {
	Attempt muster.AttemptID
	Trees   []string       // hashes of trees; the attempt needs their files, too
	Inputs  []effect.Input // of a stage: shared, not to be changed
}

// BlobRefs returns what the attempts of a worker need, including those just assigned.
func (s *State) BlobRefs(id muster.WorkerID) []BlobRefs {
	w, err := s.worker(id)
	if err != nil {
		return nil
	}
	refs := make([]BlobRefs, 0, len(w.Held))
	for _, t := range w.Held {
		n := BlobRefs{Attempt: t.Attempt(), Inputs: t.Group.Inputs}
		if tree, ok := strings.CutPrefix(t.Group.Spec().Files, "sha256:"); ok {
			n.Trees = append(n.Trees, tree)
		}
		if t.Row.Checkpoint != "" {
			n.Trees = append(n.Trees, t.Row.Checkpoint)
		}
		refs = append(refs, n)
	}
	return refs
}
