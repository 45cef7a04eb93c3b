package container

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// signalIn sends a signal to a process of a container on this machine.
func signalIn(container string, pid int, name string) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	defer func() { _ = unix.Close(fd) }()
	// The number may be that of a process on another machine, or have been reused before it was opened.
	if groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)); err != nil || !strings.Contains(string(groups), container) {
		return fmt.Errorf("process %d is not in the container on this machine", pid)
	}
	return os.NewSyscallError("pidfd_send_signal", unix.PidfdSendSignal(fd, unix.SignalNum(name), nil, 0))
}
