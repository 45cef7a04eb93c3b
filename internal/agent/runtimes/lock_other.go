//go:build !unix

package runtimes

import (
	"io/fs"
	"os"

	"github.com/muster-dev/muster"
)

// lockFile does nothing: environments are only built on Unix.
func lockFile(*os.File, bool) error { return nil }

// fileUsage returns the size of a file, without links.
func fileUsage(info fs.FileInfo) (id fileID, size muster.Size, links uint64) {
	return id, muster.Size(info.Size()), 1
}
