package engine

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"

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
		err := s.engine.whole(ctx, c.SHA256)
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

// whole looks whether a tree is here with all its files.
func (e *Engine) whole(ctx context.Context, sha256 string) error {
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
	for i := range tree.Files {
		if f := &tree.Files[i]; f.SHA256 != "" {
			if _, err := e.cfg.Blobs.Stat(ctx, f.SHA256); err != nil {
				return err
			}
		}
	}
	return nil
}
