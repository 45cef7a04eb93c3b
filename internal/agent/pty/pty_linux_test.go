package pty

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A worker in a small container or virtual machine may have no devpts.
func TestMachineWithoutTerminals(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root mounts file systems")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends with its view of the file systems
		if err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("none", "/dev", "tmpfs", 0, "")); err != nil {
			t.Error(err)
		}
		master, slave, err := Open()
		if err == nil {
			_, _ = master.Close(), slave.Close()
		}
		done <- err
	}()
	err := <-done
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "mount devpts on its /dev/pts") {
		t.Errorf("got %v", err)
	}
}

func TestAllTerminalsInUse(t *testing.T) {
	if err := openError(unix.ENOSPC); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "kernel.pty.max") {
		t.Errorf("without free terminals: %v", err)
	}
}
