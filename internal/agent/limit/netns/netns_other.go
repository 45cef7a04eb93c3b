//go:build !linux

package netns

import (
	"errors"
	"net"
)

// Listen says that processes have no networks of their own here.
func Listen(int, string) (net.Listener, error) { return nil, errors.ErrUnsupported }

// Helped says that nothing needs it here.
func Helped([]string) error { return errors.ErrUnsupported }
