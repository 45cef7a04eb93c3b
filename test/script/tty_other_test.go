//go:build !linux

package script

import (
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// terminal is for Linux only; the scripts that need it say so.
type terminal struct{}

func terminalCommands(map[*testscript.TestScript]*terminal, *sync.Mutex) map[string]func(*testscript.TestScript, bool, []string) {
	return nil
}
