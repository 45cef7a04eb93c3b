package results

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

// Format is a form of the table.
type Format int

// The formats.
const (
	None Format = iota
	Table
	CSV
	Parquet
)

// Target is what is written, and where.
type Target struct {
	Format Format
	File   string // to write; "" means standard output, which Parquet cannot be written to
	Force  bool   // replace an existing file
}

// Write writes the results of the selected tasks, in their order.
func Write(ctx context.Context, a *app.App, server *client.Client, sels []remote.Selector, to Target) error {
	return write(ctx, a, to, func(yield func(row, error) bool) {
		var job *muster.Job
		for t, err := range remote.Tasks(ctx, server, sels, nil) {
			if err == nil && (job == nil || job.ID != t.ID.Job) {
				job, err = readJob(ctx, server, t.ID.Job)
			}
			if !yield(row{job, &t}, err) || err != nil {
				return
			}
		}
	})
}

func readJob(ctx context.Context, server *client.Client, id muster.JobID) (*muster.Job, error) {
	job, err := server.Job(ctx, id)
	return &job, err
}

// write reads all rows, and writes them to the target.
func write(ctx context.Context, a *app.App, to Target, rows iter.Seq2[row, error]) error {
	if err := confirm(ctx, a, to); err != nil {
		return err
	}
	s, err := newSpool()
	if err != nil {
		return err
	}
	defer s.close()
	columns := newSchema()
	for r, err := range rows {
		if err != nil {
			return err
		}
		columns.add(r)
		if err := s.add(r); err != nil {
			return err
		}
	}
	if err := s.finish(); err != nil {
		return err
	}
	columns.finish()
	if columns.omitted > 0 {
		a.Messagef("the results have more than %d fields: only the column result has the others", maxFields)
	}
	if to.File == "" {
		if to.Format == Table {
			return drawTable(a.Out, columns, s)
		}
		return writeCSV(a.Out.Untrusted(), columns, s)
	}
	err = atomicfile.WriteFunc(to.File, 0o644, func(f io.Writer) error {
		if to.Format == Parquet {
			return writeParquet(f, columns, s)
		}
		return writeCSV(f, columns, s)
	})
	if err != nil {
		return muster.Errorf(muster.Invalid, "write %s: %w", to.File, err)
	}
	a.Messagef("%s: %s", term.Sanitize(to.File), term.Plural(s.rows, "task"))
	return nil
}

// confirm asks before a file is replaced, and refuses what is none.
func confirm(ctx context.Context, a *app.App, to Target) error {
	if to.File == "" {
		return nil
	}
	switch info, err := os.Stat(to.File); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return muster.Errorf(muster.Invalid, "write the results: %w", err)
	case !info.Mode().IsRegular():
		return muster.Errorf(muster.Invalid, "%s is not a file: give the path of a file to write", to.File)
	}
	return a.ConfirmFiles(ctx, []string{to.File}, nil, app.WriteOptions{Force: to.Force})
}

// writeCSV writes a header and one line for each row, as RFC 4180 says but with line feeds. Spreadsheets execute cells that begin like a
// formula, also those of files that others made, so texts that do get an apostrophe before them.
func writeCSV(dst io.Writer, columns *schema, s *spool) error {
	buffered := bufio.NewWriterSize(dst, 64<<10)
	w := csv.NewWriter(buffered)
	all := columns.all()
	cells := make([]string, len(all))
	for i, c := range all {
		cells[i] = harmless(c.name)
	}
	if err := w.Write(cells); err != nil {
		return err
	}
	for r, err := range s.all() {
		if err != nil {
			return err
		}
		for i, v := range columns.values(r) {
			if cells[i] = format(v); all[i].kind == text {
				cells[i] = harmless(cells[i])
			}
		}
		if err := w.Write(cells); err != nil {
			return err
		}
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return err
	}
	return buffered.Flush()
}

// harmless returns a text that no spreadsheet takes for a formula. Numbers are not changed.
func harmless(s string) string {
	if s == "" || !strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return s
	}
	if _, isText := literal(s).(string); !isText {
		return s
	}
	return "'" + s
}

// drawTable draws where each task is in its job, its parameters, its state, and the fields of its result.
func drawTable(screen term.Screen, columns *schema, s *spool) error {
	var order []int // columns of the table
	var heads []term.Column
	addFixed := func(name string, head term.Column) {
		i := slices.IndexFunc(columns.all(), func(c column) bool { return c.name == name })
		head.Title = strings.ToUpper(name)
		order, heads = append(order, i), append(heads, head)
	}
	addFields := func(ofResult bool) {
		for i, c := range columns.columns {
			if name, isResult := strings.CutPrefix(c.name, "result."); isResult == ofResult {
				name = term.Sanitize(strings.TrimPrefix(name, "param."))
				order, heads = append(order, len(fixed)+i), append(heads, term.Column{Title: name, AlignRight: c.kind == integer || c.kind == number})
			}
		}
	}
	addFixed("task", term.Column{NoTruncate: true})
	addFixed("stage", term.Column{})
	addFixed("index", term.Column{AlignRight: true, NoTruncate: true})
	addFields(false)
	addFixed("state", term.Column{NoTruncate: true, Style: app.StateStyle})
	addFields(true)
	addFixed("result", term.Column{})
	lines := func(yield func([]string, error) bool) {
		for r, err := range s.all() {
			var cells []string
			if err == nil {
				values := columns.values(r)
				for _, i := range order {
					cells = append(cells, format(values[i]))
				}
				if last := len(cells) - 1; strings.HasPrefix(cells[last], "{") {
					cells[last] = "" // its fields have columns
				}
			}
			if !yield(cells, err) {
				return
			}
		}
	}
	table := term.NewTable(heads...)
	for cells, err := range lines {
		if err != nil {
			return err
		}
		table.Measure(cells...)
	}
	return table.Stream(screen, lines)
}
