package engine

import (
	"context"
	"log/slog"
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
