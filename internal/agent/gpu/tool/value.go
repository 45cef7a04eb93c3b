package tool

import (
	"html"
	"math"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
)

// A value that a device does not have or that this user may not see is printed as [N/A], [Not Supported], [Insufficient Permissions] and
// the like, and one that could not be read as ERR! or [Unknown Error]; the XML has no brackets. None of them is a number, so the
// value is absent.

// Number parses the number at the beginning of a value, such as 67.03 of "67.03 W".
func Number(s string) (float64, bool) {
	s, _, _ = strings.Cut(strings.TrimSpace(s), " ")
	s = strings.TrimSuffix(s, "%")
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return f, true
}

func inRange(s string, least, most float64) *float64 {
	f, ok := Number(s)
	if !ok || f < least || f > most {
		return nil
	}
	return &f
}

// NonNegative parses a number that cannot be negative.
func NonNegative(s string) *float64 { return inRange(s, 0, math.MaxFloat64) }

// Temperature parses a temperature. Some cards print 0 or the like if they have no sensor, but a machine may also be in the cold.
func Temperature(s string) *float64 { return inRange(s, -100, 300) }

// Fraction parses a percentage as a share of 1.
func Fraction(s string) *float64 {
	f := NonNegative(s)
	if f != nil {
		*f = min(1, *f/100)
	}
	return f
}

// Count parses a count.
func Count(s string) *uint64 {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// MaxMemory is the largest plausible memory of a device: 1 PiB.
const MaxMemory = 1 << 50

// Mebibytes parses a size such as "40960 MiB" or, in a column without units, "40960".
func Mebibytes(s string) *muster.Size {
	f := inRange(s, 0, MaxMemory>>20)
	if f == nil {
		return nil
	}
	return new(muster.Size(*f * (1 << 20)))
}

// UnhealthyReason returns the fault of a device that s, printed as one of its values, describes; or "".
func UnhealthyReason(s string) string {
	if strings.Contains(s, "requires reset") || strings.Contains(s, "is lost") {
		return strings.Trim(strings.TrimSpace(s), "[]")
	}
	return ""
}

// Unreadable reports whether s means that the driver failed to read a value.
func Unreadable(s string) bool {
	return strings.Contains(s, "Unknown Error") || strings.Contains(s, "ERR!")
}

// Text returns a text, or "" for a placeholder.
func Text(value string) string {
	value = strings.TrimSpace(html.UnescapeString(value))
	if value == "N/A" || strings.HasPrefix(value, "[") || value == "Not Found" || value == "Unknown" {
		return ""
	}
	return value
}

// PCIAddress converts an address on the PCI bus to the kernel's form: 00000000:3B:00.0 and 3b:00.0 are 0000:3b:00.0. It returns "" for
// other texts.
func PCIAddress(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	f := strings.Split(s, ":")
	if len(f) == 2 {
		f = append([]string{"0000"}, f...)
	}
	if len(f) != 3 {
		return ""
	}
	if len(f[0]) > 4 {
		f[0] = strings.TrimLeft(f[0][:len(f[0])-4], "0") + f[0][len(f[0])-4:]
	}
	slot, fn, ok := strings.Cut(f[2], ".")
	for _, part := range []string{f[0], f[1], slot, fn} {
		if _, err := strconv.ParseUint(part, 16, 32); err != nil || !ok {
			return ""
		}
	}
	return strings.Join(f, ":")
}
