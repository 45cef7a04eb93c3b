// Package bench has the commands about the results of benchmark tasks.
package bench

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
)

// What is compared.
const (
	byThroughput = "throughput"
	byLatency    = "latency"
	byMemory     = "memory"
	byEnergy     = "energy"
)

type config struct {
	remote.Remote
	output  string
	by      string
	parquet string
}

func (c *config) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		frame.Option{Name: "by", Usage: "compare this `FIGURE`: throughput in items a second, latency (the median of a run), memory (the most in use) or energy for an item"}.
			Choice(&c.by, byThroughput, byLatency, byMemory, byEnergy),
		frame.Option{Name: "parquet", Usage: "write all figures to this `FILE`, too, one row for each task, batch size and precision"}.Text(&c.parquet),
		frame.Option{Name: "output", Short: "o", Usage: "write a `FORMAT`: table, json, yaml or csv", Group: "Output"}.Choice(&c.output, "table", "json", "yaml", "csv"),
	}, c.Flags())
}

// commands is one run of the program.
type commands struct{ *frame.App }

// Command returns muster bench.
func Command(app *frame.App) *cli.Command {
	a := &commands{app}
	c := &config{by: byThroughput}
	return a.Command(frame.Command{
		Name: "bench", Usage: "compare what benchmarks measured", Category: frame.Results,
		Commands: []*cli.Command{a.Command(frame.Command{
			Name: "compare", Usage: "compare the results of benchmark tasks", Args: "JOB|TASK…", Flags: c.flags(),
			About: "One row for each batch size and precision, one column for each task, with how much of the first task's figure each has. " +
				"It is said where figures are of different models, inputs or iterations, and so do not compare. " +
				"The exit status is 1 if a job or task that was named measured nothing.",
			Run: func(ctx context.Context, args []string) error { return a.compare(ctx, c, args) },
		})},
	})
}

func (a *commands) compare(ctx context.Context, c *config, args []string) error {
	server, err := c.Connect()
	if err != nil {
		return err
	}
	sels, err := remote.Selection(ctx, server, args)
	if err != nil {
		return err
	}
	var tasks []muster.Task
	for t, err := range remote.TasksOf(ctx, server, sels, nil) {
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(tasks, func(o muster.Task) bool { return o.ID == t.ID }) {
			tasks = append(tasks, t)
		}
	}
	workers, err := server.Workers(ctx)
	if err != nil {
		return err
	}
	all, out := read(tasks, workers)
	if len(all) == 0 {
		return muster.Errorf(muster.NotFound, "there is nothing to compare: %s", out[0])
	}
	if err := a.show(c, all, out); err != nil {
		return err
	}
	if slices.ContainsFunc(sels, func(s remote.Selector) bool { return !measures(&s, all) }) {
		return &frame.StatusError{Status: frame.ExitFailed} // the notes say why
	}
	return nil
}

// measures reports whether what is compared has something of those that were named by one argument.
func measures(s *remote.Selector, all []column) bool {
	return slices.ContainsFunc(all, func(c column) bool { return s.Has(&c.task.ID) })
}

// show writes what was compared, and what to think of it.
func (a *commands) show(c *config, all []column, out []string) error {
	for _, s := range append(out, odds(all)...) {
		a.Say("%s %s", a.Err.Paint(term.Yellow, "note:"), term.Clean(s))
	}
	if c.parquet != "" {
		if err := writeParquet(c.parquet, rows(all)); err != nil {
			return err
		}
	}
	switch c.output {
	case "csv":
		return writeCSV(a.Out, rows(all))
	case "json", "yaml":
		return a.Show(frame.Format{Output: c.output}, rows(all), nil, nil)
	}
	columns := []term.Column{{Title: "BATCH", Right: true, Whole: true}, {Title: "PRECISION", Whole: true}}
	for _, name := range titles(all) {
		columns = append(columns, term.Column{Title: name, Right: true})
	}
	t := term.NewTable(columns...)
	for _, k := range keys(all) {
		cells := []string{strconv.FormatInt(k.batch, 10), k.precision}
		first := figure(c.by, all[0].find(k))
		for i := range all {
			cells = append(cells, drawn(c.by, all[i].find(k), first, i > 0 && all[i].report.Model == all[0].report.Model))
		}
		t.Row(cells...)
	}
	if err := t.Draw(a.Out); err != nil {
		return err
	}
	f := frame.Facts{App: a.App}
	for i, name := range titles(all) {
		f.Add(name, fmt.Sprintf("task %s: %s on %s", all[i].task.ID, all[i].report.Model, all[i].report.Device))
	}
	if err := frame.Write(a.Out, []byte("\n")); err != nil {
		return err
	}
	return f.Draw()
}

// titles names the columns: by worker, and by task, too, where a worker has several.
func titles(all []column) []string {
	names := make([]string, len(all))
	for i := range all {
		names[i] = term.Clean(all[i].worker)
		if slices.ContainsFunc(all, func(o column) bool { return o.worker == all[i].worker && o.task.ID != all[i].task.ID }) {
			names[i] += " " + all[i].task.ID.String()
		}
	}
	return names
}

// figure is what is compared of a combination, nil if it is not there.
func figure(by string, m *measured) *float64 {
	switch {
	case m == nil:
		return nil
	case by == byThroughput:
		return m.Throughput
	case by == byLatency && m.Latency != nil:
		return &m.Latency.P50
	case by == byMemory && m.PeakMemory != nil:
		return new(float64(*m.PeakMemory))
	case by == byEnergy && m.Energy != nil && m.Iterations > 0 && m.BatchSize > 0:
		return new(*m.Energy / float64(m.Iterations*m.BatchSize))
	}
	return nil
}

// drawn writes a figure with its unit, and how much that is of the first.
func drawn(by string, m *measured, first *float64, ratio bool) string {
	v := figure(by, m)
	switch {
	case m == nil:
		return ""
	case m.Error.Reason != "":
		return m.Error.Reason
	case v == nil:
		return "-"
	}
	var s string
	switch by {
	case byLatency:
		s = strconv.FormatFloat(*v, 'g', 4, 64) + " ms"
	case byMemory:
		s = muster.Size(*v).String()
	case byEnergy:
		s = strconv.FormatFloat(*v, 'g', 3, 64) + " J"
	default:
		s = strconv.FormatFloat(*v, 'f', 1, 64) + "/s"
	}
	if ratio && first != nil && *first > 0 {
		s += fmt.Sprintf("  ×%.2f", *v / *first)
	}
	return s
}
