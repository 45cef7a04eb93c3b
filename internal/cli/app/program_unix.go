//go:build unix

package app

import (
	"os"
	"os/signal"
	"syscall"
)

// NotifyUpgrade returns a channel that receives SIGUSR2, which requests an upgrade in place.
func NotifyUpgrade() (requests <-chan os.Signal, release func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR2)
	return c, func() { signal.Stop(c) }
}

func execProgram(path string, args, env []string) error { return syscall.Exec(path, args, env) }
