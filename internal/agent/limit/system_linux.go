package limit

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/internal/agent/run"
)

// reach checks that a user can go into a folder, by doing so.
func reach(u *run.User, dir string) error { return try(&run.Confine{User: u}, dir) }

// tryNetwork says why tasks cannot have a network of their own, nil if they can.
func tryNetwork() error { return try(&run.Confine{NoNet: true}, "/") }

// try starts a program that does nothing.
func try(c *run.Confine, dir string) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }()
	pid, fd, err := Spawn(c, Program{Path: "/bin/sh", Argv: []string{"sh", "-c", ":"}, Dir: dir, Stdin: null, Stdout: null, Stderr: null})
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.WaitStatus
	for {
		if _, err = unix.Wait4(pid, &st, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil && st.ExitStatus() != 0 {
		err = fmt.Errorf("sh -c : exits with status %d", st.ExitStatus())
	}
	return err
}
