//go:build !unix

package builtin

import (
	"errors"
	"fmt"
)

// execProgram is for containers, which run on Linux.
func execProgram(path string, _, _ []string) error {
	return fmt.Errorf("%s cannot be executed: %w", path, errors.ErrUnsupported)
}
