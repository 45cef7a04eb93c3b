//go:build !linux

package wire

import "net"

// nonblockingWriter knows no way to write without waiting.
func nonblockingWriter(net.Conn) func([]byte) int { return nil }
