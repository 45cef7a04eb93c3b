package tool

import (
	"html"
	"math"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
)

// A value that a device does not have or that this user may not see is told as
// [N/A], [Not Supported], [Insufficient Permissions] and the like, and one that
// could not be read as ERR! or [Unknown Error]; the XML form leaves the brackets
// out. Each is no number, and so absent.

// Number reads the number with which a value begins, such as 67.03 of "67.03 W".
func Number(s string) (float64, bool) {
	s, _, _ = strings.Cut(strings.TrimSpace(s), " ")
	s = strings.TrimSuffix(s, "%")
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return f, true
}

// NonNegative is a number that cannot be below zero.
func NonNegative(s string) *float64 {
	f, ok := Number(s)
	if !ok || f < 0 {
		return nil
	}
	return &f
}

// Temperature is a temperature. Some cards say 0 or the like where they have no
// sensor, but such a machine may also stand in the cold.
func Temperature(s string) *float64 {
	f, ok := Number(s)
	if !ok || f < -100 || f > 300 {
		return nil
	}
	return &f
}

// Fraction reads a percentage as a share of 1.
func Fraction(s string) *float64 {
	f, ok := Number(s)
	if !ok || f < 0 {
		return nil
	}
	f = min(1, f/100)
	return &f
}

// Count reads a number of things.
func Count(s string) *uint64 {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// MaxMemory is the memory that is believed of a device: 1 PiB.
const MaxMemory = 1 << 50

// Mebibytes reads a size such as "40960 MiB" or, of a column without units,
// "40960".
func Mebibytes(s string) *muster.Size {
	f, ok := Number(s)
	if !ok || f < 0 || f > MaxMemory>>20 {
		return nil
	}
	size := muster.Size(f * (1 << 20))
	return &size
}

// UnhealthyReason says what is wrong with a device that answers a question for its state
// with s, or "".
func UnhealthyReason(s string) string {
	s = strings.Trim(strings.TrimSpace(s), "[]")
	for _, word := range []string{"requires reset", "is lost"} {
		if strings.Contains(s, word) {
			return s
		}
	}
	return ""
}

// Unreadable says whether s stands for a value that the driver failed to read.
func Unreadable(s string) bool {
	return strings.Contains(s, "Unknown Error") || strings.Contains(s, "ERR!")
}

// Text is a text, or "" if it stands for none.
func Text(value string) string {
	value = strings.TrimSpace(html.UnescapeString(value))
	if value == "N/A" || strings.HasPrefix(value, "[") || value == "Not Found" || value == "Unknown" {
		return ""
	}
	return value
}

// PCIAddress brings the address of a device on the PCI bus into the form of the
// kernel: 00000000:3B:00.0 and 3b:00.0 are 0000:3b:00.0. It returns "" for other
// texts.
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
