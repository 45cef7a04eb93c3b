package retention

import (
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// Limit is how much of one kind of data is kept. A zero field is no limit.
type Limit struct { //nolint:recvcheck // UnmarshalText changes it
	Age    muster.Duration // since the end of the job, the report, the upload or the last contact
	Number int64
	Bytes  muster.Size
}

// Forever is the text of a Limit without limits.
const Forever = "forever"

// ParseLimit reads "forever", or an age ("30d"), a number ("1000"), a size ("50GiB"), or several of them with commas in between.
// A whole number is a Number; an age and a size need a unit.
func ParseLimit(s string) (Limit, error) {
	invalid := muster.Errorf(muster.Invalid, "%.80q is not a limit: use an age (30d), a number (1000), a size (50GiB), several with commas, or forever", s)
	if strings.TrimSpace(s) == Forever {
		return Limit{}, nil
	}
	var l Limit
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		if part == "" || part[0] < '0' || part[0] > '9' {
			return Limit{}, invalid
		}
		if err := l.set(part); err != nil {
			return Limit{}, invalid
		}
	}
	return l, nil
}

// set sets the field of one part of the text, which must not be set yet.
func (l *Limit) set(part string) error {
	switch last := part[len(part)-1]; {
	case last >= '0' && last <= '9':
		n, err := strconv.ParseInt(part, 10, 64)
		return assign(&l.Number, n, err)
	case last == 's' || last == 'm' || last == 'h' || last == 'd':
		d, err := muster.ParseDuration(part)
		return assign(&l.Age, d, err)
	default:
		n, err := muster.ParseSize(part)
		return assign(&l.Bytes, n, err)
	}
}

// assign sets a field that must be zero to a positive value.
func assign[T ~int64](field *T, v T, err error) error {
	if err != nil || *field != 0 || v <= 0 {
		return muster.Errorf(muster.Invalid, "not one positive value")
	}
	*field = v
	return nil
}

// Unlimited reports whether l keeps everything.
func (l Limit) Unlimited() bool { return l == Limit{} }

// String returns the text that ParseLimit reads as l.
func (l Limit) String() string {
	if l.Unlimited() {
		return Forever
	}
	var parts []string
	if l.Age > 0 {
		parts = append(parts, formatAge(l.Age.Std()))
	}
	if l.Number > 0 {
		parts = append(parts, strconv.FormatInt(l.Number, 10))
	}
	if l.Bytes > 0 {
		parts = append(parts, formatSize(l.Bytes))
	}
	return strings.Join(parts, ",")
}

// formatAge returns whole days as 30d, and leaves out zero minutes and seconds of others.
func formatAge(d time.Duration) string {
	const day = 24 * time.Hour
	if d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	if before, ok := strings.CutSuffix(s, "m0s"); ok {
		s = before + "m"
	}
	if before, ok := strings.CutSuffix(s, "h0m"); ok {
		s = before + "h"
	}
	return s
}

// formatSize returns the largest unit of which s is a multiple.
func formatSize(s muster.Size) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for ; i < len(units)-1 && s%1024 == 0; i++ {
		s /= 1024
	}
	return strconv.FormatInt(int64(s), 10) + units[i]
}

// MarshalText implements encoding.TextMarshaler.
func (l Limit) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *Limit) UnmarshalText(b []byte) error {
	v, err := ParseLimit(string(b))
	if err == nil {
		*l = v
	}
	return err
}
