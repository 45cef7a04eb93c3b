package store

import (
	"context"

	"github.com/muster-dev/muster"
)

// Holder is who may have a blob: a project or a worker.
type Holder string

// ProjectHolder stands for the clients of a project; those of keys for all projects together upload for the project "".
func ProjectHolder(project string) Holder { return Holder("p:" + project) }

// WorkerHolder stands for a worker.
func WorkerHolder(w muster.WorkerID) Holder { return Holder("w:" + string(w)) }

// Blob is a blob and its size.
type Blob struct {
	SHA256 string
	Size   int64
}

// Grants says who may have which blobs: who uploaded all bytes of them. Commit grants the artifacts of tasks and attempts to
// the projects of their jobs.
type Grants interface {
	// GrantBlobs grants blobs to holders, those with one index to each other.
	GrantBlobs(ctx context.Context, holders []Holder, blobs []Blob) error
	// BlobGrant reports whether a holder may have a blob, and its size as far as any grant says it, else -1.
	BlobGrant(ctx context.Context, h Holder, sha256 string) (size int64, granted bool, err error)
	// Ungranted returns those of the blobs that a holder may not have, in their order.
	Ungranted(ctx context.Context, h Holder, sha256 []string) ([]string, error)
}
