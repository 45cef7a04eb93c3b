package python

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shirou/gopsutil/v4/process"
)

// usersOf lists the processes of this machine that use an environment: with a path below dir in their command line or environment, such
// as the PATH that activates it, or, on Linux, with a mapped file below it.
func usersOf(dir string) (pids []int) {
	prefixes := []string{dir + "/"}
	if resolved, err := filepath.EvalSymlinks(dir); err == nil && resolved != dir {
		prefixes = append(prefixes, resolved+"/")
	}
	all, _ := process.Processes() // none if they are unknown
	for _, p := range all {
		line, _ := p.Cmdline() // "" if it has exited, or belongs to another user
		environ, _ := p.Environ()
		maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.Pid))
		text := line + "\n" + strings.Join(environ, "\n") + "\n" + string(maps)
		if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.Contains(text, prefix) }) {
			pids = append(pids, int(p.Pid))
		}
	}
	return pids
}
