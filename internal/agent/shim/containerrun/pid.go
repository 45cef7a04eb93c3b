package containerrun

import (
	"bytes"
	"os"
	"strconv"
)

// inContainer reports whether a process of this machine is in a container, whose ID is in the names of its control groups.
func inContainer(pid int, id string) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	return err == nil && bytes.Contains(b, []byte(id))
}
