//go:build unix

package limit

import (
	"io/fs"
	"syscall"

	"github.com/muster-dev/muster/internal/agent/run"
)

// owner tells whether a file is u's, and whether it has one name only.
func owner(info fs.FileInfo, u *run.User) (owned, alone bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid == u.UID && st.Gid == u.GID, ok && st.Nlink == 1
}
