// Package blob stores bytes addressed by their SHA-256: artifacts,
// project directories, scripts. Package blobtest tests its contract.
package blob

import (
	"context"
	"io"

	"github.com/muster-dev/muster"
)

// checkHash returns an Invalid error unless s is 64 lower-case hex digits.
func checkHash(s string) error {
	if !muster.IsSHA256(s) {
		return muster.Errorf(muster.Invalid, "%.80q is not a SHA-256: write 64 lower-case hex digits", s)
	}
	return nil
}

// Store stores blobs. Every blob is complete and verified. All
// methods may be called at the same time, also for the same hash. Hashes are 64
// lower-case hex digits; for others the methods return an Invalid error.
type Store interface {
	// Stat returns the size of a blob, or NotFound.
	Stat(ctx context.Context, sha256 string) (int64, error)
	// Open reads a blob, or returns NotFound.
	Open(ctx context.Context, sha256 string) (io.ReadSeekCloser, error)
	// Partial returns how many bytes of an unfinished Put are stored.
	Partial(ctx context.Context, sha256 string) (int64, error)
	// Put writes the bytes from offset on, which must equal the result of Partial, or the error is a
	// Conflict. At the end of r it verifies all bytes: if they have another hash, it drops them and returns
	// an Invalid error. If r fails, the received bytes are kept for a later Put at Partial.
	// If the blob exists, Put touches it and returns nil without reading.
	Put(ctx context.Context, sha256 string, offset int64, r io.Reader) error
	// ForOwner returns the Uploader of one owner.
	ForOwner(owner string) Uploader
	// Quarantine removes a blob whose file has other bytes, and keeps the file for an administrator. Open returned
	// that file as read. It returns false and changes nothing if the blob does not exist or has another file,
	// such as one that was uploaded since. It always closes read.
	Quarantine(ctx context.Context, sha256 string, read io.ReadSeekCloser) (bool, error)
	// Touch returns the size of a blob, or NotFound, and postpones the removal of a blob that nothing refers to. Anything that tells a client
	// that the blob exists, or is about to refer to it, must touch it.
	Touch(ctx context.Context, sha256 string) (int64, error)
}

// Uploader puts blobs of one owner into a Store. It does not continue, or wait for, the unfinished Put of another owner.
// A Put that returned nil proves that the owner has all bytes: it reads and verifies them even if the blob
// exists, and then replaces the blob's file.
type Uploader interface {
	Partial(ctx context.Context, sha256 string) (int64, error)
	Put(ctx context.Context, sha256 string, offset int64, r io.Reader) error
}
