package bootclock_test

import (
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/bootclock"
)

// TestNow checks that the clock has the pace of the monotonic clock while the machine does not sleep.
func TestNow(t *testing.T) {
	const atLeast = 20 * time.Millisecond
	before, boot, after := time.Now(), bootclock.Now(), time.Now()
	for time.Since(after) < atLeast {
		continue
	}
	if passed, most := bootclock.Now()-boot, time.Since(before); passed < atLeast || passed > most {
		t.Errorf("%s passed by the boot clock, and %s to %s by the monotonic clock", passed, atLeast, most)
	}
}
