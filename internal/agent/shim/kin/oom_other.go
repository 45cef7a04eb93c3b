//go:build !linux

package kin

import "time"

// OOM knows nothing here.
type OOM struct{}

func (*OOM) Refresh(time.Time) {}

func (*OOM) Happened() bool { return false }
