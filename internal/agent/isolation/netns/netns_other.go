//go:build !linux

package netns

import (
	"errors"
	"net"
)

// ListenIn says that processes have no networks of their own here.
func ListenIn(int, string) (net.Listener, error) { return nil, errors.ErrUnsupported }

// Init says that nothing needs it here.
func Init([]string) error { return errors.ErrUnsupported }
