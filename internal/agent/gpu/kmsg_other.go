//go:build !linux

package gpu

import "time"

// kernelLog is not read here.
type kernelLog struct{}

func openKernelLog() *kernelLog { return nil }

func (*kernelLog) close() {}

func (*kernelLog) read(func(message string, age time.Duration)) {}
