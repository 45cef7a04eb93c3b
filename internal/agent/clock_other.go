//go:build !linux

package agent

import "time"

func bootClock() time.Duration { return wallClock() }
