package meter

import (
	"context"
	"time"
)

// Tick has every attempt sampled.
func Tick(ctx context.Context, m *Meter) {
	list := m.list()
	for _, sub := range list {
		sub.next = time.Time{}
	}
	m.tick(ctx, time.Now(), list)
}

// Scans is how often all processes of the machine were read. The Meter must not run.
func Scans(m *Meter) int { return m.scans }
