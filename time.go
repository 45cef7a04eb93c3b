package muster

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Time is an instant in milliseconds since the Unix epoch, UTC. Zero means
// unknown; JSON fields use omitzero. In JSON a Time is RFC 3339 with exactly
// three decimals.
type Time int64

// NewTime converts t, truncated to milliseconds.
func NewTime(t time.Time) Time { return Time(t.UnixMilli()) }

// Or returns d if it is positive, else fallback.
func (d Duration) Or(fallback Duration) Duration {
	if d > 0 {
		return d
	}
	return fallback
}

// Std returns t as a time.Time in UTC.
func (t Time) Std() time.Time { return time.UnixMilli(int64(t)).UTC() }

// Add returns t+d, truncated to milliseconds.
func (t Time) Add(d Duration) Time { return t + Time(time.Duration(d).Milliseconds()) }

// Sub returns t-u.
func (t Time) Sub(u Time) Duration { return Duration(time.Duration(t-u) * time.Millisecond) }

// String returns RFC 3339 with milliseconds, or "" if t is unknown.
func (t Time) String() string {
	b, _ := t.AppendText(nil) // has no errors
	return string(b)
}

// AppendText appends RFC 3339 with milliseconds.
func (t Time) AppendText(b []byte) ([]byte, error) {
	if t == 0 {
		return b, nil
	}
	std := t.Std()
	b = bytes.TrimSuffix(std.AppendFormat(b, time.RFC3339), []byte("Z")) // package time formats this layout five times as fast as others
	millis := std.Nanosecond() / 1e6
	return append(b, '.', byte('0'+millis/100), byte('0'+millis/10%10), byte('0'+millis%10), 'Z'), nil
}

// MarshalText writes RFC 3339 with milliseconds.
func (t Time) MarshalText() ([]byte, error) { return t.AppendText(nil) }

// UnmarshalText reads RFC 3339; an empty string means unknown.
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

// Duration is a length of time. In JSON it is written as a number of seconds; it is
// also read from strings such as "90s", "10m" or "1h30m".
type Duration time.Duration

// Seconds returns d as seconds.
func (d Duration) Seconds() float64 { return time.Duration(d).Seconds() }

// Std returns d as a time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String returns the form "1h30m0s".
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON writes seconds without rounding.
func (d Duration) MarshalJSON() ([]byte, error) {
	sign, n := "", uint64(d)
	if d < 0 {
		sign, n = "-", -n
	}
	text := fmt.Sprintf("%s%d.%09d", sign, n/1e9, n%1e9)
	return []byte(strings.TrimSuffix(strings.TrimRight(text, "0"), ".")), nil
}

// UnmarshalJSON reads seconds or a quoted duration. Negative durations are an error.
func (d *Duration) UnmarshalJSON(b []byte) error {
	s := string(b)
	if s == "null" {
		return nil // as encoding/json does
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

// ParseDuration reads seconds ("90", "1.5"), Go's format ("90s", "1h30m") or days
// ("7d"). Negative durations and those over 100 years are errors.
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
