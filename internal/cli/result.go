package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/results"
)

type resultConfig struct {
	remote.ServerOptions
	output  string
	table   bool
	csv     bool
	parquet string
	force   bool
}

func (a *runner) resultCommand() *cli.Command {
	c := &resultConfig{}
	return a.NewCommand(app.Command{
		Name: "result", Usage: "Print the results of tasks (their result.json)", Args: "JOB|TASK…", Complete: c.CompleteSelectors(), Category: app.CategoryResults,
		Examples: []app.HelpRow{
			{Name: "muster result 17.3", Usage: "Print the result of a task as JSON"},
			{Name: "muster result 17 --table", Usage: "Compare the results of the elements of a job"},
			{Name: "muster result 17 --parquet sweep.parquet", Usage: "Write them to a file for DuckDB, pandas or Polars"},
		},
		Flags: append([]cli.Flag{
			app.Option{Name: "output", Short: "o", Value: "format", Usage: "Output format: json or yaml", Group: "Output"}.EnumVar(&c.output, "json", "yaml"),
			app.Option{Name: "table", Usage: "Print a table with one row for each task and one column for each field", Group: "Output"}.BoolVar(&c.table),
			app.Option{Name: "csv", Usage: "Print this table as CSV, with all columns of a task", Group: "Output"}.BoolVar(&c.csv),
			app.Option{Name: "parquet", Value: "path", Usage: "Write this table to a Parquet file", Group: "Output"}.StringVar(&c.parquet),
			app.Option{Name: "force", Short: "f", Usage: "Replace an existing file without asking", Group: "Output"}.BoolVar(&c.force),
		}, c.Flags()...),
		Description: "The result of one task is printed unchanged, those of several tasks as an object with the task numbers as keys. " +
			"A table has the tasks in any state. In CSV, texts that spreadsheets would take for formulas have an apostrophe before them.",
		Run: func(ctx context.Context, args []string) error { return a.result(ctx, c, args) },
	})
}

// target returns the table that the options ask for.
func (c *resultConfig) target() (results.Target, error) {
	to := results.Target{File: c.parquet, Force: c.force}
	n := 0
	for _, o := range []struct {
		set    bool
		format results.Format
	}{{c.output != "", results.None}, {c.table, results.Table}, {c.csv, results.CSV}, {c.parquet != "", results.Parquet}} {
		if o.set {
			n, to.Format = n+1, o.format
		}
	}
	if n > 1 {
		return to, muster.Errorf(muster.Invalid, "--output, --table, --csv and --parquet are mutually exclusive: use one of them")
	}
	return to, nil
}

func (a *runner) result(ctx context.Context, c *resultConfig, args []string) error {
	to, err := c.target()
	if err != nil {
		return err
	}
	server, sels, err := c.Select(ctx, args)
	if err != nil {
		return err
	}
	if to.Format != results.None {
		return results.Write(ctx, a.App, server, sels, to)
	}
	object, tasks := bytes.NewBufferString("{"), 0
	var only muster.Task
	var last json.RawMessage
	for t, err := range remote.Tasks(ctx, server, sels, nil) {
		if err != nil {
			return err
		}
		tasks++
		only = t
		if len(t.Result) == 0 {
			continue
		}
		if object.Len() > 1 {
			object.WriteByte(',')
		}
		object.WriteString(`"` + t.ID.String() + `":`)
		object.Write(t.Result)
		last = t.Result
	}
	object.WriteByte('}')
	switch {
	case tasks == 1 && last == nil && !only.State.Final():
		return muster.Errorf(muster.NotFound, "task %s is %s and has no result yet: use muster wait %s", only.ID, only.State, only.ID)
	case last == nil:
		return muster.Errorf(muster.NotFound, "no task of %s has written a result.json", args[0])
	case tasks > 1:
		last = object.Bytes()
	}
	return a.Print(app.OutputOptions{Output: cmp.Or(c.output, "json")}, last, nil, nil)
}
