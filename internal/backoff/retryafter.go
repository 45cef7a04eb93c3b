package backoff

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// maxRetryAfter is the most that RetryAfter returns. It leaves room for arithmetic.
const maxRetryAfter = 365 * 24 * time.Hour

// RetryAfter returns the pause that the header Retry-After asks for, as seconds or a date; 0 if there is none.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds > 0 {
		return time.Duration(min(seconds, maxRetryAfter.Seconds()) * float64(time.Second))
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}

// DelayError is in the chain of the error for a request that its server did not process, and that may be repeated after Delay.
type DelayError struct{ Delay time.Duration }

// Error says when the request may be repeated.
func (e *DelayError) Error() string { return fmt.Sprintf("try again in %s", e.Delay) }

// Delayed returns a DelayError for an answer with the header Retry-After, or nil.
func Delayed(h http.Header) error {
	if d := RetryAfter(h, time.Now()); d > 0 {
		return &DelayError{d}
	}
	return nil
}

// DelayOf returns the delay of the DelayError in the chain of err, 0 if there is none.
func DelayOf(err error) time.Duration {
	if e, ok := errors.AsType[*DelayError](err); ok {
		return e.Delay
	}
	return 0
}

// MaxDelay is the most that NextAfter waits for a server.
const MaxDelay = time.Hour

// NextAfter is Next after an attempt that failed with err. If err has a DelayError, the pause is at least its delay, at most MaxDelay, and
// up to a tenth longer, so that not all clients of a server come back at once.
func (b *Backoff) NextAfter(err error) time.Duration {
	pause := b.Next()
	if d := min(DelayOf(err), MaxDelay); d > 0 {
		return d + min(pause, d/10)
	}
	return pause
}
