//go:build unix

package sqlite

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// lockFile takes the lock of the file at path, making it if needed, until the file
// is closed or the process ends in whatever way. It returns errLocked if another
// holds it.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	// A process that is being started shares the open files of its parent for a
	// moment, and so the lock that this one has just given back.
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
