package run

import "time"

// wallClock is the time of day. It includes the time that the machine sleeps, but jumps when it is set.
func wallClock() time.Duration { return time.Duration(time.Now().UnixNano()) }
