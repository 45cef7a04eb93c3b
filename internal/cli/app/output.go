package app

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"math"
	"regexp"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
)

// OutputOptions says how a command writes what it found.
type OutputOptions struct {
	Output string // "" or table, wide, json, yaml
	Quiet  bool   // ids only
}

// Flags are the options for it.
func (f *OutputOptions) Flags() []cli.Flag {
	return []cli.Flag{
		Option{Name: "output", Short: "o", Usage: "write a `FORMAT`: table, wide, json or yaml", Group: "Output"}.WithEnv().EnumVar(&f.Output, "table", "wide", "json", "yaml"),
		Option{Name: "quiet", Short: "q", Usage: "write ids only", Group: "Output"}.BoolVar(&f.Quiet),
	}
}

// Wide says whether every column is wanted.
func (f *OutputOptions) Wide() bool { return f.Output == "wide" }

// Human says whether a person reads the output.
func (f *OutputOptions) Human() bool { return !f.Quiet && f.Output != "json" && f.Output != "yaml" }

// Print writes one thing: its ids, itself as a document, or what draw draws.
func (a *App) Print(f OutputOptions, v any, ids []string, draw func() error) error {
	switch {
	case f.Quiet:
		for _, id := range ids {
			fmt.Fprintln(a.Out, id)
		}
		return nil
	case f.Output == "json":
		data, err := toJSON(v, "")
		if err != nil {
			return err
		}
		return WriteOutput(a.Out, append(data, '\n'))
	case f.Output == "yaml":
		data, err := toYAML(v)
		if err != nil {
			return err
		}
		return WriteOutput(a.Out, data)
	default:
		return draw()
	}
}

// WithBlankLines puts an empty line between the things that draw draws.
func WithBlankLines[T any](a *App, draw func(T) error) func(T) error {
	first := true
	return func(v T) error {
		if !first {
			fmt.Fprintln(a.Out)
		}
		first = false
		return draw(v)
	}
}

// PrintItems writes things as they are if there are several, and the thing itself
// if exactly one was asked for.
func PrintItems[T any](a *App, f OutputOptions, items []T, id func(T) string, draw func(T) error) error {
	var v any = items
	if len(items) == 1 {
		v = items[0]
	}
	ids := make([]string, len(items))
	for i, t := range items {
		ids[i] = id(t)
	}
	return a.Print(f, v, ids, func() error {
		for _, t := range items {
			if err := draw(t); err != nil {
				return err
			}
		}
		return nil
	})
}

// Listing is a list of things in the format that was asked for.
type Listing[T any] struct {
	OutputOptions
	Rows             iter.Seq2[T, error]
	Limit            int // 0 means all
	ID               func(T) string
	Table            *term.Table
	Row              func(T) []string
	EmptyMessage     string // said to a person if there is nothing
	TruncatedMessage string // said if the limit cut the list
}

// Write writes the list as it comes, without holding all of it in memory; only a
// table is drawn at the end.
func (l *Listing[T]) Write(a *App) error {
	limit := l.Limit
	if limit == 0 {
		limit = math.MaxInt
	}
	n, truncated := 0, false
	for v, err := range l.Rows {
		if err != nil {
			return err
		}
		if n == limit {
			truncated = true
			break
		}
		if err := l.writeItem(a, v, n); err != nil {
			return err
		}
		n++
	}
	switch {
	case l.Human() && n == 0:
		a.Messagef("%s", l.EmptyMessage)
	case l.Human():
		if err := l.Table.Draw(a.Out); err != nil {
			return err
		}
	case !l.Quiet && n == 0:
		return WriteOutput(a.Out, []byte("[]\n"))
	case !l.Quiet && l.Output == "json":
		if err := WriteOutput(a.Out, []byte("\n]\n")); err != nil {
			return err
		}
	}
	if truncated {
		a.Messagef("%s", l.TruncatedMessage)
	}
	return nil
}

func (l *Listing[T]) writeItem(a *App, v T, n int) error {
	switch {
	case l.Quiet:
		return WriteOutput(a.Out, []byte(l.ID(v)+"\n"))
	case l.Output == "json":
		data, err := toJSON(v, "  ")
		if err != nil {
			return err
		}
		start := ",\n  "
		if n == 0 {
			start = "[\n  "
		}
		return WriteOutput(a.Out, append([]byte(start), data...))
	case l.Output == "yaml":
		data, err := toYAML([]T{v})
		if err != nil {
			return err
		}
		return WriteOutput(a.Out, data)
	default:
		l.Table.AddRow(l.Row(v)...)
		return nil
	}
}

// toJSON writes a document for people and programs: indented, and commands as
// they were written. JSON's habit of escaping <, > and & is for web pages.
func toJSON(v any, prefix string) ([]byte, error) {
	data, err := json.MarshalIndent(v, prefix, "  ")
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return jsonEscape.ReplaceAllFunc(data, func(m []byte) []byte {
		switch string(m) {
		case `\u003c`:
			return []byte("<")
		case `\u003e`:
			return []byte(">")
		case `\u0026`:
			return []byte("&")
		default:
			return m
		}
	}), nil
}

// jsonEscape matches one escape at a time, so that an escaped backslash is not
// taken for the beginning of another one.
var jsonEscape = regexp.MustCompile(`\\(?:u[0-9a-f]{4}|.)`)

// WriteOutput writes to an output that the command is about.
func WriteOutput(w io.Writer, data []byte) error {
	if _, err := w.Write(data); err != nil {
		return muster.Errorf(muster.Internal, "writing the output failed: %w", err)
	}
	return nil
}
