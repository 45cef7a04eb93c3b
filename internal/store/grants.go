package store

import (
	"context"

	"github.com/muster-dev/muster"
)

// Grantee is a project or a worker that may read a blob.
type Grantee string

// ProjectGrantee returns the grantee for the clients of a project. Clients with a key for all projects upload for the project "".
func ProjectGrantee(project string) Grantee { return Grantee("p:" + project) }

// WorkerGrantee returns the grantee for a worker.
func WorkerGrantee(w muster.WorkerID) Grantee { return Grantee("w:" + string(w)) }

// Blob is a blob and its size.
type Blob struct {
	SHA256 string
	Size   int64
}

// GrantStore stores who may read which blobs: those who uploaded all bytes of them. Commit grants the artifacts of tasks and attempts to
// the projects of their jobs.
type GrantStore interface {
	// GrantBlobs grants blobs[i] to holders[i].
	GrantBlobs(ctx context.Context, holders []Grantee, blobs []Blob) error
	// BlobGrant reports whether a holder may read a blob, and the blob's size from any grant, or -1.
	BlobGrant(ctx context.Context, h Grantee, sha256 string) (size int64, granted bool, err error)
	// Ungranted returns the blobs that a holder may not read, in the given order.
	Ungranted(ctx context.Context, h Grantee, sha256 []string) ([]string, error)
}

// Content is a file that a job's result refers to by its content identifier.
type Content struct {
	CID          string // CIDv0
	Job          muster.JobID
	Name         string // of the artifact
	SHA256       string
	Size         int64
	Verification Verification
}

// ContentQuery selects the files with an identifier.
type ContentQuery struct {
	CID     string  // CIDv0
	Project string  // of their jobs; "" means all
	After   Content // only those after it; the zero value means all
	Limit   int     // at least 1
}

// Verification is whether the server has verified the identifier of a file, which a worker reported.
type Verification int

// The values of Verification.
const (
	Unverified Verification = iota
	Verified
	Mismatch // the file has another identifier
)

// VerificationStore stores results of verification. A result holds for the file in all jobs.
type VerificationStore interface {
	SetVerification(ctx context.Context, c Content, p Verification) error
}

// PinStore stores which files are pinned on an IPFS node. A file that several jobs have is one file.
type PinStore interface {
	// Unpinned lists files that are neither pinned nor refused, by CID and SHA-256, from the one after the given one; Job and Name
	// are of one of its jobs.
	Unpinned(ctx context.Context, after Content, limit int) ([]Content, error)
	SetPin(ctx context.Context, c Content, p PinState) error
}

// PinState is the state of a file on the IPFS node.
type PinState int

// The values of PinState.
const (
	Unpinned PinState = iota
	Pinned
	PinRefused // never to be pinned: the node computes another CID, or the file is missing
)
