//go:build unix && !linux

package kin

import (
	"syscall"

	"github.com/muster-dev/muster"
)

func maxRSS(ru *syscall.Rusage) muster.Size { return muster.Size(ru.Maxrss) } // told in bytes by darwin

// awaitExit returns at once: the caller's wait is enough.
func (Child) awaitExit() {}
