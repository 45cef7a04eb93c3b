//go:build unix

package egress

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// replaceStdin makes a file the standard input of this process.
func replaceStdin(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return unix.Dup2(int(f.Fd()), 0)
}

// execute replaces this program. It returns only if that fails.
func execute(args []string) (status int, err error) {
	path, err := exec.LookPath(args[0])
	if err == nil {
		err = syscall.Exec(path, args, os.Environ()) //nolint:gosec // the program that the task asks for
	}
	status = exitCannotExec
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		status = exitNotFound
	}
	// The caller adds the name.
	if e, ok := errors.AsType[*exec.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return status, err
}
