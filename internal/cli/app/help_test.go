package app

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster/internal/cli/term"
)

func TestWrapHelp(t *testing.T) {
	t.Parallel()
	const text = `Start a thing that has a description of more words than fit

Options:
  -o, --output format  Output format: table, wide, json, yaml, name or a template
      --short          Fits
Examples:
  muster start --with a-long-option --and another  Start it
`
	const want = `Start a thing that has a description of more words than
fit

Options:
  -o, --output format  Output format: table, wide,
                       json, yaml, name or a template
      --short          Fits
Examples:
  muster start --with a-long-option --and another
        Start it
`
	if got := wrapHelp(text, 55); got != want {
		t.Errorf("%s", got)
	}
	if got := wrapHelp(text, 0); got != text {
		t.Errorf("without a width: %s", got)
	}
}

func TestWrapHelpKeepsWords(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.StringMatching(`( {0,8}[a-z-]{1,12}){0,12}`), 0, 8).Draw(t, "lines"), "\n") + "\n"
		width := rapid.IntRange(1, 100).Draw(t, "width")
		got := wrapHelp(text, width)
		if !slices.Equal(strings.Fields(got), strings.Fields(text)) {
			t.Fatalf("words changed: %q", got)
		}
		for line := range strings.Lines(got) {
			if line = strings.TrimRight(line, "\n"); width >= 60 && term.Width(line) > width && !strings.Contains(text, line) {
				t.Fatalf("a line has more than %d columns: %q", width, line)
			}
		}
	})
}
