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
