package dtf

import (
	"context"
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

// Tuned returns System with shorter intervals, and whether the newest of its gateways has a worker.
func Tuned(tuning Tuning) (system dialect.System, has func(worker string) bool) {
	var mu sync.Mutex
	var newest *gateway
	system = System()
	system.New = func(ctx context.Context, env dialect.Env) (dialect.Gateway, error) {
		set, err := readSettings(env.Config.Options)
		if err != nil {
			return nil, err
		}
		set.resend, set.patient, set.sign = tuning.Resend, 10*time.Second, signer{tuning.Secret}
		if tuning.Grace > 0 {
			set.grace = tuning.Grace
		}
		if tuning.Security != "" {
			if set.security, err = parseConfig([]byte(tuning.Security)); err != nil {
				return nil, err
			}
		}
		g, err := openGateway(ctx, env, set)
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
		return newest != nil && newest.fleet.Worker(worker) != nil
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

// Hurry shortens the waits of a bridge.
func (b *Bridge) Hurry(registered, fleet time.Duration) {
	b.registerWait = registered
	if fleet > 0 {
		b.patience = fleet
	}
}

// Pending is how many jobs are not reported.
func (b *Bridge) Pending() int { return b.core.Pending() }

// EventID is the worker's.
func (b *Bridge) ID() string { return b.workerID() }

// Coordinator is the one that was connected last.
func (b *Bridge) Coordinator() string { return b.lastCoordinator() }

// Connected reports whether there is a connection to a coordinator.
func (b *Bridge) Connected() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.line != nil
}

// Looked is when the fleet was looked at last.
func (b *Bridge) Looked() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.checked
}

// Beats is how often there is a heartbeat.
func (b *Bridge) Beats() time.Duration { return b.cfg.Heartbeat }

// Constants of the wire.
const (
	ErrSignature = errSignature
	MaxGPUs      = maxGPUs
	VectorToken  = vectorToken
)
