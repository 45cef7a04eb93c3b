//go:build !unix

package kinds

import (
	"io/fs"
	"os"

	"github.com/muster-dev/muster"
)

const nonblocking = 0

// lockExclusively reports that a process may use the file: there are no locks.
func lockExclusively(*os.File) bool { return false }

// diskUsage returns the size of a file.
func diskUsage(info fs.FileInfo) muster.Size { return muster.Size(info.Size()) }
