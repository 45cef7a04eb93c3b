//go:build !linux

package netns

import (
	"errors"
	"net"
)

// ListenIn fails: processes have no networks of their own here.
func ListenIn(int, string) (net.Listener, error) { return nil, errors.ErrUnsupported }

// Init fails: it is not needed here.
func Init([]string) error { return errors.ErrUnsupported }
