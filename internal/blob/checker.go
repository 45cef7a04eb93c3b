package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/muster-dev/muster"
)

// CheckResult is the result of a check of a blob's file.
type CheckResult string

// The results.
const (
	Intact     CheckResult = "intact"
	Damaged    CheckResult = "damaged"    // the file is quarantined: the blob does not exist any more
	Unreadable CheckResult = "unreadable" // the file could not be read to its end, and stays
	Unchecked  CheckResult = "unchecked"  // the caller asked too often, or too many checks wait
)

const (
	intactTTL      = time.Hour // for results
	maxRemembered  = 10_000    // results
	maxCallers     = 10_000    // with a cooldown
	maxWaiting     = 16        // checks
	cooldownFactor = 10        // cooldown of a caller, as a multiple of the time of a check that found no damage
	minCooldown    = time.Second
	retryInterval  = time.Minute // between reads of an unreadable file
	maxReads       = 3           // of a file that is replaced meanwhile
)

// Checker reads files of blobs for which a client received other bytes, and quarantines damaged ones. It reads one file at a time, does
// not read an intact file again for an hour, and spends at most a tenth of the time on a caller whose checks find no damage, so that false
// reports do not keep the disk busy. Its methods may be called at the same time.
//
// Only a file that was read to its end can be damaged. A read error may be temporary: the disk may return,
// or the process lacked memory or descriptors. Such a file stays, is not read again for a minute, and is
// Unreadable until it was read or replaced.
type Checker struct {
	store   Store
	log     *slog.Logger
	reading chan struct{} // holds a value while a file is read
	waiting chan struct{} // holds a value for each check that waits or reads

	mu       sync.Mutex
	intact   map[string]time.Time // when it was read
	cooldown map[string]time.Time // by caller: the end of the cooldown
	failed   map[string]failure   // files whose last read failed
}

type failure struct {
	failures  int       // in a row
	checkedAt time.Time // of the last failed check; zero if only other reads failed
}

// NewChecker returns a Checker.
func NewChecker(s Store, log *slog.Logger) *Checker {
	return &Checker{
		store: s, log: log, reading: make(chan struct{}, 1), waiting: make(chan struct{}, maxWaiting),
		intact: map[string]time.Time{}, cooldown: map[string]time.Time{}, failed: map[string]failure{},
	}
}

// Check reads the file of a blob for caller ("" for the server itself), unless it was intact recently. It returns NotFound if
// the blob does not exist.
func (c *Checker) Check(ctx context.Context, sum, caller string) (CheckResult, error) {
	if _, err := c.store.Stat(ctx, sum); err != nil {
		return Unchecked, err
	}
	if v, ok := c.cached(sum, caller); ok {
		return v, nil
	}
	select {
	case c.waiting <- struct{}{}:
		defer func() { <-c.waiting }()
	default:
		return Unchecked, nil
	}
	select {
	case c.reading <- struct{}{}:
		defer func() { <-c.reading }()
	case <-ctx.Done():
		return Unchecked, context.Cause(ctx)
	}
	if v, ok := c.cached(sum, caller); ok { // another check may have finished
		return v, nil
	}
	start := time.Now()
	v, err := c.read(ctx, sum)
	if v != Damaged {
		c.record(sum, caller, v, time.Since(start))
	}
	return v, err
}

// cached returns a result that needs no reading.
func (c *Checker) cached(sum, caller string) (CheckResult, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if at, ok := c.intact[sum]; ok && now.Sub(at) < intactTTL {
		return Intact, true
	}
	if f, ok := c.failed[sum]; ok && now.Sub(f.checkedAt) < retryInterval {
		return Unreadable, true
	}
	if caller != "" && now.Before(c.cooldown[caller]) {
		return Unchecked, true
	}
	return "", false
}

// ReadFailed records that a read of a blob's file failed, outside of a check.
func (c *Checker) ReadFailed(sum string, err error) { c.recordFailure(sum, err, time.Time{}) }

// recordFailure records that a read failed; checked is zero outside of a check.
func (c *Checker) recordFailure(sum string, err error, checked time.Time) {
	c.mu.Lock()
	f, ok := c.failed[sum]
	if !ok && len(c.failed) >= maxRemembered {
		clear(c.failed)
	}
	f.failures++
	if !checked.IsZero() {
		f.checkedAt = checked
	}
	c.failed[sum] = f
	delete(c.intact, sum)
	c.mu.Unlock()
	if f.failures > 1 && checked.IsZero() {
		return // downloads may fail often
	}
	c.log.Error("cannot read the file of a blob, retrying later; if this persists, check the server's disk or upload the blob again",
		slog.String("sha256", sum), slog.Int("failures", f.failures), slog.Any("error", err))
}

// Suspect reports whether the last read of a blob's file failed.
func (c *Checker) Suspect(sum string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.failed[sum]
	return ok
}

// Replaced records that a blob has a new file.
func (c *Checker) Replaced(sum string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.failed, sum)
	delete(c.intact, sum)
}

// record remembers the result of a check that found no damage, and its duration.
func (c *Checker) record(sum, caller string, v CheckResult, duration time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v == Intact {
		if len(c.intact) >= maxRemembered {
			clear(c.intact)
		}
		c.intact[sum] = time.Now()
		delete(c.failed, sum)
	}
	if caller != "" {
		if len(c.cooldown) >= maxCallers {
			clear(c.cooldown)
		}
		c.cooldown[caller] = time.Now().Add(max(minCooldown, cooldownFactor*duration))
	}
}

// read reads the file of a blob, and again if it was replaced meanwhile.
func (c *Checker) read(ctx context.Context, sum string) (CheckResult, error) {
	for range maxReads {
		f, err := c.store.Open(ctx, sum)
		if muster.CodeOf(err) == muster.NotFound && err != nil {
			return Unchecked, err
		}
		if err != nil {
			c.recordFailure(sum, err, time.Now())
			return Unreadable, nil
		}
		v, size, err := verify(ctx, f, sum)
		cancelled := context.Cause(ctx)
		if cancelled != nil || v != Damaged {
			_ = f.Close() // it was only read
		}
		switch {
		case cancelled != nil:
			return Unchecked, cancelled
		case err != nil:
			c.recordFailure(sum, err, time.Now())
			return Unreadable, nil
		case v == Intact:
			return Intact, nil
		}
		moved, err := c.store.Quarantine(ctx, sum, f)
		if err != nil {
			return Unchecked, err
		}
		if moved {
			c.Replaced(sum)
			c.log.Error("quarantined the file of a blob that was damaged on this server's disk; upload the blob again",
				slog.String("sha256", sum), slog.String("size", muster.Size(size).String()))
			return Damaged, nil
		}
	}
	return Unchecked, nil
}

// verify reads a file to its end. If it cannot, it returns Unreadable and the error.
func verify(ctx context.Context, f io.Reader, sum string) (CheckResult, int64, error) {
	h := sha256.New()
	size, err := io.Copy(h, &ctxReader{ctx: ctx, r: f})
	switch {
	case err != nil:
		return Unreadable, size, err
	case hex.EncodeToString(h.Sum(nil)) == sum:
		return Intact, size, nil
	}
	return Damaged, size, nil
}
