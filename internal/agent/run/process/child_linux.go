package process

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
)

func maxRSS(ru *syscall.Rusage) muster.Size { return muster.Size(ru.Maxrss) << 10 } // told in KiB

// awaitExit blocks until the process is a zombie.
func awaitExit(pid int) {
	for {
		// At another error the caller's wait says what is the matter.
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}
