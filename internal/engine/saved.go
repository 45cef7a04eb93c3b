package engine

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// maxTree is the most bytes of a checkpoint's tree.
const maxTree = 64 << 20

// checkSaved returns those of the checkpoints that a worker says it saved which are
// here with all their files: an attempt that goes on from one must find it. It
// reads on the session's own goroutine, so that only this worker waits.
func (s *session) checkSaved(ctx context.Context, list []link.Saved) ([]link.Saved, error) {
	var here []link.Saved
	for _, c := range list {
		err := s.engine.whole(ctx, c.Attempt.Task, c.SHA256)
		if err == nil {
			here = append(here, c)
			continue
		}
		switch muster.CodeOf(err) {
		case muster.NotFound, muster.Invalid, muster.TooLarge:
			s.engine.cfg.Log.Warn("a worker says that it saved a checkpoint which is not here; the one before stays",
				slog.String("worker", string(s.worker)), slog.String("attempt", c.Attempt.String()), slog.Any("error", err))
		default:
			return nil, err
		}
	}
	return here, nil
}

// whole looks whether a tree is here with all its files. Those that the last tree of the
// task has were looked up for it.
func (e *Engine) whole(ctx context.Context, task muster.TaskID, sha256 string) error {
	known := e.trees.of(task)
	if known != nil && known.sha256 == sha256 {
		return nil
	}
	r, err := e.cfg.Blobs.Open(ctx, sha256)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(io.LimitReader(r, maxTree+1))
	_ = r.Close() // it was only read
	if err != nil {
		return err
	}
	if len(b) > maxTree {
		return muster.Errorf(muster.TooLarge, "the list of the checkpoint's files takes more than %s", muster.Size(maxTree))
	}
	var tree muster.Tree
	if err := json.Unmarshal(b, &tree); err != nil {
		return muster.Errorf(muster.Invalid, "blob %s is no list of files: %w", sha256, err)
	}
	found := &wholeTree{sha256: sha256, files: make(map[[32]byte]struct{}, len(tree.Files)), looked: time.Now()}
	if known != nil {
		found.looked = known.looked
	}
	for i := range tree.Files {
		f := &tree.Files[i]
		if f.SHA256 == "" {
			continue
		}
		hash, ok := hashOf(f.SHA256)
		if !ok || !known.has(hash) && !found.has(hash) {
			if _, err := e.cfg.Blobs.Stat(ctx, f.SHA256); err != nil {
				return err
			}
		}
		found.files[hash] = struct{}{}
	}
	e.trees.put(task, found)
	return nil
}
