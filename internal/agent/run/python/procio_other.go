//go:build !linux

package python

import "github.com/muster-dev/muster"

// bytesWritten is not known here.
func bytesWritten(int) muster.Size { return 0 }
