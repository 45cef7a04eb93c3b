package meter

import (
	"context"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/net"
)

// traffic computes rates from the host's network counters.
type traffic struct {
	at      time.Time
	in, out uint64
}

// rates returns bytes per second since the last call, without loopback; nil at the first call and if they are unknown.
func (t *traffic) rates(ctx context.Context, now time.Time) (in, out *float64) {
	all, err := net.IOCountersWithContext(ctx, true)
	if err != nil {
		return nil, nil
	}
	before := *t
	*t = traffic{at: now}
	for i := range all {
		if !strings.HasPrefix(all[i].Name, "lo") {
			t.in += all[i].BytesRecv
			t.out += all[i].BytesSent
		}
	}
	span := now.Sub(before.at).Seconds()
	if before.at.IsZero() || span <= 0 || span > 2*maxInterval.Seconds() || t.in < before.in || t.out < before.out {
		return nil, nil
	}
	return new(float64(t.in-before.in) / span), new(float64(t.out-before.out) / span)
}
