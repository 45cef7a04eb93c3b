//go:build unix

package do

import (
	"fmt"
	"syscall"
)

// become has this process execute another program. It returns only if that fails.
func become(path string, argv, env []string) error {
	return fmt.Errorf("%s cannot be executed: %w", path, syscall.Exec(path, argv, env))
}
