package python

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// usersOf lists the processes of this machine that execute or have mapped a file below dir.
func usersOf(dir string) (pids []int) {
	names := [][]byte{[]byte(dir + "/")}
	if end, err := filepath.EvalSymlinks(dir); err == nil && end != dir {
		names = append(names, []byte(end+"/"))
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		for _, file := range []string{"cmdline", "maps"} {
			b, err := os.ReadFile(filepath.Join("/proc", e.Name(), file))
			if err != nil {
				break // it has exited, or belongs to another user
			}
			if slices.ContainsFunc(names, func(name []byte) bool { return bytes.Contains(b, name) }) {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}
