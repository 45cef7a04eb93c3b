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

// killGroup kills only the process itself.
func killGroup(leader int) {
	if p, err := os.FindProcess(leader); err == nil {
		_ = p.Kill() // it may have exited
	}
}

// reclaim does nothing: builds run as the worker's user.
func reclaim(string) error { return nil }
