package trainforge

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/muster-dev/muster/internal/dialect"
)

// Timeouts are those of the gateway's waits that tests change; 0 leaves one as it is.
type Timeouts struct{ Silence, NodeStart, ClaimStart, RunnerSilence, ClaimHold, ReportGrace time.Duration }

// OpenWith is New with other waits.
func OpenWith(ctx context.Context, deps dialect.Deps, w Timeouts) (*Gateway, error) {
	waits := defaultTimeouts()
	waits.scanInterval, waits.claimHold = 10*time.Millisecond, 100*time.Millisecond
	for dst, d := range map[*time.Duration]time.Duration{&waits.silence: w.Silence, &waits.nodeStart: w.NodeStart, &waits.claimStart: w.ClaimStart, &waits.runnerSilence: w.RunnerSilence, &waits.claimHold: w.ClaimHold, &waits.reportGrace: w.ReportGrace} {
		if d != 0 {
			*dst = d
		}
	}
	return openGateway(ctx, deps, waits)
}

// Patterns returns the patterns of all routes.
func Patterns() []string { return slices.Collect(maps.Keys((&Gateway{}).handlers())) }
