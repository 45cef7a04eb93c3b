package app

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
)

// OutputOptions is the format of a command's output.
type OutputOptions struct {
	Output     string // "" or table, wide, json, yaml, name, or jsonpath=TEMPLATE
	Quiet      bool   // ids only
	QuietUsage string // of --quiet; "" means that it prints ids

	template string // of jsonpath=TEMPLATE
}

// Flags returns the options.
func (f *OutputOptions) Flags() []cli.Flag {
	output := Option{
		Name: "output", Short: "o", Value: "format", Usage: "Output format: table, wide, json, yaml, name or jsonpath=TEMPLATE", Group: "Output",
		Complete: Values(formats...),
	}.WithEnv()
	return []cli.Flag{
		Var(output, &f.Output, f.parse, func(s string) string { return s }),
		Option{Name: "quiet", Short: "q", Usage: cmp.Or(f.QuietUsage, "Print only IDs"), Group: "Output"}.BoolVar(&f.Quiet),
	}
}

// formats are the values of --output, beside jsonpath=TEMPLATE.
var formats = []string{"table", "wide", "json", "yaml", "name"}

func (f *OutputOptions) parse(s string) (string, error) {
	if text, ok := strings.CutPrefix(s, jsonPathPrefix); ok {
		var err error
		f.template, err = checkJSONPath(text)
		return s, err
	}
	if !slices.Contains(formats, s) {
		return "", fmt.Errorf("must be one of table, wide, json, yaml, name, jsonpath=TEMPLATE")
	}
	f.template = "" // one from a variable
	return s, nil
}

// Wide reports whether all columns are requested.
func (f *OutputOptions) Wide() bool { return f.Output == "wide" }

// Human reports whether the output is for people: a table, not a document or ids.
func (f *OutputOptions) Human() bool {
	return !f.onlyIDs() && f.template == "" && f.Output != "json" && f.Output != "yaml"
}

func (f *OutputOptions) onlyIDs() bool { return f.Quiet || f.Output == "name" }

// isDocument reports whether the output is JSON or YAML, in which an empty list is written, too.
func (f *OutputOptions) isDocument() bool { return !f.Human() && !f.onlyIDs() && f.template == "" }

// Print writes ids, v as a document, or calls draw, depending on the format.
func (a *App) Print(f OutputOptions, v any, ids []string, draw func() error) error {
	switch {
	case f.onlyIDs():
		for _, id := range ids {
			if err := a.WriteLine(id); err != nil {
				return err
			}
		}
		return nil
	case f.template != "":
		return writeJSONPath(a.Out, f.template, v)
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

// PrintLine is Print for one of a series of values: JSON is one line, and YAML one document of a stream.
func (a *App) PrintLine(f OutputOptions, v any, id string, draw func() error) error {
	switch {
	case f.isDocument() && f.Output == "json":
		data, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		return WriteOutput(a.Out, append(plainJSON(data), '\n'))
	case f.isDocument():
		if err := WriteOutput(a.Out, []byte("---\n")); err != nil {
			return err
		}
	}
	return a.Print(f, v, []string{id}, draw)
}

// WithBlankLines returns draw with an empty line between its calls.
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

// PrintItems prints items: as a list in a document, or as the item itself if there is exactly one. A template is applied to each item.
func PrintItems[T any](a *App, f OutputOptions, items []T, id func(T) string, draw func(T) error) error {
	if f.template != "" && !f.Quiet {
		for _, t := range items {
			if err := writeJSONPath(a.Out, f.template, t); err != nil {
				return err
			}
		}
		return nil
	}
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

// Listing is a list in the requested format.
type Listing[T any] struct {
	OutputOptions
	Rows             iter.Seq2[T, error]
	Limit            int  // 0 means all
	DefaultLimit     bool // the user did not set Limit
	ID               func(T) string
	Name             func(T) string // for -o name; nil means ID
	Columns          []term.Column
	Row              func(v T, now time.Time) []string
	EmptyMessage     string // for people, if there are no rows
	TruncatedMessage string // for people, if there are more rows than the default Limit
}

// Seq returns the elements of a slice as rows.
func Seq[T any](all []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, v := range all {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// Write writes rows as they arrive and keeps none in memory, except for a table, which is drawn at the end.
func (l *Listing[T]) Write(a *App) error {
	limit := l.Limit
	if limit == 0 {
		limit = math.MaxInt
	}
	n, truncated := 0, false
	table, now := term.NewTable(l.Columns...), time.Now()
	for v, err := range l.Rows {
		if err != nil {
			return err
		}
		if n == limit {
			truncated = true
			break
		}
		if l.Human() {
			table.AddRow(l.Row(v, now)...)
		} else if err := l.writeItem(a, v, n); err != nil {
			return err
		}
		n++
	}
	switch {
	case l.Human() && n == 0:
		a.Messagef("%s", l.EmptyMessage)
	case l.Human():
		if err := table.Draw(a.Out); err != nil {
			return err
		}
	case l.isDocument() && n == 0:
		return WriteOutput(a.Out, []byte("[]\n"))
	case l.isDocument() && l.Output == "json":
		if err := WriteOutput(a.Out, []byte("\n]\n")); err != nil {
			return err
		}
	}
	if truncated && l.DefaultLimit && l.Human() {
		a.Messagef("%s", l.TruncatedMessage)
	}
	return nil
}

func (l *Listing[T]) writeItem(a *App, v T, n int) error {
	switch {
	case l.onlyIDs() && !l.Quiet && l.Name != nil:
		return a.WriteLine(l.Name(v))
	case l.onlyIDs():
		return a.WriteLine(l.ID(v))
	case l.template != "":
		return writeJSONPath(a.Out, l.template, v)
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
	default:
		data, err := toYAML([]T{v})
		if err != nil {
			return err
		}
		return WriteOutput(a.Out, data)
	}
}

// toJSON encodes v with indentation, and without escapes for <, > and &.
func toJSON(v any, prefix string) ([]byte, error) {
	data, err := json.MarshalIndent(v, prefix, "  ")
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return plainJSON(data), nil
}

// plainJSON returns a document without escapes for <, > and &, but with those for characters that do not show as themselves on a terminal.
func plainJSON(data []byte) []byte {
	return escapeUnsafe(jsonEscapes.Replace(string(data)), func(b []byte, r rune) []byte {
		for _, unit := range utf16.AppendRune(nil, r) {
			b = fmt.Appendf(b, `\u%04x`, unit)
		}
		return b
	})
}

// escapeUnsafe escapes characters in the strings of a document, which has none elsewhere except for line feeds.
func escapeUnsafe(document string, escape func(b []byte, r rune) []byte) []byte {
	b := make([]byte, 0, len(document))
	for _, r := range document {
		if r != '\n' && term.Unsafe(r) {
			b = escape(b, r)
		} else {
			b = utf8.AppendRune(b, r)
		}
	}
	return b
}

// jsonEscapes has the escaped backslash, too, so that it does not start another escape.
var jsonEscapes = strings.NewReplacer(`\\`, `\\`, `\u003c`, "<", `\u003e`, ">", `\u0026`, "&")

// WriteLine writes a line to standard output. On a terminal it is one line, whatever the text has.
func (a *App) WriteLine(text string) error {
	if a.Out.Terminal {
		text = term.Sanitize(text)
	}
	return WriteOutput(a.Out, []byte(text+"\n"))
}

// WriteOutput writes to the output of a command.
func WriteOutput(w io.Writer, data []byte) error {
	if _, err := w.Write(data); err != nil {
		return muster.Errorf(muster.Internal, "write output: %w", err)
	}
	return nil
}

// Details is a list of names and values, one per line, without empty values.
type Details struct {
	App    *App
	names  []string
	values []string
	styles []term.Style
}

// Add adds a line.
func (f *Details) Add(name, value string) { f.AddPainted(name, term.Plain, value) }

// AddLines adds a text of several lines.
func (f *Details) AddLines(name, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		f.Add(name, line)
		name = ""
	}
}

// AddPainted adds a line whose value has a style.
func (f *Details) AddPainted(name string, style term.Style, value string) {
	if value != "" {
		f.names, f.values, f.styles = append(f.names, name), append(f.values, value), append(f.styles, style)
	}
}

// Draw writes the lines, truncated to the width of the screen.
func (f *Details) Draw() error {
	width := 0
	for _, name := range f.names {
		width = max(width, len(name))
	}
	for i, name := range f.names {
		value := f.App.Out.Paint(f.styles[i], term.Truncate(term.Sanitize(f.values[i]), max(f.App.Out.Width-width-2, 0)))
		if err := WriteOutput(f.App.Out, fmt.Appendf(nil, "%s  %s\n", f.App.Out.Paint(term.Bold, fmt.Sprintf("%-*s", width, name)), value)); err != nil {
			return err
		}
	}
	return nil
}
