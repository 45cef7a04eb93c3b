//go:build !unix

package app

import (
	"os"

	"github.com/muster-dev/muster"
)

// NotifyUpgrade returns a channel that gets nothing: there is no signal for it here.
func NotifyUpgrade() (requests <-chan os.Signal, release func()) { return nil, func() {} }

func execProgram(string, []string, []string) error {
	return muster.Errorf(muster.Invalid, "a program cannot replace itself on this system: stop it and start it again")
}
