package dag

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestSplit(t *testing.T) {
	lit := func(s string) part { return part{text: s} }
	ref := func(s string) part { return part{text: s, ref: true} }
	for in, want := range map[string][]part{
		"":                        nil,
		"plain $x $$ {y}":         {lit("plain $x $$ {y}")},
		"${index}":                {ref("index")},
		"a${index}b${matrix.lr}":  {lit("a"), ref("index"), lit("b"), ref("matrix.lr")},
		"$${index}":               {lit("${index}")},
		"$$${index}":              {lit("$"), ref("index")},
		"$$$${index}":             {lit("$${index}")},
		"${HOME}/${index}":        {lit("${HOME}/"), ref("index")},
		"${index:-5} ${index":     {lit("${index:-5} ${index")},
		"${a${index}}":            {lit("${a"), ref("index"), lit("}")},
		"$$${HOME}":               {lit("$${HOME}")},
		"é${index}日":              {lit("é"), ref("index"), lit("日")},
		"${}${ index}${indexes}":  {lit("${}${ index}${indexes}")},
		"echo $$ > ${index}.pid$": {lit("echo $$ > "), ref("index"), lit(".pid$")},
	} {
		if d := cmp.Diff(want, split(in, isElementRef), cmp.AllowUnexported(part{})); d != "" {
			t.Errorf("split(%q): %s", in, d)
		}
	}
}

// genParts draws pieces that are hard to tell apart once they are joined.
var genParts = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) part {
	if rapid.Bool().Draw(t, "ref") {
		return part{text: rapid.SampledFrom([]string{"index", "matrix.lr"}).Draw(t, "body"), ref: true}
	}
	return part{text: rapid.StringMatching(`(\$|\{|\}|index|matrix\.lr|x){1,5}`).Draw(t, "text")}
}), 0, 6)

// merged joins neighbouring literals.
func merged(parts []part) []part {
	var out []part
	for _, p := range parts {
		if n := len(out); n > 0 && !p.ref && !out[n-1].ref {
			out[n-1].text += p.text
			continue
		}
		out = append(out, p)
	}
	return out
}

func TestSplitIsTheInverseOfJoin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := merged(genParts.Draw(t, "parts"))
		s := join(parts)
		if d := cmp.Diff(parts, split(s, isElementRef), cmp.AllowUnexported(part{})); d != "" {
			t.Fatalf("joined to %q: %s", s, d)
		}
	})
}

func FuzzSplit(f *testing.F) {
	for _, s := range []string{"", "${index}", "$${index}", "a${matrix.lr}$$${HOME}", "${train.result.a.0}", "${${index}}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		parts := split(s, isElementRef)
		length := 0
		for i, p := range parts {
			length += len(p.text)
			if p.text == "" || i > 0 && !p.ref && !parts[i-1].ref {
				t.Fatalf("split(%q) = %v", s, parts)
			}
		}
		if length > len(s) {
			t.Fatalf("split(%q) has more text than there was", s)
		}
		again := split(join(parts), isElementRef)
		if d := cmp.Diff(parts, again, cmp.AllowUnexported(part{})); d != "" {
			t.Fatalf("%q: %s", s, d)
		}
		if !strings.Contains(s, "${") && (len(parts) > 1 || len(parts) == 1 && parts[0].text != s) {
			t.Fatalf("%q holds nothing to replace, but became %v", s, parts)
		}
	})
}
