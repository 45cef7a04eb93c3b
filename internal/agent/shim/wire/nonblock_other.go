//go:build !linux

package wire

import "net"

// nonblockingWriter returns nil: not supported.
func nonblockingWriter(net.Conn) func([]byte) int { return nil }
