//go:build !unix

package app

import (
	"os"

	"github.com/muster-dev/muster"
)

// NotifyUpgrade returns a nil channel: this system has no signal for upgrades.
func NotifyUpgrade() (requests <-chan os.Signal, release func()) { return nil, func() {} }

func execProgram(string, []string, []string) error {
	return muster.Errorf(muster.Invalid, "upgrades in place are not supported on this system: restart the program")
}
