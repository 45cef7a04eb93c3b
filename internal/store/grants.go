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
