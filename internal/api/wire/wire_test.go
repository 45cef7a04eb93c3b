package wire_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
)

func TestSpansRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spans := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) muster.Span {
			first := rapid.IntRange(0, muster.MaxTasks).Draw(t, "first")
			return muster.Span{First: first, Last: rapid.IntRange(first, muster.MaxTasks).Draw(t, "last")}
		}), 1, 20).Draw(t, "spans")
		text := wire.FormatSpans(spans)
		got, err := wire.ParseSpans(text)
		if err != nil || !slices.Equal(got, spans) {
			t.Fatalf("%v became %q and then %v, %v", spans, text, got, err)
		}
	})
}

func FuzzParseSpans(f *testing.F) {
	for _, s := range []string{"", "0", "0-9,12", "9-0", "-1", "1-", ",", "1,,2", " 3 ", "99999999999999999999", "0x1", "+1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		spans, err := wire.ParseSpans(s)
		if err != nil {
			if muster.CodeOf(err) != muster.Invalid {
				t.Errorf("%q: %v has code %s", s, err, muster.CodeOf(err))
			}
			return
		}
		if (spans == nil) != (s == "") {
			t.Errorf("%q means %v: only \"\" means all tasks", s, spans)
		}
		for _, sp := range spans {
			if sp.First < 0 || sp.Last < sp.First {
				t.Errorf("%q has the span %+v", s, sp)
			}
		}
	})
}

// Output survives JSON unchanged.
func FuzzLogLine(f *testing.F) {
	f.Add([]byte("text\n"))
	f.Add([]byte("\xff\xfe"))
	f.Add([]byte("\u2028 \ufffd \x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		text, err := json.Marshal(wire.NewLogLine(wire.Stdout, 1, data))
		if err != nil {
			t.Fatal(err)
		}
		var got wire.LogLine
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Data(), data) {
			t.Errorf("%q became %q by way of %s", data, got.Data(), text)
		}
		if bytes.ContainsAny(text, "\r\n") {
			t.Errorf("%s has line ends, which would end an event", text)
		}
	})
}
