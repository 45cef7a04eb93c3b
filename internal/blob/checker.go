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

// Verdict is what a check of a blob's file found.
type Verdict string

// The verdicts.
const (
	Intact    Verdict = "intact"
	Damaged   Verdict = "damaged"   // its file is set aside: the blob is not there any more
	Unchecked Verdict = "unchecked" // too much was checked for who asks
)

const (
	keepIntact  = time.Hour // that a file was intact is remembered
	keepVerdict = 10_000    // verdicts
	keepAskers  = 10_000    // of whom it is remembered when they may ask again
	mostWaiting = 16        // checks that wait for their turn
	chargeAgain = 10        // times as long as a check in vain took, its asker waits for the next one
	chargeLeast = time.Second
)

// Checker reads files of blobs that somebody got other bytes of, and sets aside what is damaged. It reads one at a time, one
// that was intact not again for an hour, and for who had files read in vain at most a tenth of the time: somebody who
// lies does not keep the disk busy. Its methods may be called at the same time.
type Checker struct {
	store Store
	log   *slog.Logger
	turn  chan struct{} // holds a value while a file is read
	queue chan struct{} // holds a value for each that waits or reads

	mu     sync.Mutex
	intact map[string]time.Time // when it was read
	again  map[string]time.Time // when who asked in vain may ask again
}

// NewChecker makes a Checker.
func NewChecker(s Store, log *slog.Logger) *Checker {
	return &Checker{
		store: s, log: log, turn: make(chan struct{}, 1), queue: make(chan struct{}, mostWaiting),
		intact: map[string]time.Time{}, again: map[string]time.Time{},
	}
}

// Check reads the file of a blob for asker, "" for the server itself, unless it was intact lately. It returns NotFound if
// the blob is not there.
func (c *Checker) Check(ctx context.Context, sum, asker string) (Verdict, error) {
	if _, err := c.store.Stat(ctx, sum); err != nil {
		return Unchecked, err
	}
	if v, known := c.known(sum, asker); known {
		return v, nil
	}
	select {
	case c.queue <- struct{}{}:
		defer func() { <-c.queue }()
	default:
		return Unchecked, nil
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return Unchecked, context.Cause(ctx)
	}
	if v, known := c.known(sum, asker); known { // by now
		return v, nil
	}
	began := time.Now()
	v, err := c.read(ctx, sum)
	if v != Damaged {
		c.note(sum, asker, v, time.Since(began))
	}
	return v, err
}

// known returns what needs no reading.
func (c *Checker) known(sum, asker string) (Verdict, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if at, ok := c.intact[sum]; ok && now.Sub(at) < keepIntact {
		return Intact, true
	}
	if asker != "" && now.Before(c.again[asker]) {
		return Unchecked, true
	}
	return "", false
}

// note remembers what a check in vain found, and how long it took.
func (c *Checker) note(sum, asker string, v Verdict, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v == Intact {
		if len(c.intact) >= keepVerdict {
			clear(c.intact)
		}
		c.intact[sum] = time.Now()
	}
	if asker != "" {
		if len(c.again) >= keepAskers {
			clear(c.again)
		}
		c.again[asker] = time.Now().Add(max(chargeLeast, chargeAgain*took))
	}
}

func (c *Checker) read(ctx context.Context, sum string) (Verdict, error) {
	f, err := c.store.Open(ctx, sum)
	if err != nil {
		return Unchecked, err
	}
	h := sha256.New()
	size, err := io.Copy(h, &ctxReader{ctx: ctx, r: f})
	_ = f.Close() // it was only read
	if ctx.Err() != nil {
		return Unchecked, context.Cause(ctx)
	}
	if got := hex.EncodeToString(h.Sum(nil)); err == nil && got == sum {
		return Intact, nil
	}
	if serr := c.store.SetAside(ctx, sum); serr != nil {
		return Unchecked, serr
	}
	c.log.Error("the file of a blob was damaged on this server's disk; it is set aside, and the blob has to be uploaded again",
		slog.String("sha256", sum), slog.String("size", muster.Size(size).String()), slog.Any("error", err))
	return Damaged, nil
}
