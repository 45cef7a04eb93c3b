//go:build !unix

package execute

import (
	"context"
	"time"
)

// watchSize calls f when the size of the terminal has changed, until ctx ends. This system does not notify of it.
func watchSize(ctx context.Context, f func()) {
	last := terminalSize()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if now := terminalSize(); now != last {
			last = now
			f()
		}
	}
}
