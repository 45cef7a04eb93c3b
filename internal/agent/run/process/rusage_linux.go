package process

import (
	"syscall"

	"github.com/muster-dev/muster"
)

func maxRSS(ru *syscall.Rusage) muster.Size { return muster.Size(ru.Maxrss) << 10 } // told in KiB
