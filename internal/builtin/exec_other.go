//go:build !unix

package builtin

import (
	"errors"
	"fmt"
)

// execProgram fails: it is for containers, which run on Linux.
func execProgram(path string, _, _ []string) error {
	return fmt.Errorf("cannot execute %s: %w", path, errors.ErrUnsupported)
}
