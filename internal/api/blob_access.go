package api

import (
	"context"
	"errors"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/store"
)

// BlobNeeds says which blobs attempts need.
type BlobNeeds interface {
	// NeedsBlob reports whether an attempt that the worker holds now needs a blob, and how big that is, -1 if it is not known.
	// A no may be two seconds old if stale is true, and takes no time then.
	NeedsBlob(ctx context.Context, w muster.WorkerID, sha256 string, stale bool) (size int64, ok bool, err error)
	// Files returns the files of a tree that is here. Its errors are NotFound, and Invalid or TooLarge for blobs that are no trees.
	Files(ctx context.Context, tree string) ([]store.Blob, error)
}

// holderOf returns for whom a key uploads.
func holderOf(p auth.Principal) store.Grantee {
	if p.Role == auth.Worker {
		return store.WorkerGrantee(p.Worker)
	}
	return store.ProjectGrantee(p.Project)
}

// canReadBlob reports whether the caller may have a blob, and its size as far as that is known, else -1: keys for all projects
// may have each, those of a project what was uploaded for it or made by its jobs, and workers what they uploaded and what
// the attempts need that they hold now.
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

// authorizeBlob returns the size of a blob that the caller may have, as far as it is known. One that he may not have looks as
// if it were not there.
func (s *server) authorizeBlob(ctx context.Context, sha256 string) (size int64, err error) {
	size, ok, err := s.canReadBlob(ctx, sha256)
	if err == nil && !ok {
		err = blobNotFound(sha256)
	}
	return size, err
}

// uploadedSize returns the size of a blob that is here and that the caller need not send: it may have it already. A
// worker whose attempts need the blob is granted it, so that it may name the blob in its reports, also for another job.
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

// statBlob returns the size of a blob's file, or NotFound. A file of another size than it should have, and one whose last read
// failed, is read, and set aside if it is damaged.
func (s *server) statBlob(ctx context.Context, sha256 string, size int64) (int64, error) {
	actual, err := s.Blobs.Stat(ctx, sha256)
	if err != nil || (size < 0 || actual == size) && !s.blobChecker.Suspect(sha256) {
		return actual, err
	}
	return actual, s.verifyBlob(ctx, sha256)
}

// statOrMissing does the same for an uploader: a file that cannot be read is as good as none, and the upload replaces it.
func (s *server) statOrMissing(ctx context.Context, sha256 string, size int64) (int64, error) {
	actual, err := s.statBlob(ctx, sha256, size)
	if errors.Is(err, errUnreadable) {
		err = blobNotFound(sha256)
	}
	return actual, err
}

var errUnreadable = errors.New("the file cannot be read")

// verifyBlob reads the file of a blob that is not as it should be, and returns an error unless it is intact all the same.
func (s *server) verifyBlob(ctx context.Context, sha256 string) error {
	verdict, err := s.blobChecker.Check(ctx, sha256, "")
	switch {
	case err != nil:
		return err
	case verdict == blob.Damaged:
		return muster.Errorf(muster.NotFound, "the file of blob %s was damaged and is set aside: it has to be uploaded again", sha256)
	case verdict == blob.Unreadable:
		return muster.Errorf(muster.Unavailable, "the server cannot read the file of blob %s at the moment: try again in a minute, or upload the blob again: %w", sha256, errUnreadable)
	case verdict == blob.Unchecked:
		return muster.Errorf(muster.Unavailable, "blob %s is not as it should be, and too many others are being checked: try again later", sha256)
	}
	return nil
}
