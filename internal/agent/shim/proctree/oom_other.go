//go:build !linux

package proctree

import "time"

// OOMDetector knows nothing here.
type OOMDetector struct{}

func (*OOMDetector) Refresh(time.Time) {}

func (*OOMDetector) Detected() bool { return false }
