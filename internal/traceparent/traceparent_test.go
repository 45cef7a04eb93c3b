package traceparent_test

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster/internal/traceparent"
)

const example = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestParse(t *testing.T) {
	for text, want := range map[string]bool{
		example: true,
		strings.Replace(example, "-01", "-00", 1): true,
		"01" + example[2:] + "-more":              true,
		"01" + example[2:]:                        true,
		"01" + example[2:] + "more":               false,
		example + "-more":                         false,
		"ff" + example[2:]:                        false,
		"zz" + example[2:]:                        false,
		strings.ToUpper(example):                  false,
		example[:54]:                              false,
		"":                                        false,
		strings.Repeat("0", 55):                   false,
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01": false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01": false,
		"00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01": false,
	} {
		p, ok := traceparent.Parse(text)
		if ok != want {
			t.Errorf("Parse(%q) is %t, want %t", text, ok, want)
		}
		if ok && p.String()[3:] != text[3:55] {
			t.Errorf("Parse(%q) is %s", text, p)
		}
		if ok && p.Sampled() != strings.Contains(text, "-01") {
			t.Errorf("%q: sampled is %t", text, p.Sampled())
		}
	}
}

var allowed = regexp.MustCompile(`^[a-z][a-z0-9]{15,63}$`) // see link.checkGroupSpec

func TestUIDsContainTheirParent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p traceparent.Parent
		copy(p.Trace[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "trace"))
		copy(p.Span[:], rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "span"))
		p.Flags = rapid.Byte().Draw(t, "flags")
		ctx := traceparent.NewContext(context.Background(), p)
		uid, other := traceparent.NewUID(ctx), traceparent.NewUID(ctx)
		if got, ok := traceparent.ParentOf(uid); !ok || got != p || uid == other || !allowed.MatchString(uid) {
			t.Fatalf("%s: %v, %t, want %v; the next one is %s", uid, got, ok, p, other)
		}
		if traceparent.TraceID(uid) != p.Trace {
			t.Fatalf("%s is of trace %x", uid, traceparent.TraceID(uid))
		}
	})
}

func TestUIDsWithoutParent(t *testing.T) {
	a, b := traceparent.NewUID(t.Context()), traceparent.NewUID(t.Context())
	if !allowed.MatchString(a) || a == b || traceparent.TraceID(a) == traceparent.TraceID(b) {
		t.Errorf("%s and %s are of traces %x and %x", a, b, traceparent.TraceID(a), traceparent.TraceID(b))
	}
	for _, uid := range []string{a, "", "t", "tabc", "t" + strings.Repeat("1", 56)} {
		if p, ok := traceparent.ParentOf(uid); ok {
			t.Errorf("%q has the parent %s", uid, p)
		}
	}
	if traceparent.SpanID(a, "job") == traceparent.SpanID(b, "job") || traceparent.SpanID(a, "job") == traceparent.SpanID(a, "run 1.0#1") {
		t.Error("spans share an identifier")
	}
	if n := testing.AllocsPerRun(100, func() { traceparent.ParentOf(a) }); n != 0 {
		t.Errorf("Of allocates %v times for a job without a parent", n)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(example)
	f.Fuzz(func(t *testing.T, s string) {
		if p, ok := traceparent.Parse(s); ok {
			if again, ok := traceparent.Parse(p.String()); !ok || again != p {
				t.Errorf("%q is %s, which is %s", s, p, again)
			}
		}
	})
}
