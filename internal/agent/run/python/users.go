package python

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shirou/gopsutil/v4/process"
)

// usersOf lists the processes of this machine whose command line has a path below dir or, on Linux, that have mapped a file below it.
func usersOf(dir string) (pids []int) {
	prefixes := []string{dir + "/"}
	if resolved, err := filepath.EvalSymlinks(dir); err == nil && resolved != dir {
		prefixes = append(prefixes, resolved+"/")
	}
	all, _ := process.Processes() // none if they are unknown
	for _, p := range all {
		line, _ := p.Cmdline() // "" if it has exited, or belongs to another user
		maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.Pid))
		if slices.ContainsFunc(prefixes, func(prefix string) bool {
			return strings.Contains(line, prefix) || strings.Contains(string(maps), prefix)
		}) {
			pids = append(pids, int(p.Pid))
		}
	}
	return pids
}
