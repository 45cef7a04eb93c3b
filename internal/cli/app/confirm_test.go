package app

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster"
)

// Without a terminal nothing is asked: what would be asked about is an error that names the option, in one line without control characters.
func TestConfirmFilesWithoutATerminal(t *testing.T) {
	for _, c := range []struct {
		existing, hidden []string
		allowed          WriteOptions
		want             string // "" means that the files may be written
	}{
		{},
		{existing: []string{"a"}, want: "a already exists: use --force to replace it"},
		{existing: []string{"a", "b"}, want: "a, b already exist: use --force to replace them"},
		{existing: strings.Split("abcdefgh", ""), want: "a, b, c, d, e and 3 more already exist: use --force to replace them"},
		{existing: []string{"a\x1b[2J\nb"}, want: "a [2J b already exists: use --force to replace it"},
		{existing: []string{"a"}, allowed: WriteOptions{Force: true}},
		{existing: []string{"a"}, allowed: WriteOptions{Hidden: true}, want: "a already exists: use --force to replace it"},
		{hidden: []string{".bashrc"}, want: ".bashrc is hidden: use --hidden to write it"},
		{hidden: []string{".a", ".b"}, allowed: WriteOptions{Force: true}, want: ".a, .b are hidden: use --hidden to write them"},
		{existing: []string{".a"}, hidden: []string{".a"}, allowed: WriteOptions{Force: true, Hidden: true}},
	} {
		a, out, errs := newApp()
		err := a.ConfirmFiles(t.Context(), c.existing, c.hidden, c.allowed)
		if c.want == "" && err != nil || c.want != "" && (muster.CodeOf(err) != muster.Conflict || err.Error() != c.want) {
			t.Errorf("%q, %q: error %v, want %q", c.existing, c.hidden, err, c.want)
		}
		if out.Len()+errs.Len() > 0 {
			t.Errorf("it wrote %q and %q", out, errs)
		}
	}
}

func TestIsHidden(t *testing.T) {
	for name, want := range map[string]bool{"": false, ".": false, "a": false, "a.b": false, "a/b.c": false, ".a": true, "a/.b": true, "a/.b/c": true, "..a": true} {
		if IsHidden(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}
