package store

import (
	"context"

	"github.com/muster-dev/muster"
)

// Grantee is who may have a blob: a project or a worker.
type Grantee string

// ProjectGrantee stands for the clients of a project; those of keys for all projects together upload for the project "".
func ProjectGrantee(project string) Grantee { return Grantee("p:" + project) }

// WorkerGrantee stands for a worker.
func WorkerGrantee(w muster.WorkerID) Grantee { return Grantee("w:" + string(w)) }

// Blob is a blob and its size.
type Blob struct {
	SHA256 string
	Size   int64
}

// GrantStore says who may have which blobs: who uploaded all bytes of them. Commit grants the artifacts of tasks and attempts to
// the projects of their jobs.
type GrantStore interface {
	// GrantBlobs grants blobs to holders, those with one index to each other.
	GrantBlobs(ctx context.Context, holders []Grantee, blobs []Blob) error
	// BlobGrant reports whether a holder may have a blob, and its size as far as any grant says it, else -1.
	BlobGrant(ctx context.Context, h Grantee, sha256 string) (size int64, granted bool, err error)
	// Ungranted returns those of the blobs that a holder may not have, in their order.
	Ungranted(ctx context.Context, h Grantee, sha256 []string) ([]string, error)
}
