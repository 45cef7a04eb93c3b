// Package bench has the commands about the results of benchmark tasks.
package bench

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
)

// What is compared.
const (
	metricThroughput = "throughput"
	metricLatency    = "latency"
	metricMemory     = "memory"
	metricEnergy     = "energy"
)

type config struct {
	remote.ServerOptions
	output  string
	metric  string
	parquet string
}

func (c *config) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		app.Option{Name: "by", Usage: "compare this `FIGURE`: throughput in items a second, latency (the median of a run), memory (the most in use) or energy for an item"}.
			EnumVar(&c.metric, metricThroughput, metricLatency, metricMemory, metricEnergy),
		app.Option{Name: "parquet", Usage: "write all figures to this `FILE`, too, one row for each task, batch size and precision"}.StringVar(&c.parquet),
		app.Option{Name: "output", Short: "o", Usage: "write a `FORMAT`: table, json, yaml or csv", Group: "Output"}.EnumVar(&c.output, "table", "json", "yaml", "csv"),
	}, c.Flags())
}

// runner is one run of the program.
type runner struct{ *app.App }

// Command returns muster bench.
func Command(base *app.App) *cli.Command {
	a := &runner{base}
	c := &config{metric: metricThroughput}
	return a.NewCommand(app.Command{
		Name: "bench", Usage: "compare what benchmarks measured", Category: app.CategoryResults,
		Commands: []*cli.Command{a.NewCommand(app.Command{
			Name: "compare", Usage: "compare the results of benchmark tasks", Args: "JOB|TASK…", Flags: c.flags(),
			Description: "One row for each batch size and precision, one column for each task, with how much of the first task's figure each has. " +
				"It is said where figures are of different models, inputs or iterations, and so do not compare. " +
				"The exit status is 1 if a job or task that was named measured nothing.",
			Run: func(ctx context.Context, args []string) error { return a.compare(ctx, c, args) },
		})},
	})
}

func (a *runner) compare(ctx context.Context, c *config, args []string) error {
	server, err := c.Connect()
	if err != nil {
		return err
	}
	sels, err := remote.ResolveSelectors(ctx, server, args)
	if err != nil {
		return err
	}
	var tasks []muster.Task
	for t, err := range remote.Tasks(ctx, server, sels, nil) {
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
	all, skipped := parseReports(tasks, workers)
	if len(all) == 0 {
		return muster.Errorf(muster.NotFound, "there is nothing to compare: %s", skipped[0])
	}
	if err := a.render(c, all, skipped); err != nil {
		return err
	}
	if slices.ContainsFunc(sels, func(s remote.Selector) bool { return !hasResults(&s, all) }) {
		return &app.StatusError{Status: app.ExitFailed} // the notes say why
	}
	return nil
}

// hasResults reports whether what is compared has something of those that were named by one argument.
func hasResults(s *remote.Selector, all []column) bool {
	return slices.ContainsFunc(all, func(c column) bool { return s.Contains(&c.task.ID) })
}

// render writes what was compared, and what to think of it.
func (a *runner) render(c *config, all []column, skipped []string) error {
	for _, s := range append(skipped, comparabilityNotes(all)...) {
		a.Messagef("%s %s", a.Err.Paint(term.Yellow, "note:"), term.Sanitize(s))
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
		return a.Print(app.OutputOptions{Output: c.output}, rows(all), nil, nil)
	}
	columns := []term.Column{{Title: "BATCH", AlignRight: true, NoTruncate: true}, {Title: "PRECISION", NoTruncate: true}}
	for _, name := range columnTitles(all) {
		columns = append(columns, term.Column{Title: name, AlignRight: true})
	}
	t := term.NewTable(columns...)
	for _, k := range combinations(all) {
		cells := []string{strconv.FormatInt(k.batch, 10), k.precision}
		first := metricValue(c.metric, all[0].find(k))
		for i := range all {
			cells = append(cells, formatMetric(c.metric, all[i].find(k), first, i > 0 && all[i].report.Model == all[0].report.Model))
		}
		t.AddRow(cells...)
	}
	if err := t.Draw(a.Out); err != nil {
		return err
	}
	f := app.Details{App: a.App}
	for i, name := range columnTitles(all) {
		f.Add(name, fmt.Sprintf("task %s: %s on %s", all[i].task.ID, all[i].report.Model, all[i].report.Device))
	}
	if err := app.WriteOutput(a.Out, []byte("\n")); err != nil {
		return err
	}
	return f.Draw()
}

// columnTitles names the columns: by worker, and by task, too, where a worker has several.
func columnTitles(all []column) []string {
	names := make([]string, len(all))
	for i := range all {
		names[i] = term.Sanitize(all[i].worker)
		if slices.ContainsFunc(all, func(o column) bool { return o.worker == all[i].worker && o.task.ID != all[i].task.ID }) {
			names[i] += " " + all[i].task.ID.String()
		}
	}
	return names
}

// metricValue is what is compared of a combination, nil if it is not there.
func metricValue(metric string, m *measurement) *float64 {
	switch {
	case m == nil:
		return nil
	case metric == metricThroughput:
		return m.Throughput
	case metric == metricLatency && m.Latency != nil:
		return &m.Latency.P50
	case metric == metricMemory && m.PeakMemory != nil:
		return new(float64(*m.PeakMemory))
	case metric == metricEnergy && m.Energy != nil && m.Iterations > 0 && m.BatchSize > 0:
		return new(*m.Energy / float64(m.Iterations*m.BatchSize))
	}
	return nil
}

// formatMetric writes a figure with its unit, and how much that is of the first.
func formatMetric(metric string, m *measurement, first *float64, ratio bool) string {
	v := metricValue(metric, m)
	switch {
	case m == nil:
		return ""
	case m.Error.Reason != "":
		return m.Error.Reason
	case v == nil:
		return "-"
	}
	var s string
	switch metric {
	case metricLatency:
		s = strconv.FormatFloat(*v, 'g', 4, 64) + " ms"
	case metricMemory:
		s = muster.Size(*v).String()
	case metricEnergy:
		s = strconv.FormatFloat(*v, 'g', 3, 64) + " J"
	default:
		s = strconv.FormatFloat(*v, 'f', 1, 64) + "/s"
	}
	if ratio && first != nil && *first > 0 {
		s += fmt.Sprintf("  ×%.2f", *v / *first)
	}
	return s
}
