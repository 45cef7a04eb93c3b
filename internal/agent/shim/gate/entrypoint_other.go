//go:build !unix

package gate

import "errors"

// execute says that containers are of other systems.
func execute([]string) (int, error) { return exitCannotExec, errors.ErrUnsupported }
