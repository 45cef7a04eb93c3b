package app

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster/internal/cli/term"
)

// Details is a list of names and values, one on each line. Empty values are left
// out.
type Details struct {
	App    *App
	names  []string
	values []string
}

// Add adds a line.
func (f *Details) Add(name, value string) {
	if value != "" {
		f.names = append(f.names, name)
		f.values = append(f.values, value)
	}
}

// Draw writes the lines, none wider than the screen.
func (f *Details) Draw() error {
	width := 0
	for _, name := range f.names {
		width = max(width, len(name))
	}
	for i, name := range f.names {
		value := f.values[i]
		if !strings.Contains(value, "\x1b") { // only what is short is painted
			value = term.Truncate(term.Sanitize(value), max(f.App.Out.Width-width-2, 0))
		}
		if err := WriteOutput(f.App.Out, fmt.Appendf(nil, "%s  %s\n", f.App.Out.Paint(term.Bold, fmt.Sprintf("%-*s", width, name)), value)); err != nil {
			return err
		}
	}
	return nil
}
