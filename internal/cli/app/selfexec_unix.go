//go:build unix

package app

import (
	"os"
	"os/signal"
	"syscall"
)

// NotifyUpgrade returns a channel that gets a value when the program is asked by SIGUSR2
// to go on as what its file has become.
func NotifyUpgrade() (requests <-chan os.Signal, release func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR2)
	return c, func() { signal.Stop(c) }
}

// execProgram replaces this process by a program.
func execProgram(path string, args, env []string) error { return syscall.Exec(path, args, env) }
