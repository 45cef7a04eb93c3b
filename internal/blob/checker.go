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

// CheckResult is what a check of a blob's file found.
type CheckResult string

// The verdicts.
const (
	Intact     CheckResult = "intact"
	Damaged    CheckResult = "damaged"    // its file is set aside: the blob is not there any more
	Unreadable CheckResult = "unreadable" // its file could not be read to its end, and stays where it is
	Unchecked  CheckResult = "unchecked"  // too much was checked for who asks
)

const (
	intactTTL      = time.Hour // that a file was intact is remembered
	maxRemembered  = 10_000    // verdicts
	maxCallers     = 10_000    // of whom it is remembered when they may ask again
	maxWaiting     = 16        // checks that wait for their turn
	cooldownFactor = 10        // times as long as a check in vain took, its asker waits for the next one
	minCooldown    = time.Second
	retryInterval  = time.Minute // between reads of a file that cannot be read
	maxReads       = 3           // of a file that others replace meanwhile
)

// Checker reads files of blobs that somebody got other bytes of, and sets aside what is damaged. It reads one at a time, one
// that was intact not again for an hour, and for who had files read in vain at most a tenth of the time: somebody who
// lies does not keep the disk busy. Its methods may be called at the same time.
//
// Only a file that was read to its end is judged. A read error says nothing about the bytes: the disk may be back in a moment,
// or the process was short of memory or descriptors. Such a file stays, is not read again for a minute, and is reported as
// unreadable, until it was read or replaced.
type Checker struct {
	store   Store
	log     *slog.Logger
	reading chan struct{} // holds a value while a file is read
	waiting chan struct{} // holds a value for each that waits or reads

	mu       sync.Mutex
	intact   map[string]time.Time // when it was read
	cooldown map[string]time.Time // when who asked in vain may ask again
	failed   map[string]failure   // of files whose last read failed
}

// failure is what is remembered of a file that could not be read.
type failure struct {
	failures  int       // that failed one after the other
	checkedAt time.Time // when a check failed; zero if only other reads did
}

// NewChecker makes a Checker.
func NewChecker(s Store, log *slog.Logger) *Checker {
	return &Checker{
		store: s, log: log, reading: make(chan struct{}, 1), waiting: make(chan struct{}, maxWaiting),
		intact: map[string]time.Time{}, cooldown: map[string]time.Time{}, failed: map[string]failure{},
	}
}

// Check reads the file of a blob for asker, "" for the server itself, unless it was intact lately. It returns NotFound if
// the blob is not there.
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
	if v, ok := c.cached(sum, caller); ok { // by now
		return v, nil
	}
	start := time.Now()
	v, err := c.read(ctx, sum)
	if v != Damaged {
		c.record(sum, caller, v, time.Since(start))
	}
	return v, err
}

// cached returns what needs no reading.
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

// ReadFailed notes that a read of a blob's file failed, outside of a check.
func (c *Checker) ReadFailed(sum string, err error) { c.recordFailure(sum, err, time.Time{}) }

// recordFailure notes that a read failed; checked is zero outside of a check.
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
	c.log.Error("the file of a blob cannot be read: it stays where it is and is tried again; if this goes on, check the server's disk, or upload the blob again",
		slog.String("sha256", sum), slog.Int("failures", f.failures), slog.Any("error", err))
}

// Suspect reports whether the last read of a blob's file failed.
func (c *Checker) Suspect(sum string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.failed[sum]
	return ok
}

// Replaced notes that a blob has a new file.
func (c *Checker) Replaced(sum string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.failed, sum)
	delete(c.intact, sum)
}

// record remembers what a check in vain found, and how long it took.
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

// read reads the file of a blob, and the next one if it was replaced meanwhile.
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
		switch {
		case ctx.Err() != nil:
			_ = f.Close() // it was only read
			return Unchecked, context.Cause(ctx)
		case err != nil:
			_ = f.Close() // it was only read
			c.recordFailure(sum, err, time.Now())
			return Unreadable, nil
		case v == Intact:
			_ = f.Close() // it was only read
			return Intact, nil
		}
		moved, err := c.store.Quarantine(ctx, sum, f)
		if err != nil {
			return Unchecked, err
		}
		if moved {
			c.Replaced(sum)
			c.log.Error("the file of a blob was damaged on this server's disk; it is set aside, and the blob has to be uploaded again",
				slog.String("sha256", sum), slog.String("size", muster.Size(size).String()))
			return Damaged, nil
		}
	}
	return Unchecked, nil
}

// verify reads a file to its end. An error says that it could not.
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
