//go:build !linux

package userns

import "errors"

// supported is for Linux only: elsewhere engines run in a virtual machine.
func supported(string, string, bool) error { return errors.ErrUnsupported }

func engineRoot(string) (string, error) { return "", errors.ErrUnsupported }
