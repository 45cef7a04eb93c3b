package store

import (
	"context"

	"github.com/muster-dev/muster"
)

// DatabaseInfo describes a database as of its last commit.
type DatabaseInfo struct {
	ID      string       // random; it changes when missing commits are accepted
	Schema  int64        // version of the schema
	NextJob muster.JobID // the number of the next job
	Bytes   int64        // size of the file
}

// Snapshotter copies the database while others read and write.
type Snapshotter interface {
	// Snapshot writes the database as of one commit to the new file at path, with mode 0600, and syncs it. If it fails, there is no
	// file. It takes as long again as the copying, because it pauses half of the time. It is safe for concurrent use.
	Snapshot(ctx context.Context, path string) (DatabaseInfo, error)
}
