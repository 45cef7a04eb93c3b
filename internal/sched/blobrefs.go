package sched

import (
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/effect"
)

// BlobRefs is what an attempt reads of what the server keeps.
type BlobRefs struct {
	Attempt muster.AttemptID
	Trees   []string       // hashes of trees, whose files it needs, too
	Inputs  []effect.Input // of a stage: shared, not to be changed
}

// BlobRefs returns what the attempts need that a worker holds now, or is to hold once it has heard of them.
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
