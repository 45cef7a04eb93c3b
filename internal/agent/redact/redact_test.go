package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const secret = "s3cr3t/+value=\"é<😀>"

// A value is found as it is written by usual encoders, in any position.
func TestEncodingsAreReplaced(t *testing.T) {
	r := New([][]byte{[]byte("  " + secret + "\n")})
	marshal := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	var plainJSON bytes.Buffer
	enc := json.NewEncoder(&plainJSON)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(secret); err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{
		"itself":             secret,
		"JSON":               marshal(secret),
		"JSON without HTML":  plainJSON.String(),
		"JSON of Python":     `"s3cr3t/+value=\"\u00e9<\ud83d\ude00>"`,
		"JSON of PHP":        `"s3cr3t\/+value=\"\u00e9<\ud83d\ude00>"`,
		"query":              url.QueryEscape(secret),
		"lower case query":   strings.ToLower(url.QueryEscape(secret)),
		"path":               url.PathEscape(secret),
		"password of a URL":  url.UserPassword("u", secret).String(),
		"quote of Python":    "s3cr3t/%2Bvalue%3D%22%C3%A9%3C%F0%9F%98%80%3E",
		"encodeURIComponent": "s3cr3t%2F%2Bvalue%3D%22%C3%A9%3C%F0%9F%98%80%3E",
		"encodeURI":          "s3cr3t/+value=%22%C3%A9%3C%F0%9F%98%80%3E",
	}
	for name, text := range texts {
		got := r.String("before " + text + " after")
		if !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") || !strings.Contains(got, Mask) || strings.Contains(got, "value") {
			t.Errorf("%s: %s became %s", name, text, got)
		}
	}
	for before := range 7 {
		for after := range 4 {
			for _, e := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
				text := e.EncodeToString([]byte(strings.Repeat("x", before) + secret + strings.Repeat("y", after)))
				got := r.String(text)
				rest := strings.TrimRight(strings.Replace(got, Mask, "", 1), "=")
				// A character at each end may have bits of the value and of what is beside it.
				if most := (before+after)*4/3 + 2; got == text || len(rest) > most {
					t.Errorf("base64 with %d bytes before and %d after: %s became %s", before, after, text, got)
				}
			}
		}
	}
}

func TestLines(t *testing.T) {
	key := "-----BEGIN KEY-----\nAAAABBBBCCCCDDDD\r\n  EEEEFFFFGGGGHHHH\nshort\n-----END KEY-----\n"
	r := New([][]byte{[]byte(key), []byte("a0b1c2d3e4f5g6h7i8j9")})
	encoded := base64.StdEncoding.EncodeToString([]byte(key))
	for _, c := range []struct{ name, text, want string }{
		{"all lines", "key:\n" + key + "end", "key:\n***\n***\r\n***\n***\n***\nend"},
		{"one line, indented in another way", "    AAAABBBBCCCCDDDD\nEEEEFFFFGGGGHHHH\n", "    ***\n***\n"},
		{"in JSON", fmt.Sprintf("%q", "x"+key), `"x***\n"`},
		{"base64 in lines", "x\n" + encoded[:40] + "\n" + encoded[40:80] + "\r\n" + encoded[80:] + "\ny", "x\n***\n***\r\n***\ny"},
		{"a line break in it", "a0b1c2d3\ne4f5g6h7i8j9\n", "***\n***\n"},
		{"two line breaks in it", "a0b1c2d3e\n\nf4g5h6i7j8k9\n", "a0b1c2d3e\n\nf4g5h6i7j8k9\n"},
		{"a line break in its first bytes", "a0b1c2\nd3e4f5g6h7i8j9.", "a0b1c2\n***."},
		{"twice", "a0b1c2d3e4f5g6h7i8j9a0b1c2d3e4f5g6h7i8j9, a0b1c2d3e4f5g6h7i8j9", "***, ***"},
		{"a part", "a0b1c2d3e4f5", "a0b1c2d3e4f5"},
		{"no line", "short", "short"},
	} {
		if got := r.String(c.text); got != c.want {
			t.Errorf("%s:\n%q, want\n%q", c.name, got, c.want)
		}
	}
}

func TestOverlappingValues(t *testing.T) {
	r := New([][]byte{[]byte("abcdefghij"), []byte("fghijklmno"), []byte("cdefghijkl")})
	if got := r.String("-abcdefghijklmno+abcdefghij-"); got != "-***+***-" {
		t.Error(got)
	}
}

// A long value is replaced as a whole, also with lines of any length.
func TestLongValue(t *testing.T) {
	var value []byte
	for i := range 3000 {
		value = fmt.Appendf(value, "%x.", i*7919)
	}
	r := New([][]byte{value})
	encoded := base64.StdEncoding.EncodeToString(value)
	for _, width := range []int{13, 64, 76, 77, 1000} {
		var text strings.Builder
		for part := range slices.Chunk([]byte(encoded), width) {
			text.Write(part)
			text.WriteByte('\n')
		}
		for i, line := range strings.Split(strings.TrimRight(r.String(text.String()), "\n"), "\n") {
			if strings.TrimRight(line, "=") != Mask {
				t.Fatalf("lines of %d: line %d is %.80s", width, i, line)
			}
		}
	}
	if got := r.String(string(value)); got != Mask {
		t.Errorf("%.80s", got)
	}
}

func TestShortValuesAndNone(t *testing.T) {
	if r := New([][]byte{[]byte("1234567"), []byte("   1\n2345 \n"), nil}); r != nil {
		t.Errorf("%d patterns", len(r.patterns))
	}
	var r *Redactor
	if got := r.String("12345678"); got != "12345678" {
		t.Error(got)
	}
	if got := r.JSON(json.RawMessage(`"a"`)); string(got) != `"a"` {
		t.Errorf("%s", got)
	}
}

// A complete line is written at once, whatever it ends with; only the beginning of a value is held back.
func TestOnlyBeginningsAreHeldBack(t *testing.T) {
	s := New([][]byte{[]byte("abcdefghijkl"), []byte("x\nlonger line")}).NewStream()
	for _, c := range []struct{ piece, want string }{
		{"line\n", "line\n"}, {"line abcdef\n", "line abcdef\n"}, {"x\n", "x\n"}, {"prompt: ", "prompt: "},
		{"abc", ""}, {"d", ""}, {"z", "abcdz"}, {"x", ""}, {"z", "xz"},
		{"abcdefgh", ""}, {"\n", ""}, {"ijk", ""}, {"l", "***\n***"}, {"abcdefgh\n", ""}, {"no\n", "abcdefgh\nno\n"},
		{"abcdefghi", ""},
	} {
		if got := string(s.Write(nil, []byte(c.piece))); got != c.want {
			t.Errorf("%q: %q, want %q", c.piece, got, c.want)
		}
	}
	if got := string(s.Close(nil)); got != "abcdefghi" {
		t.Error(got)
	}
}

func TestEndlessLineBreaksAreNotHeldBack(t *testing.T) {
	s := New([][]byte{[]byte("abcdefghijkl")}).NewStream()
	s.Write(nil, []byte("abcdefgh"))
	for range 1000 {
		s.Write(nil, []byte("\r\n"))
	}
	if len(s.text) > 100 {
		t.Errorf("%d bytes are held back", len(s.text))
	}
}

// What a text costs that is made to cost much is counted.
func TestCost(t *testing.T) {
	var value []byte
	for i := range 20 {
		value = fmt.Appendf(append(value, bytes.Repeat([]byte("a"), maxPattern-overlap-4)...), "%04d", i)
	}
	s := New([][]byte{value}).NewStream()
	s.Write(nil, bytes.Repeat([]byte("a line of a usual text\n"), 100))
	if cost := s.TakeCost(); cost > 100 {
		t.Errorf("a usual text costs %d", cost)
	}
	s.Write(nil, bytes.Repeat([]byte("a"), 1000))
	if cost := s.TakeCost(); cost < 100_000 || s.TakeCost() != 0 {
		t.Errorf("the beginnings of values cost %d", cost)
	}
}

func TestJSON(t *testing.T) {
	r := New([][]byte{[]byte("password1"), []byte("1234567890"), []byte(`"user":"ada"`)})
	for _, c := range []struct{ raw, want string }{
		{`{"a": "password1", "b": [1, true, null, "ok"]}`, `{"a": "***", "b": [1, true, null, "ok"]}`},
		{`{"\u0070assword\u0031": 1}`, `{"***": 1}`},
		{`[1234567890, -1234567890.5, 123]`, `["***", "-***.5", 123]`},
		{`"a\\password1\n"`, `"a\\***\n"`},
		{`{"x":{"user":"ada"}}`, `"***"`},
		{`"{\"user\":\"ada\"}"`, `"{***}"`},
		{`1234567890`, `"***"`},
		{`null`, `null`},
		{`{"password1": `, `{"***": `},
		{`"\ud800 password1"`, "\"\ufffd ***\""},
	} {
		if got := string(r.JSON(json.RawMessage(c.raw))); got != c.want {
			t.Errorf("%s: %s, want %s", c.raw, got, c.want)
		}
	}
}

func TestJSONStaysValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringMatching(`["a1,:{}\\ -]{8,12}`).Draw(t, "value")
		texts := rapid.SliceOf(rapid.StringMatching(`["a1,:{}\\ -]{0,14}`)).Draw(t, "texts")
		raw, err := json.Marshal(map[string]any{"a": append(texts, value), value: 1})
		if err != nil {
			t.Fatal(err)
		}
		r := New([][]byte{[]byte(value)})
		got := r.JSON(raw)
		if !json.Valid(got) {
			t.Errorf("%s became %s", raw, got)
		}
		if r != nil && bytes.Contains(got, []byte(strings.TrimSpace(value))) {
			t.Errorf("%s has %s", got, value)
		}
	})
}

// naive is Bytes by the definition: every byte of every occurrence of a form is replaced.
func naive(values [][]byte, text string) string {
	var patterns []string
	for _, v := range values {
		for _, f := range append(forms(v), formsOfLines(v)...) {
			for n := range MinSize {
				if len(f)-n >= MinSize {
					patterns = append(patterns, f[n:])
				}
			}
		}
	}
	masked := make([]bool, len(text))
	for i := range text {
		for _, p := range patterns {
			if strings.ContainsAny(p[:MinSize], "\r\n") {
				continue
			}
			at, ok := i, true
			for k := range len(p) {
				for k >= MinSize && at < len(text) && text[at] != p[k] && lineBreak(text[at-1], text[at]) {
					at++
				}
				if ok = at < len(text) && text[at] == p[k]; !ok {
					break
				}
				at++
			}
			for k := i; ok && k < at; k++ {
				masked[k] = true
			}
		}
	}
	var out strings.Builder
	in := false
	for i := range len(text) {
		hidden := masked[i] && text[i] != '\n' && text[i] != '\r'
		switch {
		case !hidden:
			out.WriteByte(text[i])
		case !in:
			out.WriteString(Mask)
		}
		in = hidden
	}
	return out.String()
}

// A stream gives the same as the naive search of the whole text, however the text is split.
func FuzzStream(f *testing.F) {
	f.Add("password", "hunter2hunter2", "a password for hunter2hunter2hunter2", []byte{3, 1})
	f.Add("aaaaaaaaaa", "aaaaaaaab", strings.Repeat("a", 30)+"\naab"+strings.Repeat("a", 9), []byte{1})
	f.Add("line one\nb\nline two 2", "value & <more>", "line one\r\nb\nline two 2 line\none two value+%26+%3Cmore%3E", []byte{9, 2, 4})
	f.Add("0123456789", "é/😀\"\\\t zz", "MDEyMzQ1Njc4OQ== eDAxMjM0NTY3\nODk= \\u00e9\\/\\ud83d\\ude00", []byte{255})
	f.Fuzz(func(t *testing.T, a, b, text string, sizes []byte) {
		if len(a)+len(b) > 100 || len(text) > 400 { // the naive search is slow
			t.Skip()
		}
		values := [][]byte{[]byte(a), []byte(b)}
		r := New(values)
		if r == nil {
			return
		}
		want := naive(values, text)
		if got := r.String(text); got != want {
			t.Fatalf("%q in %q: %q, want %q", values, text, got, want)
		}
		s := r.NewStream()
		var out []byte
		for rest, n := []byte(text), 0; len(rest) > 0; n++ {
			size := 1
			if len(sizes) > 0 {
				size = min(len(rest), max(1, int(sizes[n%len(sizes)])))
			}
			piece := bytes.Clone(rest[:size])
			out = s.Write(out, piece)
			clear(piece) // the stream must not keep it
			rest = rest[size:]
		}
		if got := string(s.Close(out)); got != want {
			t.Fatalf("%q in %q in pieces of %v: %q, want %q", values, text, sizes, got, want)
		}
	})
}

// FuzzStream with texts that are made of pieces of the values' forms.
func TestStreamOfForms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alphabet := rapid.SampledFrom([]string{`[ab]`, `[a-f"/ <é\n]`, `[ -~]`}).Draw(t, "alphabet")
		values := [][]byte{[]byte(rapid.StringMatching(alphabet+`{8,24}`).Draw(t, "value")), []byte(rapid.StringMatching(alphabet+`{8,11}`).Draw(t, "other"))}
		r := New(values)
		if r == nil {
			return
		}
		all := append(forms(values[0]), forms(values[1])...)
		var text strings.Builder
		for range rapid.IntRange(1, 12).Draw(t, "pieces") {
			if rapid.Bool().Draw(t, "filler") || len(all) == 0 {
				text.WriteString(rapid.StringMatching(`[ab\r\n]{0,3}`).Draw(t, "between"))
				continue
			}
			form := rapid.SampledFrom(all).Draw(t, "form")
			from := rapid.IntRange(0, 2).Draw(t, "from")
			text.WriteString(form[from : len(form)-rapid.IntRange(0, 2).Draw(t, "cut")])
		}
		want := naive(values, text.String())
		s, size := r.NewStream(), rapid.IntRange(1, 9).Draw(t, "size")
		var out []byte
		for piece := range slices.Chunk([]byte(text.String()), size) {
			out = s.Write(out, piece)
		}
		if got := string(s.Close(out)); got != want {
			t.Fatalf("%q in %q: %q, want %q", values, text.String(), got, want)
		}
	})
}

func BenchmarkStream(b *testing.B) {
	line := []byte("2026-11-28T10:47:14Z INFO step 1234/100000 loss=0.1234 accuracy=0.98 tokens_per_second=12345.6\n")
	text := bytes.Repeat(line, 32<<10/len(line))
	for _, c := range []struct {
		name   string
		values int
	}{{"one value", 1}, {"thirty values", 30}} {
		b.Run(c.name, func(b *testing.B) {
			var values [][]byte
			for i := range c.values {
				values = append(values, fmt.Appendf(nil, "hf_%dAbCdEfGhIjKlMnOpQrStUvWxYz%d", i*7919, i))
			}
			s := New(values).NewStream()
			dst := make([]byte, 0, 2*len(text))
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				dst = s.Write(dst[:0], text)
			}
		})
	}
	b.Run("new", func(b *testing.B) {
		values := [][]byte{[]byte("hf_AbCdEfGhIjKlMnOpQrStUvWxYz")}
		for b.Loop() {
			New(values)
		}
	})
}
