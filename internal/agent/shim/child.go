package shim

import (
	"time"

	"github.com/muster-dev/muster"
)

// child is a started main process.
type child struct {
	pid    int
	handle int // of the system for its end, -1 for none
}

// ended is how a main process ended.
type ended struct {
	code   int    // 128+n for signal n
	signal string // its name, "" for none
	killed bool   // by SIGKILL
	cpu    time.Duration
	maxRSS muster.Size
}
