package backoff_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "0.5": time.Second / 2, "-1": 0, "1e300": 365 * 24 * time.Hour, "NaN": 0, "soon": 0, "Fri, 02 Jan 2026 03:05:05 GMT": time.Minute, "Fri, 02 Jan 2026 03:00:05 GMT": 0,
	} {
		if got := backoff.RetryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("%q is %s", text, got)
		}
	}
}

// NextAfter waits at least as long as the server says, an hour at most, and not much longer.
func TestNextAfter(t *testing.T) {
	t.Parallel()
	for named, want := range map[time.Duration]time.Duration{0: 0, time.Second: time.Second, 20 * time.Minute: 20 * time.Minute, 1000 * time.Hour: time.Hour} {
		var err error = &muster.Error{Code: muster.Unavailable, Message: "busy", Err: &backoff.DelayError{Delay: named}}
		for range 100 {
			var b backoff.Backoff
			most := want + want/10
			if want == 0 {
				most = backoff.DefaultMin
			}
			if d := b.NextAfter(fmt.Errorf("try: %w", err)); d < want || d > most {
				t.Fatalf("named %s, waited %s", named, d)
			}
		}
	}
}
