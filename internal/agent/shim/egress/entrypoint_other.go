//go:build !unix

package egress

import "errors"

// execute says that containers are of other systems.
func execute([]string) (int, error) { return exitCannotExec, errors.ErrUnsupported }
