package python

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
)

// bytesWritten returns how many bytes a process has written to files, 0 if unknown.
func bytesWritten(pid int) muster.Size {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0 // it has exited, or the kernel does not count
	}
	_, after, _ := strings.Cut(string(b), "wchar: ")
	digits, _, _ := strings.Cut(after, "\n")
	n, _ := strconv.ParseInt(digits, 10, 64) // 0 if it is not a number
	return muster.Size(n)
}
