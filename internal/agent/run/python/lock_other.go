//go:build !unix

package python

import (
	"io/fs"
	"os"

	"github.com/muster-dev/muster"
)

// lockFile does nothing: environments are only built on Unix.
func lockFile(*os.File, bool) error { return nil }

// fileUsage returns the size of a file. Its path is its identity.
func fileUsage(path string, info fs.FileInfo) (id any, size muster.Size) {
	return path, muster.Size(info.Size())
}
