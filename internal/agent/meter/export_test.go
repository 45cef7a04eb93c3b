package meter

import (
	"context"
	"time"
)

// Tick samples every attempt. The Meter must not run.
func Tick(ctx context.Context, m *Meter) {
	var list []*subject
	for sub := range m.samples.due {
		sub.nextSample = time.Time{}
		list = append(list, sub)
	}
	m.measure(ctx, time.Now(), list)
}

// Scans returns how often all processes of the machine were read. The Meter must not run.
func Scans(m *Meter) int { return m.scans }
