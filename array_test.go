package muster

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestParseArray(t *testing.T) {
	for _, c := range []struct {
		in    string
		want  string // as written back
		first []int64
		n     int64
	}{
		{"0-9", "0-9", []int64{0, 1, 2}, 10},
		{"1-1000", "1-1000", []int64{1, 2, 3}, 1000},
		{"0-9,20,30-39:3", "0-9,20,30-39:3", []int64{0}, 15},
		{"20", "20", []int64{20}, 1},
		{"0-10:3", "0-9:3", []int64{0, 3, 6, 9}, 4},
		{" 5 - 6 , 1", "5-6,1", []int64{5, 6, 1}, 3},
		{"7-7:2", "7", []int64{7}, 1},
		{"0-98:2,1-99:2", "0-98:2,1-99:2", []int64{0, 2}, 100},
		{"2147483647", "2147483647", nil, 1},
		{"0-9 , 20 % 4", "0-9,20%4", []int64{0}, 11},
	} {
		a, err := ParseArray(c.in)
		if err != nil {
			t.Errorf("ParseArray(%q): %v", c.in, err)
			continue
		}
		if a.String() != c.want || a.Len() != c.n {
			t.Errorf("ParseArray(%q) = %s with %d, want %s with %d", c.in, a, a.Len(), c.want, c.n)
		}
		for i, n := range c.first {
			if got := a.At(int64(i)); got != n {
				t.Errorf("ParseArray(%q).At(%d) = %d, want %d", c.in, i, got, n)
			}
		}
	}
}

func TestParseArrayErrors(t *testing.T) {
	for in, want := range map[string]string{
		"":                          "empty part",
		"1,,2":                      "empty part",
		"a":                         "not a number",
		"-3":                        "not a number",
		"1-":                        "not a number",
		"1-2-3":                     "not a number",
		"+5":                        "not a number",
		"9-1":                       "1-9",
		"5:2":                       "step but no range",
		"0-9:0":                     "step of 0",
		"0-9,5":                     "5 twice",
		"0-99:7,3-80:5":             "28 twice",
		"3,3":                       "3 twice",
		"0-9%":                      "not a limit",
		"0-9%0":                     "not a limit",
		"0-9%2%3":                   "not a limit",
		"%5":                        "empty part",
		"99999999999":               "too high",
		"999999999999999999999":     "too high",
		strings.Repeat("1,", 2000):  "at most 1000",
		"0-2147483647:3,1-2000:1,5": "twice",
	} {
		if a, err := ParseArray(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseArray(%.40q) = %s, %v; want an error with %q", in, a, err, want)
		}
	}
}

func TestArrayRejectsOtherJSON(t *testing.T) {
	for in, want := range map[string]string{
		`10`: `"0-9" for 10 tasks`, `[1,2]`: "not an array", `null`: "not an array", `{}`: "not an array", `"x"`: "not a number",
		`-1`: "not an array", `1.5`: "not an array",
	} {
		var a Array
		if err := a.UnmarshalJSON([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, want an error with %q", in, err, want)
		}
	}
}

// genRange draws small ranges, so that overlaps are frequent.
var genRange = rapid.Custom(func(t *rapid.T) Range {
	first := rapid.Int64Range(0, 60).Draw(t, "first")
	r := Range{First: first, Last: first + rapid.Int64Range(0, 60).Draw(t, "span"), Step: rapid.Int64Range(1, 12).Draw(t, "step")}
	r.Last -= (r.Last - r.First) % r.Step
	return r
})

func TestRangesOverlapAtEqualNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, s := genRange.Draw(t, "r"), genRange.Draw(t, "s")
		want, meets := int64(0), false
		for n := r.First; n <= r.Last && !meets; n += r.Step {
			want, meets = n, s.contains(n)
		}
		got, ok := r.intersect(s)
		if ok != meets || ok && got != want {
			t.Fatalf("%v intersects %v at %d, %v; want %d, %v", r, s, got, ok, want, meets)
		}
	})
}

func TestArrayElementsAreDistinctAndIndexed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(genRange, 1, 6).Draw(t, "parts")
		texts := make([]string, len(parts))
		for i, r := range parts {
			texts[i] = r.String()
		}
		seen, duplicate := make(map[int64]bool), false
		for _, r := range parts {
			for n := r.First; n <= r.Last; n += r.Step {
				duplicate = duplicate || seen[n]
				seen[n] = true
			}
		}
		a, err := ParseArray(strings.Join(texts, ","))
		if (err != nil) != duplicate {
			t.Fatalf("ParseArray(%v) = %v, duplicates: %v", texts, err, duplicate)
		}
		if err != nil {
			return
		}
		if a.Len() != int64(len(seen)) {
			t.Fatalf("Len() = %d, want %d", a.Len(), len(seen))
		}
		for i := range a.Len() {
			if pos, ok := a.Find(a.At(i)); !ok || pos != i {
				t.Fatalf("Find(At(%d)) = %d, %v", i, pos, ok)
			}
		}
		if _, ok := a.Find(200); ok {
			t.Fatal("found a missing number")
		}
	})
}

func FuzzArray(f *testing.F) {
	for _, s := range []string{"0-9,20,30-39:3", "1-1000", "0-98:2,1-99:2", "2147483647", "7-7:2", " 1 , 2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseArray(s)
		if err != nil {
			return
		}
		again, err := ParseArray(a.String())
		if err != nil {
			t.Fatalf("%q was accepted as %s, which is rejected: %v", s, a, err)
		}
		if d := cmp.Diff(a, again); d != "" {
			t.Fatalf("%q: %s", s, d)
		}
		b, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		var decoded Array
		if err := json.Unmarshal(b, &decoded); err != nil || !cmp.Equal(a, decoded) {
			t.Fatalf("%q: JSON %s gives %v, %v", s, b, decoded, err)
		}
		last := a.Len() - 1
		if pos, ok := a.Find(a.At(last)); !ok || pos != last {
			t.Fatalf("%q: Find(At(%d)) = %d, %v", s, last, pos, ok)
		}
	})
}
