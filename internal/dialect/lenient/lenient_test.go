package lenient_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/lenient"
)

func FuzzText(f *testing.F) {
	f.Add(" a\tb\x00\n", 10)
	f.Add("äöü€", 4)
	f.Add("\xff\ufffd", 3)
	f.Fuzz(func(t *testing.T, s string, n int) {
		n = max(0, min(n, 1000))
		got := lenient.Text(s, n)
		if len(got) > n || !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) || got != strings.TrimSpace(got) {
			t.Errorf("%q becomes %q", s, got)
		}
		if again := lenient.Text(got, n); again != got {
			t.Errorf("%q becomes %q", got, again)
		}
	})
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]muster.Size{1.5: 3 << 29, 0: 0, -1: 0, math.NaN(): 0, math.Inf(1): 0, 1 << 20: 1 << 50, 1<<20 + 1: 0} {
		if got := lenient.GiB(v); got != want {
			t.Errorf("%v GiB are %d", v, got)
		}
	}
	if got := lenient.InGiB(1<<30 + 1<<29 + 12345); got != 1.5 {
		t.Errorf("the size is %v GiB", got)
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"", "null", "1", `"x"`, "[]", "{"} {
		if m := lenient.Object(json.RawMessage(raw)); len(m) > 0 {
			t.Errorf("%q has fields: %v", raw, m)
		}
	}
	m := lenient.Object(json.RawMessage(`{"a":"x","b":null,"c":1}`))
	if lenient.String(m["a"]) != "x" || lenient.String(m["b"]) != "" || lenient.String(m["c"]) != "" || lenient.String(m["d"]) != "" {
		t.Errorf("the texts of %v are wrong", m)
	}
	if !lenient.HasValue(m["a"]) || lenient.HasValue(m["b"]) || lenient.HasValue(m["d"]) {
		t.Errorf("the values of %v are wrong", m)
	}
	if lenient.NonZero("") != nil || *lenient.NonZero("x") != "x" {
		t.Error("NonZero is wrong")
	}
}
