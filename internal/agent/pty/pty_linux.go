package pty

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Open opens a pseudo terminal: the master, whose reads and writes use the runtime's poller, and the end for a program.
func Open() (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, openError(err)
	}
	fail := func(call string, err error) (*os.File, *os.File, error) {
		_ = unix.Close(fd)
		return nil, nil, os.NewSyscallError(call, err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return fail("ioctl TIOCSPTLCK", err)
	}
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return fail("ioctl TIOCGPTPEER", errno)
	}
	return os.NewFile(uintptr(fd), "/dev/ptmx"), os.NewFile(peer, "terminal"), nil
}

// openError explains the error of a machine that has no pseudo terminals, or no more of them.
func openError(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO): // the kernel looks for the file system, too
		return fmt.Errorf("the machine has no pseudo terminals (open /dev/ptmx: %w): mount devpts on its /dev/pts", err)
	case errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("all pseudo terminals of the machine are in use (open /dev/ptmx: %w): raise its sysctl kernel.pty.max", err)
	}
	return os.NewSyscallError("open /dev/ptmx", err)
}

// Resize sets the size in characters; 0 rows or columns leave it as it is.
func Resize(master *os.File, rows, columns int) error {
	if rows <= 0 || columns <= 0 {
		return nil
	}
	conn, err := master.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(columns)})
	})
	if err == nil {
		err = failed
	}
	return os.NewSyscallError("ioctl TIOCSWINSZ", err)
}
