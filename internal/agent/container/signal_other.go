//go:build !linux

package container

import "errors"

// signalIn is not supported: on this system the processes of containers are in a virtual machine.
func signalIn(string, int, string) error { return errors.ErrUnsupported }
