//go:build !linux

package run

import "time"

// BootClock is the clock of leases: the time of day, which includes the time that the machine sleeps, but jumps when it is set.
func BootClock() time.Duration { return time.Duration(time.Now().UnixNano()) }
