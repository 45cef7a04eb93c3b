//go:build !unix

package runtimes

import (
	"io/fs"
	"os"

	"github.com/muster-dev/muster"
)

// lockFile has no meaning where environments are not made, which uv does for Unix here.
func lockFile(*os.File, bool) error { return nil }

// fileUsage knows no names.
func fileUsage(info fs.FileInfo) (id fileID, size muster.Size, links uint64) {
	return id, muster.Size(info.Size()), 1
}
