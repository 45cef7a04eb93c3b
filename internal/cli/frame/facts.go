package frame

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster/internal/cli/term"
)

// Facts is a list of names and values, one on each line. Empty values are left
// out.
type Facts struct {
	App   *App
	names []string
	texts []string
}

// Add adds a line.
func (f *Facts) Add(name, text string) {
	if text != "" {
		f.names = append(f.names, name)
		f.texts = append(f.texts, text)
	}
}

// Draw writes the lines, none wider than the screen.
func (f *Facts) Draw() error {
	width := 0
	for _, name := range f.names {
		width = max(width, len(name))
	}
	for i, name := range f.names {
		text := f.texts[i]
		if !strings.Contains(text, "\x1b") { // only what is short is painted
			text = term.Fit(term.Clean(text), max(f.App.Out.Width-width-2, 0))
		}
		if err := Write(f.App.Out, fmt.Appendf(nil, "%s  %s\n", f.App.Out.Paint(term.Bold, fmt.Sprintf("%-*s", width, name)), text)); err != nil {
			return err
		}
	}
	return nil
}
