//go:build !linux

package xid

import "time"

// Log does nothing: the kernel's log is read on Linux only.
type Log struct{}

// Open returns nil: there is no log here.
func Open() *Log { return nil }

// Close does nothing.
func (*Log) Close() {}

// Read does nothing.
func (*Log) Read(func(message string, age time.Duration)) {}
