//go:build unix

package builtin

import (
	"fmt"
	"syscall"
)

// execProgram replaces this process by another program. It returns only if that fails.
func execProgram(path string, argv, env []string) error {
	return fmt.Errorf("cannot execute %s: %w", path, syscall.Exec(path, argv, env))
}
