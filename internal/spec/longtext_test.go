package spec

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/muster-dev/muster"
)

// Block scalars are read as in YAML 1.2.
func TestBlockScalars(t *testing.T) {
	for text, want := range map[string]string{
		"|\n  a\n  b\n":                     "a\nb\n",
		"|\n  a":                            "a",
		"|\n  a\n\n\n":                      "a\n",
		"|-\n  a\n\n\n":                     "a",
		"|+\n  a\n\n\n":                     "a\n\n\n",
		"|\n\n\n  a\n":                      "\n\na\n",
		"|\n  a\n   b \n\n    \n  c\n":      "a\n b \n\n  \nc\n",
		"|2-\n   a\n  b\n":                  " a\nb",
		"|-1\n  a \n":                       " a ",
		"|  # why\n  # not\n  \"a\": 'b'\n": "# not\n\"a\": 'b'\n",
		"|\r\n  a\r\n\r\n  b\r\n":           "a\n\nb\n",
		">\n  a\n  b\n":                     "a b\n",
		">-\n  a\n\n\n  b\n":                "a\n\nb",
		">\n\n  a\n  b\n\n":                 "\na b\n",
		">\n  a\n   b\n   c\n  d\n":         "a\n b\n c\nd\n",
		">+\n  a\n\n   b\n\n  c\n\n":        "a\n\n b\n\nc\n\n",
		">\n  a\n  \tb\n  c\n":              "a\n\tb\nc\n",
		"|\n  \tall:\n  \t\ta\n":            "\tall:\n\t\ta\n",
	} {
		specs, err := Parse([]byte("image: x\nscript: "+text), "job.yaml")
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if got := specs[0].Tasks[0].Script.Text; got != want {
			t.Errorf("%q is read as %q, want %q", text, got, want)
		}
		if short, replaced := shorten("script: " + text); len(replaced) != 1 || len(short) > 60 {
			t.Errorf("%q is left to the library: %q", text, short)
		}
	}
}

// Empty block scalars, and what follows them, are read as in YAML 1.2.
func TestEmptyBlockScalars(t *testing.T) {
	for text, want := range map[string]string{
		"|\n": "", "|\n\n": "", ">-\n    \n\n": "", "|+\n": "", "|+\n\n  \n": "\n\n", "|2-\n\n": "", "|2\n   \n": " \n",
	} {
		docs, budget, wrong := yamlDocuments(t.Context(), "x-a: "+text+"\"x-b\": [a]\n")
		if wrong != nil {
			t.Errorf("%q: %v", text, wrong)
			continue
		}
		n := newDecoder(nil).fromYAML(docs[0].Body, &budget)
		if n.field("x-a").text != want || n.field("x-b") == nil || n.field("x-b").at != (place{2 + strings.Count(text[1:], "\n") - 1, 8}) {
			t.Errorf("%q is read as %q, want %q; the fields are %v", text, n.field("x-a").text, want, n.fields)
		}
	}
}

// A lone carriage return ends a line, which belongs to the block scalar if it is empty.
func TestCarriageReturnsInBlockScalars(t *testing.T) {
	for text, want := range map[string]string{"|\n\r  a\n": "\na\n", "|+\n  a\n\r\n\r  b\n": "a\n\n\nb\n"} {
		specs, err := Parse([]byte("image: x\nscript: "+text), "job.yaml")
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if got := specs[0].Tasks[0].Script.Text; got != want {
			t.Errorf("%q is read as %q, want %q", text, got, want)
		}
	}
}

// A string that looks like a placeholder is not replaced.
func TestTextsLikePlaceholders(t *testing.T) {
	for _, like := range []string{`"muster:\x20text 0"`, `"\u006Duster: text 0"`, "\"muster:\n  text 0\"", `"muster:\x20text 1"`} {
		for _, file := range []string{"x-text: " + like + "\nscript: |\n  a\n", "script: |\n  a\nx-text: " + like + "\n"} {
			docs, budget, wrong := yamlDocuments(t.Context(), file)
			if wrong != nil {
				t.Fatalf("%q: %v", file, wrong)
			}
			n := newDecoder(nil).fromYAML(docs[0].Body, &budget)
			if x, script := n.field("x-text").text, n.field("script").text; !strings.HasPrefix(x, "muster: text ") || script != "a\n" {
				t.Errorf("%q: x-text is read as %q, the script as %q", file, x, script)
			}
		}
	}
}

// Text after a replaced string keeps its place.
func TestPlacesBehindLongTexts(t *testing.T) {
	long := strings.Repeat("ä ", minQuoted)
	for text, want := range map[string]place{
		"script: |\n  a\n\n  b\nfoo: 1\n":                                     {5, 1},
		"script: >\r\n  a\r\n  b\r\nenv: {A: b}\r\nfoo: 1\r\n":                {5, 1},
		"tasks:\n- script: |\n    a\n    b\n- script: |-\n    c\n  foo: 1\n":  {7, 3},
		"x-a: '" + long + "'\nfoo: 1\n":                                       {2, 1},
		"x-a: [\"" + long + "\", '" + long + "']\nx-b: |\n  a\n  b\nfoo: 1\n": {5, 1},
		"run: a\nx-a: {b: \"" + long + "\", c: '" + long + "'}\nfoo: 1\n":     {3, 1},
		"env: {a: \"" + long + "\", b: '" + long + "', c: []}\nrun: a\n":      {1, 2*len([]rune(long)) + 24},
		"name: it's\nx-a: \"b\n  c: |\n    d\"\nfoo: 1\n":                     {5, 1},
	} {
		_, err := Parse([]byte(text), "job.yaml")
		e, ok := errors.AsType[*muster.Error](err)
		if !ok || !slices.ContainsFunc(e.Fields, func(f muster.FieldError) bool { return place{f.Line, f.Column} == want }) {
			t.Errorf("%.60q: no problem at %v: %.300v", text, want, err)
		}
	}
}

// libraryDiffers matches what the library reads differently from YAML 1.2: trailing white space, and tabs.
var libraryDiffers = regexp.MustCompile(`[ \t\r](?:\n|$)|\t`)

// libraryParses reports whether the library can parse a file. For others its tokens are not reliable.
func libraryParses(data string) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	_, err := parser.ParseBytes([]byte(data), 0)
	return err == nil
}

// The results and their places are the same as those of the library.
func FuzzShorten(f *testing.F) {
	for _, s := range []string{
		"run: |\n  a\n  b\n", "run: |-\n  a\n\n\n", "run: |+\n  a\n\n\nname: b\n", "run: >\n  a\n  b\n\n  c\n", "run: >-\n  a\n\n\n  b",
		"run: |2\n   a\n  b\n", "run: |1-\n  a\n  b\n", "tasks:\n- name: a\n  run: |\n    x\n\n     y\n  env: {A: b}\n- run: \"a\"\n",
		"x-a: &a | # comment\n  b\nrun: *a\n", "run:\n- |\n  a\n- - >\n    b\n    c\n", "a: \"b\n  c: |\n    d\"\ne: f\n", "a: b\n  c: |\n    d\n",
		"a: [\nb: |\n  c\n]\n", "a: |\r\n  b\r\n  c\r\nd: e\r\n", "a: |\n\n\n  b\n", "a: |\n    \n  b\n", "a: |\n  b\n c\n", "a: |\n\tb\n", "a: |\n  b\n# c\nd: |\n  e\n",
		"a: '" + strings.Repeat("b ", minQuoted) + "' # c\nd: e\n", "a: [\"" + strings.Repeat("\\n", minQuoted) + "\", b: c]\n", "---\na: |\n  b\n---\nc: >\n  d\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data string) {
		if !utf8.ValidString(data) || !libraryParses(data) {
			return
		}
		short, replaced := shorten(data)
		if replaced == nil {
			return
		}
		if slices.ContainsFunc(replaced, func(s longText) bool { return strings.Trim(s.text, "\n") == "" }) {
			return // the library misreads what follows an empty block scalar
		}
		ours := lexer.Tokenize(short)
		if !replaced.restore(ours) {
			return
		}
		theirs := lexer.Tokenize(data)
		next := 0
		for i, a := range ours {
			if next >= len(theirs) {
				t.Fatalf("%.200q: token %d, %q, is not in the file", data, i, a.Value)
			}
			b := theirs[next]
			next++
			block := a.Type == token.DoubleQuoteType && (b.Type == token.LiteralType || b.Type == token.FoldedType)
			if a.Position.Line != b.Position.Line || a.Position.Column != b.Position.Column || !block && (a.Type != b.Type || a.Value != b.Value && a.Type != token.InvalidType) {
				t.Fatalf("%.200q: token %d is %.200q at %v, and %.200q at %v in the file", data, i, a.Value, a.Position, b.Value, b.Position)
			}
			if !block {
				continue
			}
			if next < len(theirs) && theirs[next].Type == token.CommentType {
				next++
			}
			if next == len(theirs) {
				t.Fatalf("%.200q: %.200q is not in the file", data, a.Value)
			}
			if text := theirs[next].Value; text != a.Value && b.Value == "|" && !libraryDiffers.MatchString(data) {
				t.Fatalf("%.200q: read as %.200q, by the library as %.200q", data, a.Value, text)
			}
			next++
		}
		if next != len(theirs) {
			t.Fatalf("%.200q: %d tokens more in the file", data, len(theirs)-next)
		}
	})
}
