//go:build !unix

package frame

import (
	"os"

	"github.com/muster-dev/muster"
)

// OnUpgrade returns a channel that gets nothing: there is no signal for it here.
func OnUpgrade() (asked <-chan os.Signal, release func()) { return nil, func() {} }

func become(string, []string, []string) error {
	return muster.Errorf(muster.Invalid, "a program cannot replace itself on this system: stop it and start it again")
}
