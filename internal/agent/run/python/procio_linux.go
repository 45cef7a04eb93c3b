package python

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
)

// bytesWritten is how much a process has written to files, 0 if that is not known.
func bytesWritten(pid int) muster.Size {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0 // it ended, or the kernel does not count
	}
	_, after, _ := strings.Cut(string(b), "wchar: ")
	digits, _, _ := strings.Cut(after, "\n")
	n, _ := strconv.ParseInt(digits, 10, 64) // 0 for what is no number
	return muster.Size(n)
}
