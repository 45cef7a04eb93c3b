package mlochost

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
)

const (
	embeddedRedis    = "embedded" // the value of the option redis for a database inside of this process, on loopback: to try things at home
	defaultRedisPort = "6379"     // where programs of MLOC look for Redis
)

// startEmbedded starts a Redis database of this process if the option asks for one, and returns its URL. What is in it ends with
// the process.
func (g *Gateway) startEmbedded(option string) (string, error) {
	name, port, _ := strings.Cut(option, ":")
	if name != embeddedRedis {
		return option, nil
	}
	m, port := miniredis.NewMiniRedis(), cmp.Or(port, defaultRedisPort)
	if err := m.StartAddr("127.0.0.1:" + port); err != nil {
		return "", muster.Errorf(muster.Conflict, "--dialect mloc: cannot start a Redis database on port %s: %w. If there is one already, write redis=redis://127.0.0.1:%[1]s", port, err)
	}
	g.embedded = m
	return "redis://" + m.Addr() + "/0", nil
}

// advanceClock advances the clock of the embedded database, so that its keys expire.
func (g *Gateway) advanceClock(ctx context.Context) error {
	last := time.Now()
	for backoff.Sleep(ctx, g.intervals.sweep) == nil {
		now := time.Now()
		g.embedded.FastForward(now.Sub(last))
		last = now
	}
	return ctx.Err()
}
