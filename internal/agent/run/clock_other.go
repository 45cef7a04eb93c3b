//go:build !linux

package run

import "time"

// BootClock is the clock of leases.
func BootClock() time.Duration { return wallClock() }
