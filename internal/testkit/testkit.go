// Package testkit is what tests of many packages need: waiting for a condition, ending the test on an error, and a logger.
package testkit

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"
)

// Limit is how long Await waits: far longer than anything takes on a busy machine.
const Limit = 60 * time.Second

const pollInterval = 5 * time.Millisecond

var errNotYet = errors.New("not yet")

// Await waits until cond is true, at most Limit, and ends the test if it is not. what completes the sentence "waited for ".
func Await(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	AwaitNil(tb, what, Limit, func() error {
		if !cond() {
			return errNotYet
		}
		return nil
	})
}

// AwaitNil waits until try returns nil, at most limit, and ends the test with the last error if it does not.
func AwaitNil(tb testing.TB, what string, limit time.Duration, try func() error) {
	tb.Helper()
	if err := Poll(tb.Context(), limit, try); err != nil {
		tb.Fatalf("waited %s for %s: %v", limit, what, err)
	}
}

// Poll calls try until it returns nil, ctx ends, or limit has passed. It returns the last error of try.
func Poll(ctx context.Context, limit time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// NoError ends the test if err is not nil.
func NoError(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Logger returns a logger whose lines of level info and above are part of the test's output.
func Logger(tb testing.TB) *slog.Logger {
	tb.Helper()
	return slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}
