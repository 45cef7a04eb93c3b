package client

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func TestIgnore(t *testing.T) {
	tests := []struct {
		rules string
		yes   string // space-separated; a / at the end means a folder
		no    string
	}{
		{"", ".git/ a/.git .muster/ a/b/.muster/", "git a .gitignore .musterignore"},
		{"# comment\n\n*.pt", "x.pt a/x.pt", "x.ptx pt"},
		{"/build", "build build/", "a/build"},
		{"build/", "build/ a/build/", "build"},
		{"a/b", "a/b", "b x/a/b a"},
		{"**/logs", "logs a/logs a/b/logs", "logs2"},
		{"a/**", "a/b a/b/c", "a b"},
		{"a/**/z", "a/z a/b/z a/b/c/z", "a/b z"},
		{"*.log\n!keep.log", "x.log", "keep.log a/keep.log"},
		{"data[0-9].csv\nx?z", "data1.csv xyz", "datax.csv xz"},
		{`\#odd` + "\n" + `\!loud`, "#odd !loud", "odd"},
		{"trailing   \r\n/\n!\n", "trailing", "a"},
	}
	for _, tt := range tests {
		ig, err := parseIgnore([]byte(tt.rules))
		if err != nil {
			t.Errorf("%q: %v", tt.rules, err)
			continue
		}
		for want, names := range map[bool]string{true: tt.yes, false: tt.no} {
			for name := range strings.FieldsSeq(names) {
				path, dir := strings.CutSuffix(name, "/")
				if got := ig.match(path, dir); got != want {
					t.Errorf("rules %q: %q is ignored: %t, want %t", tt.rules, name, got, want)
				}
			}
		}
	}
}

// matchParts agrees with the definition of a pattern, which takes exponential time.
func TestMatchPartsMatchesTheDefinition(t *testing.T) {
	var plain func(pattern, parts []string) bool
	plain = func(pattern, parts []string) bool {
		if len(pattern) == 0 {
			return len(parts) == 0
		}
		if pattern[0] == "**" {
			if len(pattern) == 1 {
				return len(parts) > 0
			}
			return plain(pattern[1:], parts) || len(parts) > 0 && plain(pattern, parts[1:])
		}
		return len(parts) > 0 && (pattern[0] == "*" || pattern[0] == parts[0]) && plain(pattern[1:], parts[1:])
	}
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.SliceOfN(rapid.SampledFrom([]string{"**", "*", "a", "b"}), 1, 6).Draw(t, "pattern")
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 7).Draw(t, "parts")
		if got, want := matchParts(pattern, parts), plain(pattern, parts); got != want {
			t.Fatalf("%v matches %v: %t, want %t", pattern, parts, got, want)
		}
	})
}

// A last rule that negates a path always includes it, except .git and .muster.
func FuzzIgnore(f *testing.F) {
	f.Add("*.pt\n!keep\n", "a/b.pt")
	f.Add("**/**/a/**\n[", "a")
	f.Fuzz(func(t *testing.T, rules, name string) {
		ig, err := parseIgnore([]byte(rules))
		if err != nil || name == "" {
			return
		}
		first := ig.match(name, false)
		ig.rules = append(ig.rules, ignoreRule{parts: []string{"**"}, negate: true})
		last := name[strings.LastIndexByte(name, '/')+1:]
		if got := ig.match(name, false); got != (last == ".git" || last == ".muster") {
			t.Errorf("rules %q, name %q: %t, then %t after negating all", rules, name, first, got)
		}
	})
}

// Events and keep-alives are read in any pieces, and the reader distinguishes a stream that ends
// within an event from one that ends between two.
func FuzzEvents(f *testing.F) {
	f.Add("output", "1-16", "line\nother line", uint8(3), uint16(9))
	f.Add("", "", "x", uint8(1), uint16(500))
	f.Fuzz(func(t *testing.T, name, id, data string, n uint8, cut uint16) {
		if strings.ContainsAny(name+id+data, "\r\n\x00") {
			return
		}
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, ": beat\nevent: none\nid: beat-%d\n\nevent: %s\nid: %s\ndata: %s\ndata: more\n\n", i, name, id, data)
		}
		text := b.String()
		whole := text[:min(len(text), int(cut))]
		count, keepAlives := 0, 0
		r := newEventReader(iotest.OneByteReader(strings.NewReader(whole)), func() {})
		for {
			ev, err := r.next()
			if err != nil {
				switch {
				case strings.HasSuffix(whole, "data: more\n\n") && !errors.Is(err, io.EOF),
					strings.HasSuffix(whole, "data: more\n") && !errors.Is(err, io.ErrUnexpectedEOF):
					t.Errorf("%q ends with %v", whole, err)
				}
				break
			}
			if keepAlives == count {
				if ev.name != "" || ev.id != fmt.Sprintf("beat-%d", keepAlives) || ev.data != nil {
					t.Fatalf("got %+v, want a keep-alive", ev)
				}
				keepAlives++
				continue
			}
			if ev.name != name || ev.id != id || string(ev.data) != data+"\nmore" {
				t.Fatalf("got %+v", ev)
			}
			count++
		}
		if want := strings.Count(whole, "data: more\n\n"); count != want && !strings.Contains(data, "data: more") {
			t.Errorf("%d events in %q, want %d", count, whole, want)
		}
	})
}
