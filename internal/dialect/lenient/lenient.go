// Package lenient reads and writes values in the forms of other systems. What their programs send may be missing, null, out of range or of
// another type.
package lenient

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/muster-dev/muster"
)

// Text returns a text for a name, a label or a message: valid UTF-8 without control characters and surrounding spaces, of at most maxBytes
// bytes.
func Text(s string, maxBytes int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, strings.TrimSpace(s))
	if len(s) > maxBytes {
		s = strings.ToValidUTF8(s[:maxBytes], "")
	}
	return strings.TrimSpace(s)
}

// Name is Text of at most muster.MaxNameSize bytes.
func Name(s string) string { return Text(s, muster.MaxNameSize) }

// Labels returns texts as labels of at most maxBytes bytes. It leaves out empty ones.
func Labels(texts map[string]string, maxBytes int) map[string]string {
	labels := map[string]string{}
	for name, s := range texts {
		if s = Text(s, maxBytes); s != "" {
			labels[name] = s
		}
	}
	return labels
}

// Within returns v if it is from 0 to limit, otherwise 0: workers invent what they cannot measure.
func Within(v, limit float64) float64 {
	if v >= 0 && v <= limit { // not for NaN
		return v
	}
	return 0
}

const maxGiB = 1 << 20

// GiB converts a number of GiB, 0 if it is not plausible.
func GiB(v float64) muster.Size { return muster.Size(math.Round(Within(v, maxGiB) * (1 << 30))) }

// InGiB converts a size to GiB with two decimals.
func InGiB(s muster.Size) float64 { return math.Round(float64(s)/(1<<30)*100) / 100 }

// HasValue reports whether there is a value other than null.
func HasValue(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// Object returns the fields of a JSON object, nil for other values.
func Object(raw json.RawMessage) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		return nil
	}
	return m
}

// List returns the items of a JSON array that are a T, up to maxItems. It ignores other items.
func List[T any](raw json.RawMessage, maxItems int) ([]T, error) {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, err
	}
	var list []T
	for _, item := range items[:min(len(items), maxItems)] {
		var v T
		if json.Unmarshal(item, &v) == nil {
			list = append(list, v)
		}
	}
	return list, nil
}

// String returns a JSON string, "" for other values.
func String(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// MustMarshal encodes a value that can always be encoded. It panics otherwise.
func MustMarshal(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("lenient: %v", err))
	}
	return b
}

// NaiveTime is the layout of Python's isoformat for times without a zone.
const NaiveTime = "2006-01-02T15:04:05.000000"

// NaiveUTC formats a time in UTC without a zone.
func NaiveUTC(t time.Time) string { return t.UTC().Format(NaiveTime) }

// UnixSeconds returns a time in seconds since 1970, with microseconds.
func UnixSeconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// NonZero returns a pointer to v, nil for the zero value.
func NonZero[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
