//go:build unix

package builtin

import (
	"fmt"
	"syscall"
)

// execProgram has this process execute another program. It returns only if that fails.
func execProgram(path string, argv, env []string) error {
	return fmt.Errorf("%s cannot be executed: %w", path, syscall.Exec(path, argv, env))
}
