//go:build unix

package runtime

import (
	"os"
	"os/user"
	"strconv"
	"syscall"

	"github.com/muster-dev/muster"
)

// checkOwner refuses to make files in another user's data dir: its worker could not change them.
func checkOwner(data string) error {
	info, err := os.Stat(data)
	if err != nil {
		return nil //nolint:nilerr // it is made, or what is done with it says what is wrong
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
