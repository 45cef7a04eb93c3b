//go:build !unix

package egress

import "errors"

// execute fails: containers do not exist on this system.
func execute([]string) (int, error) { return exitCannotExec, errors.ErrUnsupported }

// replaceStdin fails: containers do not exist on this system.
func replaceStdin(string) error { return errors.ErrUnsupported }
