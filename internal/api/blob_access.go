package api

import (
	"context"
	"errors"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/store"
)

// BlobNeeds reports which blobs attempts need.
type BlobNeeds interface {
	// NeedsBlob reports whether a current attempt of the worker needs a blob, and the blob's size, -1 if unknown. If stale is
	// set, a negative answer may be two seconds old, and is fast.
	NeedsBlob(ctx context.Context, w muster.WorkerID, sha256 string, stale bool) (size int64, ok bool, err error)
	// Files returns the files of a tree. Errors are NotFound, and Invalid or TooLarge for blobs that are not trees.
	Files(ctx context.Context, tree string) ([]store.Blob, error)
}

// holderOf returns the grantee of a key's uploads.
func holderOf(p auth.Principal) store.Grantee {
	if p.Role == auth.Worker {
		return store.WorkerGrantee(p.Worker)
	}
	return store.ProjectGrantee(p.Project)
}

// canReadBlob reports whether the caller may read a blob, and its size, -1 if unknown. Keys for all projects may read every
// blob, keys of a project those uploaded for it or created by its jobs, and workers those that they uploaded and those that
// their current attempts need.
func (s *server) canReadBlob(ctx context.Context, sha256 string) (size int64, ok bool, err error) {
	p := principalOf(ctx)
	size, ok, err = s.Grants.BlobGrant(ctx, holderOf(p), sha256)
	switch {
	case err != nil || ok:
	case p.Role == auth.Worker:
		var reported int64
		if reported, ok, err = s.BlobNeeds.NeedsBlob(ctx, p.Worker, sha256, false); size < 0 {
			size = reported
		}
	default:
		ok = p.Project == ""
	}
	return size, ok, err
}

// authorizeBlob returns the size of a blob that the caller may read, -1 if unknown. For other blobs it returns NotFound.
func (s *server) authorizeBlob(ctx context.Context, sha256 string) (size int64, err error) {
	size, ok, err := s.canReadBlob(ctx, sha256)
	if err == nil && !ok {
		err = blobNotFound(sha256)
	}
	return size, err
}

// uploadedSize returns the size of a blob that the caller need not upload, because the server has it and the caller may read it.
// It grants a needed blob to a worker, so that the worker may refer to it in its reports, also for another job.
func (s *server) uploadedSize(ctx context.Context, sha256 string) (int64, error) {
	p := principalOf(ctx)
	if p.Role != auth.Worker {
		size, err := s.authorizeBlob(ctx, sha256)
		if err != nil {
			return 0, err
		}
		return s.statOrMissing(ctx, sha256, size)
	}
	size, granted, err := s.Grants.BlobGrant(ctx, holderOf(p), sha256)
	if err != nil {
		return 0, err
	}
	if !granted {
		reported, needed, err := s.BlobNeeds.NeedsBlob(ctx, p.Worker, sha256, true)
		if err != nil {
			return 0, err
		}
		if !needed {
			return 0, blobNotFound(sha256)
		}
		size = reported
	}
	if size, err = s.statOrMissing(ctx, sha256, size); err == nil && !granted {
		err = s.blobGranter.Grant(ctx, holderOf(p), store.Blob{SHA256: sha256, Size: size})
	}
	return size, err
}

func blobNotFound(sha256 string) error {
	return muster.Errorf(muster.NotFound, "there is no blob %s", sha256)
}

// statBlob returns the size of a blob's file, or NotFound. It verifies a file of the wrong size and one whose last read
// failed, and moves it aside if it is damaged.
func (s *server) statBlob(ctx context.Context, sha256 string, size int64) (int64, error) {
	actual, err := s.Blobs.Stat(ctx, sha256)
	if err != nil || (size < 0 || actual == size) && !s.blobChecker.Suspect(sha256) {
		return actual, err
	}
	return actual, s.verifyBlob(ctx, sha256)
}

// statOrMissing does the same for an uploader: an unreadable file is NotFound, so that the upload replaces it.
func (s *server) statOrMissing(ctx context.Context, sha256 string, size int64) (int64, error) {
	actual, err := s.statBlob(ctx, sha256, size)
	if errors.Is(err, errUnreadable) {
		err = blobNotFound(sha256)
	}
	return actual, err
}

var errUnreadable = errors.New("the file cannot be read")

// verifyBlob verifies the file of a suspect blob, and returns an error unless it is intact.
func (s *server) verifyBlob(ctx context.Context, sha256 string) error {
	verdict, err := s.blobChecker.Check(ctx, sha256, "")
	switch {
	case err != nil:
		return err
	case verdict == blob.Damaged:
		return muster.Errorf(muster.NotFound, "the file of blob %s was damaged and has been moved aside: upload it again", sha256)
	case verdict == blob.Unreadable:
		return muster.Errorf(muster.Unavailable, "the server cannot read the file of blob %s now: try again in a minute, or upload the blob again: %w", sha256, errUnreadable)
	case verdict == blob.Unchecked:
		return muster.Errorf(muster.Unavailable, "blob %s may be damaged, and too many other blobs are being verified: try again later", sha256)
	}
	return nil
}
