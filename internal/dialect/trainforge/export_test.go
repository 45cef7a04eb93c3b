package trainforge

import (
	"context"
	"time"

	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/fleet"
)

// Waits are those of the gateway's waits that tests change; 0 leaves one as it is.
type Waits struct{ Silence, Node, Claim, Quiet, Hold, Last time.Duration }

// OpenWith is New with other waits.
func OpenWith(ctx context.Context, env dialect.Env, w Waits) (*Gateway, error) {
	wait := usualTiming()
	wait.look, wait.hold = 10*time.Millisecond, 100*time.Millisecond
	for dst, d := range map[*time.Duration]time.Duration{&wait.silence: w.Silence, &wait.node: w.Node, &wait.claim: w.Claim, &wait.quiet: w.Quiet, &wait.hold: w.Hold, &wait.last: w.Last} {
		if d != 0 {
			*dst = d
		}
	}
	return open(ctx, env, wait)
}

// Fleet is the gateway's workers.
func (g *Gateway) Fleet() *fleet.Fleet { return g.fleet }
