package muster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Limits of an Array.
const (
	MaxIndex  = 1<<31 - 1 // highest index of an element
	MaxRanges = 1_000     // numbers and ranges in one string
)

const arraySyntax = `write numbers and ranges, such as "0-9" or "0-9,20,30-39:3"`

// ParseArray reads "FIRST-LAST", "FIRST-LAST:STEP" and single numbers, joined by
// commas, or a reference, and a limit "%N" at the end. No number may occur twice.
func ParseArray(s string) (Array, error) {
	numbers, limit, limited := strings.Cut(s, "%")
	a, dynamic := parseDynamicArray(numbers)
	if !dynamic {
		var err error
		if a, err = parseRanges(s, numbers); err != nil {
			return Array{}, err
		}
	}
	if limited {
		n, err := strconv.Atoi(strings.TrimSpace(limit))
		if err != nil || n < 1 || n > MaxTasks {
			return Array{}, Errorf(Invalid, "%%%s is not a limit for an array: write how many of its tasks may run at once, such as 0-99%%10", Truncate(limit))
		}
		a.Limit = n
	}
	return a, nil
}

// parseRanges reads numbers and ranges, which are all of s but its limit.
func parseRanges(s, numbers string) (Array, error) {
	if strings.Contains(numbers, "$") {
		return Array{}, Errorf(Invalid, "%s is not an array: write one reference to a list or a number, such as ${prepare.result.shards}", Truncate(s))
	}
	parts := strings.Split(numbers, ",")
	if len(parts) > MaxRanges {
		return Array{}, Errorf(Invalid, "the array has %[2]d numbers and ranges, at most %[1]d are allowed: use ranges with steps, such as 0-999:3",
			MaxRanges, len(parts))
	}
	a := Array{Ranges: make([]Range, 0, len(parts))}
	for _, p := range parts {
		r, err := parseRange(strings.TrimSpace(p))
		if err != nil {
			return Array{}, err
		}
		a.Ranges = append(a.Ranges, r)
	}
	if n, found := a.duplicate(); found {
		return Array{}, Errorf(Invalid, "array %s has the number %d twice: list every number once", Truncate(s), n)
	}
	return a, nil
}

func parseRange(s string) (Range, error) {
	if s == "" {
		return Range{}, Errorf(Invalid, "the array has an empty part: %s", arraySyntax)
	}
	span, step, hasStep := strings.Cut(s, ":")
	first, last, hasRange := strings.Cut(span, "-")
	r := Range{Step: 1}
	var err error
	if r.First, err = parseIndex(first); err != nil {
		return Range{}, err
	}
	r.Last = r.First
	if hasRange {
		if r.Last, err = parseIndex(last); err != nil {
			return Range{}, err
		}
	}
	if hasStep {
		if r.Step, err = parseIndex(step); err != nil {
			return Range{}, err
		}
	}
	switch {
	case hasStep && !hasRange:
		return Range{}, Errorf(Invalid, "%q has a step but no range: write FIRST-LAST:STEP, such as 0-99:10", s)
	case r.Step < 1:
		return Range{}, Errorf(Invalid, "%q has a step of 0: write 1 or more", s)
	case r.Last < r.First:
		return Range{}, Errorf(Invalid, "%q is empty: a range goes from the smaller number to the larger, as in %d-%d", s, r.Last, r.First)
	}
	r.Last -= (r.Last - r.First) % r.Step
	if r.Last == r.First {
		r.Step = 1
	}
	return r, nil
}

func parseIndex(s string) (int64, error) {
	s = strings.TrimSpace(s)
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, Errorf(Invalid, "%q is not a number for an array: %s", Truncate(s), arraySyntax)
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > MaxIndex {
		return 0, Errorf(Invalid, "%s is too high for an array: the maximum is %d", Truncate(s), MaxIndex)
	}
	return n, nil
}

// step returns Step, or 1 if it is not set.
func (r Range) step() int64 { return max(r.Step, 1) }

// Len returns the number of elements in r.
func (r Range) Len() int64 { return (r.Last-r.First)/r.step() + 1 }

// String returns the form that ParseArray reads.
func (r Range) String() string {
	switch {
	case r.First == r.Last:
		return strconv.FormatInt(r.First, 10)
	case r.step() == 1:
		return fmt.Sprintf("%d-%d", r.First, r.Last)
	default:
		return fmt.Sprintf("%d-%d:%d", r.First, r.Last, r.step())
	}
}

// contains reports whether n is one of r's numbers.
func (r Range) contains(n int64) bool {
	return n >= r.First && n <= r.Last && (n-r.First)%r.step() == 0
}

// intersect returns the smallest number in both ranges, by the Chinese
// remainder theorem. Products of two indexes fit into 63 bits.
func (r Range) intersect(s Range) (int64, bool) {
	gcd, inverse := bezout(r.step(), s.step())
	lo := max(r.First, s.First)
	n := r.First + (lo-r.First+r.step()-1)/r.step()*r.step() // r's first number ≥ lo
	if (s.First-n)%gcd != 0 {
		return 0, false
	}
	mod := s.step() / gcd
	k := ((s.First - n) / gcd % mod * inverse) % mod
	if k < 0 {
		k += mod
	}
	n += k * r.step()
	return n, n <= min(r.Last, s.Last)
}

// bezout returns the greatest common divisor g of a and b, and an x with
// |x| ≤ b for which a·x ≡ g modulo b.
func bezout(a, b int64) (g, x int64) {
	x, next := int64(1), int64(0)
	for b != 0 {
		q := a / b
		a, b = b, a-q*b
		x, next = next, x-q*next
	}
	return a, x
}

// Len returns the number of elements.
func (a Array) Len() int64 {
	var n int64
	for _, r := range a.Ranges {
		n += r.Len()
	}
	return n
}

// At returns the number of the element at position i, from 0 to Len()-1.
func (a Array) At(i int64) int64 {
	if a.From != "" {
		return i
	}
	for _, r := range a.Ranges {
		if i < r.Len() {
			return r.First + i*r.step()
		}
		i -= r.Len()
	}
	return -1
}

// Find returns the position of the element with number n.
func (a Array) Find(n int64) (int64, bool) {
	if a.From != "" {
		return n, n >= 0 && n < MaxFanOut
	}
	var before int64
	for _, r := range a.Ranges {
		if r.contains(n) {
			return before + (n-r.First)/r.step(), true
		}
		before += r.Len()
	}
	return 0, false
}

// duplicate returns a number that occurs twice.
func (a Array) duplicate() (int64, bool) {
	sorted := slices.Clone(a.Ranges)
	slices.SortFunc(sorted, func(x, y Range) int { return int(max(-1, min(1, x.First-y.First))) })
	var active []Range // ranges that may overlap later ones
	for _, r := range sorted {
		active = slices.DeleteFunc(active, func(o Range) bool { return o.Last < r.First })
		for _, o := range active {
			if n, ok := o.intersect(r); ok {
				return n, true
			}
		}
		active = append(active, r)
	}
	return 0, false
}

// String returns the form that ParseArray reads.
func (a Array) String() string {
	if a.From != "" {
		return a.dynamicString()
	}
	parts := make([]string, len(a.Ranges))
	for i, r := range a.Ranges {
		parts[i] = r.String()
	}
	numbers := strings.Join(parts, ",")
	if a.Limit > 0 {
		return numbers + "%" + strconv.Itoa(a.Limit)
	}
	return numbers
}

// MarshalJSON writes the string form or, of an array with the values of its elements, an object.
func (a Array) MarshalJSON() ([]byte, error) {
	if a.Items != nil {
		return json.Marshal(storedArray{Numbers: a.String(), Items: a.Items})
	}
	return json.Marshal(a.String())
}

// UnmarshalJSON reads the string form. It rejects a bare number, which could
// mean a count or an element.
func (a *Array) UnmarshalJSON(b []byte) error {
	if c := firstByte(b); c >= '0' && c <= '9' {
		n, err := strconv.ParseInt(string(b), 10, 64)
		if err != nil || n < 1 {
			n = 10
		}
		return Errorf(Invalid, `%s is not an array: write "0-%d" for %d tasks, or "%d-%d" for element %d alone`, Truncate(string(b)), n-1, n, n, n, n)
	}
	if stored := (storedArray{}); firstByte(b) == '{' && json.Unmarshal(b, &stored) == nil && len(stored.Items) > 0 {
		got, err := ParseArray(stored.Numbers)
		got.Items = stored.Items
		*a = got
		return err
	}
	var s string
	if firstByte(b) != '"' || json.Unmarshal(b, &s) != nil {
		return Errorf(Invalid, "%s is not an array: %s", Truncate(string(b)), arraySyntax)
	}
	got, err := ParseArray(s)
	if err != nil {
		return err
	}
	*a = got
	return nil
}
