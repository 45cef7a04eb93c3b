package doctor

import (
	"fmt"
	"os"
	"path/filepath"
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

// portListener returns the process that listens on a TCP port, such as "nginx, process 708", "" if it is unknown: it may be another
// user's.
func (c *Config) portListener(port int) string {
	sockets := map[string]bool{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		for line := range strings.Lines(c.readText(file)) {
			// sl local_address rem_address st … uid timeout inode
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != "0A" {
				continue
			}
			_, at, _ := strings.Cut(f[1], ":")
			if n, err := strconv.ParseInt(at, 16, 32); err == nil && int(n) == port {
				sockets["socket:["+f[9]+"]"] = true
			}
		}
	}
	files, _ := filepath.Glob(c.hostPath("/proc/[0-9]*/fd/*"))
	for _, fd := range files {
		if to, err := os.Readlink(fd); err == nil && sockets[to] {
			process := filepath.Dir(filepath.Dir(fd))
			name, _ := os.ReadFile(filepath.Join(process, "comm"))
			return strings.TrimSpace(string(name)) + ", process " + filepath.Base(process)
		}
	}
	return ""
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
