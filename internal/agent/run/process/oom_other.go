//go:build !linux

package process

import "time"

// oomWatch knows nothing here.
type oomWatch struct{}

func (*oomWatch) refresh(time.Time) {}

func (*oomWatch) happened() bool { return false }

func noSpace(string) bool { return false }
