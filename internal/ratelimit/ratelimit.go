// Package ratelimit limits how many requests a server processes per second: those of one API key, and those without a valid key from one
// source address.
//
// Each key and each address has a token bucket. An IPv6 address counts with all others of its /64, which one machine can use. A request
// beyond a limit is refused before anything is read, parsed or looked up for it, with the time after which it may be repeated. Requests
// with a valid key never count for their address: clients behind one address do not limit each other.
//
// Answers to unknown keys are delayed, the longer the more of them an address has sent, so that guessing is slow. Refusals of an address are
// held for half a second, and longer if many are, so that a flood over open connections slows down. Both are bounded in number: beyond that, requests are refused at
// once. A delayed answer costs no more than the idle connection that would be there without it, and package connlimit closes it when others need
// its place.
package ratelimit

import (
	"context"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/lru"
)

// The defaults of Config.
const (
	DefaultPerKey     = 5_000
	DefaultPerAddress = 100
)

// Burst is how many seconds of its rate an address may use at once, after a pause.
const Burst = 10

const (
	// maxAddresses is how many addresses have a bucket: about 4 MB. The least recently seen one loses its bucket, and begins with a full one.
	maxAddresses = 16_384
	// The limits of answers to unknown keys that are delayed at a time, of all and of one address.
	maxDelayed           = 256
	maxDelayedPerAddress = 16
	// The limits of refusals that are held at a time: about as many as there are connections.
	maxHeld           = 16_384
	maxHeldPerAddress = 8_192
)

// Refusals are held for minHold or longer, up to maxHold, so that an address gets refusals of so many requests per second at most, over however many
// connections.
const (
	minHold           = 500 * time.Millisecond
	maxHold           = 10 * time.Second
	refusalsPerSecond = 500
)

// The delay of an answer to an unknown key begins with minDelay after freeFailures of them, and doubles with each up to maxDelay. Half
// of an address's failures are forgotten every halfLife.
const (
	freeFailures = 5
	minDelay     = 10 * time.Millisecond
	maxDelay     = 2 * time.Second
	halfLife     = 30 * time.Second
)

// Config has the limits, in requests per second. 0 means no limit.
type Config struct {
	PerKey     int // requests with one valid key
	PerAddress int // requests without a valid key from one address
}

// Reason is why a request was refused.
type Reason string

// The reasons.
const (
	Key     Reason = "key"     // too many requests with one key
	Address Reason = "address" // too many requests without a valid key from one address
)

// Limiter applies the limits of a Config. Its methods may be called concurrently. A nil Limiter has no limits.
type Limiter struct {
	cfg       Config
	onRefusal func(Reason)
	addresses *lru.Cache[netip.Prefix, *address]
	delayed   slots
	held      slots
}

// slots counts what waits at a time.
type slots struct{ n atomic.Int64 }

// acquire takes a slot of both, unless one has as many as it may. The caller must call release if it has.
func acquire(all *slots, most int64, ofAddress *slots, mostOfAddress int64) bool {
	if ofAddress.n.Add(1) > mostOfAddress {
		ofAddress.n.Add(-1)
		return false
	}
	if all.n.Add(1) > most {
		release(all, ofAddress)
		return false
	}
	return true
}

func release(all, ofAddress *slots) {
	all.n.Add(-1)
	ofAddress.n.Add(-1)
}

// New returns a Limiter. onRefusal is called for each refused request; it may be nil.
func New(cfg Config, onRefusal func(Reason)) *Limiter {
	if onRefusal == nil {
		onRefusal = func(Reason) {}
	}
	return &Limiter{cfg: cfg, onRefusal: onRefusal, addresses: lru.NewCounted[netip.Prefix, *address](maxAddresses)}
}

// address is the state of one source.
type address struct {
	bucket  *rate.Limiter
	delayed slots
	held    slots

	mu       sync.Mutex
	failures float64 // at since, forgotten with halfLife
	since    time.Time
}

type exemptKey struct{}

// Exempt returns a context whose requests have no limits: those of this process to itself.
func Exempt(ctx context.Context) context.Context { return context.WithValue(ctx, exemptKey{}, true) }

// limitsAddresses reports whether requests with ctx are limited by their address.
func (l *Limiter) limitsAddresses(ctx context.Context) bool {
	return l != nil && l.cfg.PerAddress > 0 && ctx.Value(exemptKey{}) == nil
}

func (l *Limiter) address(from netip.Addr) *address {
	prefix := source(from)
	if a, ok := l.addresses.Get(prefix); ok {
		return a
	}
	return l.addresses.Add(prefix, &address{bucket: rate.NewLimiter(rate.Limit(l.cfg.PerAddress), l.cfg.PerAddress*Burst)})
}

// source returns the network whose addresses count as one.
func source(from netip.Addr) netip.Prefix {
	from = from.Unmap().WithZone("")
	bits := 32
	if from.Is6() {
		bits = 64
	}
	prefix, _ := from.Prefix(bits) // the zero Prefix of an invalid address is a source as well
	return prefix
}

// AllowAddress counts a request without a valid key. The error is Unavailable with a backoff.DelayError if from has sent too many.
func (l *Limiter) AllowAddress(ctx context.Context, from netip.Addr) error {
	if !l.limitsAddresses(ctx) {
		return nil
	}
	return l.takeFrom(ctx, l.address(from))
}

func (l *Limiter) takeFrom(ctx context.Context, a *address) error {
	if a.bucket.Allow() {
		return nil
	}
	return l.refuseAddress(ctx, a, untilToken(a.bucket))
}

// refuseAddress returns the error of a refused request, after a moment if few wait already.
func (l *Limiter) refuseAddress(ctx context.Context, a *address, wait time.Duration) error {
	l.hold(ctx, a, maxHold)
	return l.refuse(Address, wait, "too many requests without a valid API key from your address")
}

// hold waits for minHold or longer, up to most, if few answers are held already.
func (l *Limiter) hold(ctx context.Context, a *address, most time.Duration) {
	if acquire(&l.held, maxHeld, &a.held, maxHeldPerAddress) {
		defer release(&l.held, &a.held)
		hold := time.Duration(a.held.n.Load()) * time.Second / refusalsPerSecond
		_ = backoff.Sleep(ctx, min(max(minHold, hold), most)) // otherwise the client has gone
	}
}

// Stale counts a request with a token that cannot be guessed and is not valid, such as one of before the server restarted, and returns when it may be
// answered: at once, or after at most two seconds if from has sent too many. Unlike Failed it never asks the client to come back later, as the
// client has to learn that its token is not valid.
func (l *Limiter) Stale(ctx context.Context, from netip.Addr) {
	if !l.limitsAddresses(ctx) {
		return
	}
	if a := l.address(from); !a.bucket.Allow() {
		l.hold(ctx, a, maxDelay)
	}
}

// Limited returns the error of AllowAddress if that would fail, and counts nothing otherwise.
func (l *Limiter) Limited(ctx context.Context, from netip.Addr) error {
	if !l.limitsAddresses(ctx) {
		return nil
	}
	if a := l.address(from); a.bucket.Tokens() < 1 {
		return l.refuseAddress(ctx, a, untilToken(a.bucket))
	}
	return nil
}

// Failed counts a request with an unknown key, and returns when it may be answered: later for each. It returns an error like that of
// AllowAddress if the request is to be refused at once.
func (l *Limiter) Failed(ctx context.Context, from netip.Addr) error {
	if !l.limitsAddresses(ctx) {
		return nil
	}
	a := l.address(from)
	delay := a.fail(time.Now())
	if err := l.takeFrom(ctx, a); err != nil || delay == 0 {
		return err
	}
	if !acquire(&l.delayed, maxDelayed, &a.delayed, maxDelayedPerAddress) {
		return l.refuseAddress(ctx, a, delay)
	}
	defer release(&l.delayed, &a.delayed)
	_ = backoff.Sleep(ctx, delay) // otherwise the client has gone
	return nil
}

// fail counts a failure, and returns how long its answer is delayed.
func (a *address) fail(now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failures > 0 {
		a.failures *= math.Exp2(-float64(now.Sub(a.since)) / float64(halfLife))
	}
	a.failures, a.since = a.failures+1, now
	excess := int(a.failures) - freeFailures
	if excess < 0 {
		return 0
	}
	return min(minDelay<<min(excess, 20), maxDelay)
}

// NewKeyBucket returns the bucket of one key; nil without a limit.
func (l *Limiter) NewKeyBucket() *rate.Limiter {
	if l == nil || l.cfg.PerKey == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(l.cfg.PerKey), l.cfg.PerKey)
}

// AllowKey counts a request of the key that has a bucket. The error is Unavailable with a backoff.DelayError if it has sent too many.
func (l *Limiter) AllowKey(ctx context.Context, bucket *rate.Limiter) error {
	if bucket == nil || ctx.Value(exemptKey{}) != nil || bucket.Allow() {
		return nil
	}
	return l.refuse(Key, untilToken(bucket), "too many requests with this API key")
}

// untilToken returns when a bucket has a token, about.
func untilToken(bucket *rate.Limiter) time.Duration {
	return time.Duration((1 - bucket.Tokens()) / float64(bucket.Limit()) * float64(time.Second))
}

// refuse returns the error of a refused request, which may be repeated in whole seconds.
func (l *Limiter) refuse(reason Reason, wait time.Duration, message string) error {
	l.onRefusal(reason)
	delay := max(time.Second, (wait + time.Second - 1).Truncate(time.Second))
	err := muster.Errorf(muster.Unavailable, "%s: try again in %d s", message, int(delay.Seconds()))
	err.Err = &backoff.DelayError{Delay: delay}
	return err
}
