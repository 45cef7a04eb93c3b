//go:build unix && !linux

package shim

import "errors"

func faultyShim([]string) error { return errors.ErrUnsupported }
