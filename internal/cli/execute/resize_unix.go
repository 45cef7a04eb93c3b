//go:build unix

package execute

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// watchSize calls f when the size of the terminal has changed, until ctx ends.
func watchSize(ctx context.Context, f func()) {
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGWINCH)
	defer signal.Stop(changes)
	for {
		select {
		case <-changes:
			f()
		case <-ctx.Done():
			return
		}
	}
}
