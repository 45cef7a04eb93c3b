//go:build !linux

package gpu

import "errors"

func mknod(string) error { return errors.New("not on this system") }
