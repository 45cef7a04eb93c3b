package muster

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Time is an instant in milliseconds since the Unix epoch, UTC. Zero means
// unknown and is left out of JSON (use omitzero), where a Time is RFC 3339 with
// exactly three decimals.
type Time int64

const timeLayout = "2006-01-02T15:04:05.000Z"

// NewTime converts, cutting below the millisecond.
func NewTime(t time.Time) Time { return Time(t.UnixMilli()) }

// Or returns d if it is set, and otherwise what it is by default.
func (d Duration) Or(fallback Duration) Duration {
	if d > 0 {
		return d
	}
	return fallback
}

// Std converts to the standard library's type, in UTC.
func (t Time) Std() time.Time { return time.UnixMilli(int64(t)).UTC() }

// Add returns t later by d, cut to milliseconds.
func (t Time) Add(d Duration) Time { return t + Time(time.Duration(d).Milliseconds()) }

// Sub returns the time from u to t.
func (t Time) Sub(u Time) Duration { return Duration(time.Duration(t-u) * time.Millisecond) }

// String returns RFC 3339 with milliseconds, and "" for the unknown time.
func (t Time) String() string {
	if t == 0 {
		return ""
	}
	return t.Std().Format(timeLayout)
}

// MarshalText writes RFC 3339 with milliseconds.
func (t Time) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads RFC 3339 and the empty text for unknown.
func (t *Time) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*t = 0
		return nil
	}
	std, err := time.Parse(time.RFC3339Nano, string(b))
	if err != nil {
		return Errorf(Invalid, "%q is not a time: write RFC 3339, such as 2026-01-02T15:04:05.000Z", b)
	}
	*t = NewTime(std)
	return nil
}

// Duration is a length of time. In JSON it is a number of seconds; read, it may
// also be a text such as "90s", "10m" or "1h30m".
type Duration time.Duration

// Seconds returns d as seconds.
func (d Duration) Seconds() float64 { return time.Duration(d).Seconds() }

// Std converts to the standard library's type.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String returns the form "1h30m0s".
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON writes seconds, exactly.
func (d Duration) MarshalJSON() ([]byte, error) {
	sign, n := "", uint64(d)
	if d < 0 {
		sign, n = "-", -n
	}
	text := fmt.Sprintf("%s%d.%09d", sign, n/1e9, n%1e9)
	return []byte(strings.TrimSuffix(strings.TrimRight(text, "0"), ".")), nil
}

// UnmarshalJSON reads seconds or a quoted duration. It refuses negative ones.
func (d *Duration) UnmarshalJSON(b []byte) error {
	s := string(b)
	if s == "null" {
		return nil // as for any type of the standard library
	}
	if len(s) >= 2 && s[0] == '"' {
		s = s[1 : len(s)-1]
	}
	v, err := ParseDuration(s)
	if err != nil {
		return err
	}
	*d = v
	return nil
}

// ParseDuration reads seconds ("90", "1.5") or Go's form ("90s", "1h30m"), and
// days ("7d"). Negative durations and those over 100 years are refused.
func ParseDuration(s string) (Duration, error) {
	const limit = 100 * 365 * 24 * time.Hour
	if strings.Trim(s, "0123456789.") == "" { // plain seconds, without the rounding of a float
		if v, err := time.ParseDuration(s + "s"); err == nil && v <= limit {
			return Duration(v), nil
		}
	} else if n, err := strconv.ParseFloat(s, 64); err == nil {
		if n >= 0 && n <= limit.Seconds() {
			return Duration(math.Round(n * float64(time.Second))), nil
		}
	} else if v, err := time.ParseDuration(s); err == nil {
		if v >= 0 && v <= limit {
			return Duration(v), nil
		}
	} else if len(s) > 1 && s[len(s)-1] == 'd' {
		if n, err := strconv.ParseFloat(s[:len(s)-1], 64); err == nil && n >= 0 && n <= limit.Hours()/24 {
			return Duration(n * 24 * float64(time.Hour)), nil
		}
	}
	return 0, Errorf(Invalid, "%q is not a duration: write seconds or a form such as 90s, 10m, 1h30m or 7d", s)
}
