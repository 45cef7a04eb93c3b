//go:build !linux

package wire

import "net"

// tryWriter knows no way to write without waiting.
func tryWriter(net.Conn) func([]byte) int { return nil }
