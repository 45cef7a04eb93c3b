//go:build !linux

package script

import (
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// terminal is implemented on Linux only; scripts that need it have a condition.
type terminal struct{}

func terminalCommands(map[*testscript.TestScript]*terminal, *sync.Mutex) map[string]func(*testscript.TestScript, bool, []string) {
	return nil
}
