//go:build unix

package runtime

import (
	"os"
	"os/user"
	"strconv"
	"syscall"

	"github.com/muster-dev/muster"
)

// checkOwner returns an error if the data directory belongs to another user, whose worker could not change new files.
func checkOwner(data string) error {
	info, err := os.Stat(data)
	if err != nil {
		return nil //nolint:nilerr // it will be created, or the next access fails
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) == os.Geteuid() {
		return nil
	}
	owner := strconv.Itoa(int(st.Uid))
	if u, err := user.LookupId(owner); err == nil {
		owner = u.Username
	}
	return muster.Errorf(muster.Forbidden, "%s belongs to %s: run this command as that user", data, owner)
}
