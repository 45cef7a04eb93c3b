package dtf

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster/internal/dialect"
)

// Tuning is what tests change of a gateway.
type Tuning struct {
	Resend   time.Duration
	Secret   string
	Security string // a security_config.json
	Grace    time.Duration
}

// NewTuned returns System with shorter intervals, and whether the newest of its gateways has a worker.
func NewTuned(tuning Tuning) (system dialect.System, hasWorker func(worker string) bool) {
	var mu sync.Mutex
	var newest *gateway
	system = System()
	system.New = func(ctx context.Context, deps dialect.Deps) (dialect.Gateway, error) {
		settings, err := readSettings(deps.Config)
		if err != nil {
			return nil, err
		}
		settings.resendAfter, settings.bridgeTurn, settings.timeout, settings.signer = tuning.Resend, 5*tuning.Resend, 10*time.Second, signer{tuning.Secret}
		if tuning.Grace > 0 {
			settings.grace = tuning.Grace
		}
		if tuning.Security != "" {
			if settings.security, err = parseConfig([]byte(tuning.Security)); err != nil {
				return nil, err
			}
		}
		g, err := openGateway(ctx, deps, settings)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		newest = g
		return g, nil
	}
	return system, func(worker string) bool {
		mu.Lock()
		defer mu.Unlock()
		return newest != nil && newest.Fleet.Worker(worker) != nil
	}
}

// Sign is a message as a worker with the secret sends it.
func Sign(secret string, m map[string]any, at time.Time) (string, error) {
	raw, err := signer{secret}.sign(m, at)
	return string(raw), err
}

// Verify reports whether a message is signed with the secret.
func Verify(secret, raw string, at time.Time) bool {
	v, err := parse([]byte(raw))
	return err == nil && signer{secret}.verify(&v, at)
}

// SetTimeouts shortens the waits of a bridge.
func (b *Bridge) SetTimeouts(registered, fleet time.Duration) {
	b.registerTimeout = registered
	if fleet > 0 {
		b.fleetTimeout = fleet
	}
}

// Pending is how many jobs are not reported.
func (b *Bridge) Pending() int { return b.core.Pending() }

// EventID is the worker's.
func (b *Bridge) ID() string { return b.currentState().WorkerID }

// Coordinator is the one that was connected last.
func (b *Bridge) Coordinator() string { return b.currentState().Coordinator }

// Connected reports whether there is a connection to a coordinator.
func (b *Bridge) Connected() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.conn != nil
}

// CheckedAt is when the fleet was looked at last.
func (b *Bridge) CheckedAt() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.checkedAt
}

// HeartbeatInterval is the interval between heartbeats.
func (b *Bridge) HeartbeatInterval() time.Duration { return b.cfg.Heartbeat }

// Constants of the wire.
const (
	ErrSignature = errSignature
	MaxGPUs      = maxGPUs
	VectorToken  = vectorToken
)

// Patterns returns the patterns of all routes.
func Patterns() []string { return slices.Collect(maps.Keys((&gateway{}).handlers())) }
