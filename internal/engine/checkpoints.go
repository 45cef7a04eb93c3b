package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// checkSaved returns those of the checkpoints that a worker says it saved which are
// here with all their files: an attempt that goes on from one must find it. It
// reads on the session's own goroutine, so that only this worker waits.
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
			s.warn(ctx, c.Attempt, "a worker says that it saved a checkpoint which is not here; the one before stays", slog.Any("error", err))
		default:
			return nil, err
		}
	}
	return complete, nil
}

// verifyTree looks whether a tree is here with all its files, and whether the worker may name them for the task's job.
// Files of the task's last tree were looked up for that.
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
		hash, ok := hashOf(files[i].SHA256)
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
