//go:build !linux

package run

import "time"

// BootClock is the time by which leases are counted.
func BootClock() time.Duration { return wallClock() }
