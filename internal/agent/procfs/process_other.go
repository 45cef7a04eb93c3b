//go:build !linux

package procfs

import "github.com/muster-dev/muster"

// IO returns -1: the bytes are unknown.
func IO(int) (read, written muster.Size) { return -1, -1 }
