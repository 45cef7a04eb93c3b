//go:build !linux

package proctree

import "time"

// OOMDetector detects nothing on this system.
type OOMDetector struct{}

func (*OOMDetector) Refresh(time.Time) {}

func (*OOMDetector) Detected() bool { return false }
