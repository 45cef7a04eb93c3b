package doctor

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// lockHolder returns the process that has locked a file, 0 if it is unknown, such as in another container. See proc_locks(5).
func (c *Config) lockHolder(path string) int {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	place := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for range 3 { // a read is not atomic, and may miss one while others change
		for line := range strings.Lines(c.readText("/proc/locks")) {
			// 1: FLOCK  ADVISORY  WRITE 708 08:01:1234 0 EOF
			if f := strings.Fields(line); len(f) > 5 && f[1] == "FLOCK" && f[5] == place {
				if pid, err := strconv.Atoi(f[4]); err == nil && pid > 0 {
					return pid
				}
			}
		}
	}
	return 0
}

// exeReplaced reports whether the executable of a process was replaced or removed.
func (c *Config) exeReplaced(pid int) bool {
	exe, err := os.Readlink(c.hostPath("/proc/" + strconv.Itoa(pid) + "/exe"))
	return err == nil && strings.HasSuffix(exe, " (deleted)")
}

// clockUnsynced reports whether the kernel's clock is not synchronised; known is false if the kernel does not know.
func clockUnsynced() (off, known bool) {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return false, false
	}
	const unsync = 0x40 // STA_UNSYNC
	return state == 5 || t.Status&unsync != 0, true
}
