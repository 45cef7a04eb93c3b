//go:build unix && !linux

package process

import (
	"syscall"

	"github.com/muster-dev/muster"
)

func maxRSS(ru *syscall.Rusage) muster.Size { return muster.Size(ru.Maxrss) } // told in bytes by darwin

// withHandle does nothing: there are no handles here.
func withHandle(*syscall.SysProcAttr) *int { return new(int) }

// awaitExit returns at once: the caller's wait is enough.
func (child) awaitExit() {}
