//go:build !linux

package python

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// usersOf lists the processes of this machine whose command line has a path below dir. It needs ps.
func usersOf(dir string) (pids []int) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ps", "-axww", "-o", "pid=,command=").Output()
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(out)) {
		id, command, _ := strings.Cut(strings.TrimSpace(line), " ")
		if pid, err := strconv.Atoi(id); err == nil && strings.Contains(command, dir+"/") {
			pids = append(pids, pid)
		}
	}
	return pids
}
