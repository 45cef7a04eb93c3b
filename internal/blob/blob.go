// Package blob is the contract for bytes addressed by their SHA-256: artifacts,
// project folders, scripts. Package blobtest holds it as tests.
package blob

import (
	"context"
	"io"
)

// Store keeps blobs. A blob is there whole and verified or not at all. All
// methods may be called at the same time, also for the same hash. Hashes are 64
// lower-case hex digits; others are Invalid errors.
type Store interface {
	// Stat returns the size of a blob, or NotFound.
	Stat(ctx context.Context, sha256 string) (int64, error)
	// Open reads a blob, or returns NotFound.
	Open(ctx context.Context, sha256 string) (io.ReadSeekCloser, error)
	// Partial returns how many bytes of an unfinished Put are kept, 0 if none.
	Partial(ctx context.Context, sha256 string) (int64, error)
	// Put writes the bytes from offset on, which must be Partial's answer (else a
	// Conflict). At the end of r the whole is verified: bytes with another hash are dropped with
	// an Invalid error. If r fails, what came is kept for a later Put at Partial.
	// Writing a blob that is there is a success that reads nothing.
	Put(ctx context.Context, sha256 string, offset int64, r io.Reader) error
	// ForOwner returns where one owner puts blobs.
	ForOwner(owner string) Uploader
	// Quarantine takes a blob away whose file, which Open returned as read, turned out to hold other bytes, and keeps that
	// file for an administrator. It reports false and changes nothing if the blob is not there or has another file by
	// now, such as one that was uploaded since. It closes read in any case.
	Quarantine(ctx context.Context, sha256 string, read io.ReadSeekCloser) (bool, error)
	// Delete removes a blob; one that is not there is no error.
	Delete(ctx context.Context, sha256 string) error
}

// Uploader is a Store as one owner puts blobs into it: nobody goes on with the bytes of another's unfinished Put, or waits
// for it. A Put that returned nil proves that the owner had all bytes: it reads and verifies them also if the blob is
// there, and then takes their file in place of the one that is there.
type Uploader interface {
	Partial(ctx context.Context, sha256 string) (int64, error)
	Put(ctx context.Context, sha256 string, offset int64, r io.Reader) error
}
