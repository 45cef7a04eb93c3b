//go:build unix

package sqlite

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// lockFile locks the file at path, creating it if needed, until the file
// is closed or the process ends. It returns errLocked if another process holds the lock.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	// A new process shares its parent's open files until exec, and so a lock that
	// this process has just released.
	for try := 0; errors.Is(err, syscall.EWOULDBLOCK) && try < 20; try++ {
		time.Sleep(10 * time.Millisecond)
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, err
	}
	return f, nil
}
