//go:build !linux

package run

import "time"

// Clock is the time by which leases are counted.
func Clock() time.Duration { return wallClock() }
