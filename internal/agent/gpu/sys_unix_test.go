//go:build unix

package gpu_test

import (
	"syscall"
	"testing"
	"time"
)

func fifo(path string) error { return syscall.Mkfifo(path, 0o600) }

// cpu is what this process has used.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
