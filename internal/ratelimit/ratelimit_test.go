package ratelimit

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
)

var here = netip.MustParseAddr("192.0.2.1")

// allowed counts the requests of n that an address may make.
func allowed(t *testing.T, l *Limiter, from string, n int) (passed int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // do not hold refusals
	for range n {
		err := l.AllowAddress(ctx, netip.MustParseAddr(from))
		switch {
		case err == nil:
			passed++
		case muster.CodeOf(err) != muster.Unavailable || backoff.DelayOf(err) < time.Second:
			t.Fatalf("%v, with a delay of %s", err, backoff.DelayOf(err))
		}
	}
	return passed
}

func TestAddressesHaveTheirOwnLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := map[Reason]int{}
		l := New(Config{PerAddress: 10}, func(r Reason) { refused[r]++ })
		for _, c := range []struct {
			from string
			want int
		}{
			{"192.0.2.1", 100}, {"192.0.2.1", 0}, {"::ffff:192.0.2.1", 0}, {"192.0.2.2", 100},
			{"2001:db8::1", 100}, {"2001:db8::2", 0}, {"2001:db8:0:1::1", 100}, {"fe80::1%eth0", 100}, {"fe80::1%eth1", 0},
		} {
			if got := allowed(t, l, c.from, 150); got != c.want {
				t.Errorf("%s: %d requests passed, want %d", c.from, got, c.want)
			}
		}
		if refused[Address] != 850 || len(refused) != 1 {
			t.Errorf("refused %v", refused)
		}
	})
}

// The state of a limiter does not grow with the number of addresses.
func TestAddressesAreBounded(t *testing.T) {
	l := New(Config{PerAddress: 1}, nil)
	addr := netip.MustParseAddr("10.0.0.0")
	for range 3 * maxAddresses {
		addr = addr.Next()
		if err := l.AllowAddress(t.Context(), addr); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for range 3 * maxAddresses {
		if _, ok := l.addresses.Get(source(addr)); ok {
			n++
		}
		addr = addr.Prev()
	}
	if n != maxAddresses {
		t.Errorf("%d addresses are kept", n)
	}
}

// The first failures are answered at once, further ones later and later, and after a pause at once again.
func TestFailuresAreDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{PerAddress: 1000}, nil)
		var took []time.Duration
		for range 20 {
			start := time.Now()
			if err := l.Failed(t.Context(), here); err != nil {
				t.Fatal(err)
			}
			took = append(took, time.Since(start))
		}
		if took[3] != 0 || took[4] == 0 || took[19] != maxDelay {
			t.Errorf("answers took %v", took)
		}
		for i := 1; i < len(took); i++ {
			if took[i] < took[i-1] {
				t.Errorf("answer %d came sooner than the one before it: %v", i, took)
			}
		}
		time.Sleep(10 * halfLife)
		start := time.Now()
		if err := l.Failed(t.Context(), here); err != nil || time.Since(start) > 0 {
			t.Errorf("after a pause: %v, in %s", err, time.Since(start))
		}
	})
}

// Few answers are delayed at a time, of one address and of all: others are refused at once. The end of a request frees its place.
func TestDelayedAnswersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{PerAddress: 1000}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var requests sync.WaitGroup
		var mu sync.Mutex
		refused := 0
		addr := netip.MustParseAddr("10.0.0.0")
		for range 30 {
			addr = addr.Next()
			for range 30 {
				requests.Go(func() {
					if muster.CodeOf(l.Failed(ctx, addr)) == muster.Unavailable {
						mu.Lock()
						refused++
						mu.Unlock()
					}
				})
			}
			synctest.Wait()
			if n := l.address(addr).delayed.n.Load(); n > maxDelayedPerAddress {
				t.Fatalf("%d answers to one address are delayed", n)
			}
		}
		if n := l.delayed.n.Load(); n != maxDelayed {
			t.Errorf("%d answers are delayed", n)
		}
		cancel()
		requests.Wait()
		if want := 30*30 - 30*(freeFailures-1) - maxDelayed; refused != want {
			t.Errorf("%d of 900 requests were refused, want %d", refused, want)
		}
		if n := l.delayed.n.Load() + l.address(addr).delayed.n.Load() + l.held.n.Load(); n != 0 {
			t.Errorf("%d answers remain delayed", n)
		}
	})
}

// Failures count as requests without a key.
func TestFailuresUseTheLimitOfTheirAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{PerAddress: 10}, nil)
		for range 100 {
			if err := l.AllowAddress(t.Context(), here); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // do not hold refusals
		for range 10 {
			if l.Limited(ctx, here) == nil || l.Failed(ctx, here) == nil {
				t.Fatal("a failure beyond the limit is not refused")
			}
		}
	})
}

// Refusals of an address are held, so many at a time; others come at once, and the bucket fills meanwhile.
func TestRefusalsAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{PerAddress: 10}, nil)
		if got := allowed(t, l, here.String(), 100); got != 100 {
			t.Fatalf("%d requests passed", got)
		}
		start := time.Now()
		var held sync.WaitGroup
		var atOnce atomic.Int64
		for range maxHeldPerAddress + 7 {
			held.Go(func() {
				if err := l.AllowAddress(t.Context(), here); err == nil {
					t.Error("a request beyond the limit passed")
				}
				if time.Since(start) == 0 {
					atOnce.Add(1)
				}
			})
		}
		held.Wait()
		if n, took := atOnce.Load(), time.Since(start); n != 7 || took != maxHold {
			t.Errorf("%d refusals came at once, the last one after %s", n, took)
		}
		if got := allowed(t, l, here.String(), 150); got != 100 {
			t.Errorf("%d requests passed 10 s later", got)
		}
		time.Sleep(2 * time.Second)
		if got := allowed(t, l, here.String(), 150); got != 20 {
			t.Errorf("%d requests passed 2 s later", got)
		}
		start = time.Now()
		if err := l.AllowAddress(t.Context(), here); err == nil || time.Since(start) != minHold {
			t.Errorf("a single refusal took %s: %v", time.Since(start), err)
		}
	})
}

func TestKeysHaveTheirOwnLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{PerKey: 50}, nil)
		one, other := l.NewKeyBucket(), l.NewKeyBucket()
		for range 50 {
			if err := l.AllowKey(t.Context(), one); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.AllowKey(t.Context(), one); backoff.DelayOf(err) != time.Second {
			t.Errorf("beyond the limit: %v", err)
		}
		if err := l.AllowKey(t.Context(), other); err != nil {
			t.Errorf("another key: %v", err)
		}
		if err := l.AllowKey(Exempt(t.Context()), one); err != nil {
			t.Errorf("this process itself: %v", err)
		}
	})
}

// A Limiter without limits, and none, refuse nothing.
func TestNoLimits(t *testing.T) {
	for _, l := range []*Limiter{nil, New(Config{}, nil)} {
		for range 10_000 {
			if l.AllowAddress(t.Context(), here) != nil || l.Failed(t.Context(), here) != nil || l.Limited(t.Context(), here) != nil || l.AllowKey(t.Context(), l.NewKeyBucket()) != nil {
				t.Fatal("a request was refused")
			}
		}
	}
	l := New(Config{PerAddress: 1}, nil)
	for range 100 {
		if err := l.AllowAddress(Exempt(t.Context()), here); err != nil {
			t.Fatalf("this process itself: %v", err)
		}
	}
}

// Stale requests are answered at once, and after at most two seconds beyond the limit, however many there are.
func TestStaleRequestsAreSlowedDownOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{PerAddress: 1}, nil)
		start := time.Now()
		for range Burst {
			l.Stale(t.Context(), here)
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("the first requests took %s", took)
		}
		var requests sync.WaitGroup
		for range 3 * refusalsPerSecond {
			requests.Go(func() { l.Stale(t.Context(), here) })
		}
		synctest.Wait()
		if l.AllowAddress(t.Context(), here) == nil {
			t.Error("stale requests do not count")
		}
		requests.Wait()
		if took := time.Since(start); took < minHold || took > maxHold {
			t.Errorf("1,500 requests took %s", took)
		}
	})
}
