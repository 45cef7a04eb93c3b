package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"math"

	"github.com/goccy/go-yaml"
	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
)

// format says how a command writes what it found.
type format struct {
	output string // "" or table, wide, json, yaml
	quiet  bool   // ids only
}

func (f *format) flags() []cli.Flag {
	return []cli.Flag{
		option{name: "output", short: "o", usage: "write a `FORMAT`: table, wide, json or yaml", group: "Output"}.variable().choice(&f.output, "table", "wide", "json", "yaml"),
		option{name: "quiet", short: "q", usage: "write ids only", group: "Output"}.on(&f.quiet),
	}
}

func (f *format) wide() bool { return f.output == "wide" }

// people says whether a person reads the output.
func (f *format) people() bool { return !f.quiet && f.output != "json" && f.output != "yaml" }

// show writes one thing: its ids, itself as a document, or what draw draws.
func (a *app) show(f format, v any, ids []string, draw func() error) error {
	switch {
	case f.quiet:
		for _, id := range ids {
			fmt.Fprintln(a.out, id)
		}
		return nil
	case f.output == "json":
		data, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		return write(a.out, append(data, '\n'))
	case f.output == "yaml":
		data, err := toYAML(v)
		if err != nil {
			return err
		}
		return write(a.out, data)
	default:
		return draw()
	}
}

// showSome writes things as they are if there are several, and the thing itself
// if exactly one was asked for.
func showSome[T any](a *app, f format, things []T, id func(T) string, draw func(T) error) error {
	var v any = things
	if len(things) == 1 {
		v = things[0]
	}
	ids := make([]string, len(things))
	for i, t := range things {
		ids[i] = id(t)
	}
	return a.show(f, v, ids, func() error {
		for i, t := range things {
			if i > 0 {
				fmt.Fprintln(a.out)
			}
			if err := draw(t); err != nil {
				return err
			}
		}
		return nil
	})
}

// listing is a list of things in the format that was asked for.
type listing[T any] struct {
	format
	rows  iter.Seq2[T, error]
	limit int // 0 means all
	id    func(T) string
	table *term.Table
	row   func(T) []string
	empty string // said to a person if there is nothing
	more  string // said if the limit cut the list
}

// write writes the list as it comes, without holding all of it in memory; only a
// table is drawn at the end.
func (l *listing[T]) write(a *app) error {
	limit := l.limit
	if limit == 0 {
		limit = math.MaxInt
	}
	n, cut := 0, false
	for v, err := range l.rows {
		if err != nil {
			return err
		}
		if n == limit {
			cut = true
			break
		}
		if err := l.one(a, v, n); err != nil {
			return err
		}
		n++
	}
	switch {
	case l.people() && n == 0:
		a.say("%s", l.empty)
	case l.people():
		if err := l.table.Draw(a.out); err != nil {
			return err
		}
	case !l.quiet && n == 0:
		return write(a.out, []byte("[]\n"))
	case !l.quiet && l.output == "json":
		if err := write(a.out, []byte("\n]\n")); err != nil {
			return err
		}
	}
	if cut {
		a.say("%s", l.more)
	}
	return nil
}

func (l *listing[T]) one(a *app, v T, n int) error {
	switch {
	case l.quiet:
		return write(a.out, []byte(l.id(v)+"\n"))
	case l.output == "json":
		data, err := json.MarshalIndent(v, "  ", "  ")
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		start := ",\n  "
		if n == 0 {
			start = "[\n  "
		}
		return write(a.out, append([]byte(start), data...))
	case l.output == "yaml":
		data, err := toYAML([]T{v})
		if err != nil {
			return err
		}
		return write(a.out, data)
	default:
		l.table.Row(l.row(v)...)
		return nil
	}
}

// toYAML goes through JSON, so that both have the same names and forms.
func toYAML(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	data, err = yaml.JSONToYAML(data)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return append(bytes.TrimRight(data, "\n"), '\n'), nil
}

func write(w io.Writer, data []byte) error {
	if _, err := w.Write(data); err != nil {
		return muster.Errorf(muster.Internal, "writing the output failed: %w", err)
	}
	return nil
}

// stateStyle colours the state of a job, task or worker.
func stateStyle(state string) term.Style {
	switch state {
	case "succeeded", "active":
		return term.Green
	case "failed", "timed_out", "gone", "unreachable":
		return term.Red
	case "running", "assigned", "cancelling", "draining":
		return term.Blue
	case "queued", "waiting", "paused":
		return term.Yellow
	default:
		return term.Dim
	}
}
