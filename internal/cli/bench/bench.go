// Package bench has the commands that compare the results of benchmark tasks.
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

// The metrics.
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

type runner struct{ *app.App }

// Command returns muster bench.
func Command(base *app.App) *cli.Command {
	a := &runner{base}
	c := &config{metric: metricThroughput}
	return a.NewCommand(app.Command{
		Name: "bench", Usage: "Analyze benchmark results", Category: app.CategoryResults,
		Commands: []*cli.Command{a.NewCommand(app.Command{
			Name: "compare", Usage: "Compare the results of benchmark tasks", Args: "JOB|TASK…", Complete: c.CompleteSelectors(),
			Flags: append([]cli.Flag{
				app.Option{Name: "by", Value: "metric", Usage: "Metric: throughput (items per second), latency (median of a run), memory (peak) or energy (per item)"}.
					EnumVar(&c.metric, metricThroughput, metricLatency, metricMemory, metricEnergy),
				app.Option{Name: "parquet", Value: "path", Usage: "Also write all measurements to this file, one row per task, batch size and precision"}.StringVar(&c.parquet),
				app.Option{Name: "output", Short: "o", Value: "format", Usage: "Output format: table, json, yaml or csv", Group: "Output"}.EnumVar(&c.output, "table", "json", "yaml", "csv"),
			}, c.Flags()...),
			Description: "Prints one row per batch size and precision, and one column per task, with the ratio to the first task. " +
				"Notes say which results are not comparable because models, inputs or iterations differ. " +
				"The exit status is 1 if an argument has no measurements.",
			Run: func(ctx context.Context, args []string) error { return a.compare(ctx, c, args) },
		})},
	})
}

func (a *runner) compare(ctx context.Context, c *config, args []string) error {
	server, sels, err := c.Select(ctx, args)
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
		return muster.Errorf(muster.NotFound, "nothing to compare: %s", skipped[0])
	}
	if err := a.render(c, all, skipped); err != nil {
		return err
	}
	if slices.ContainsFunc(sels, func(s remote.Selector) bool { return !hasResults(&s, all) }) {
		return &app.StatusError{Status: app.ExitFailed} // the notes have the reason
	}
	return nil
}

// hasResults reports whether a column is of a selected task.
func hasResults(s *remote.Selector, all []column) bool {
	return slices.ContainsFunc(all, func(c column) bool { return s.Contains(&c.task.ID) })
}

// render writes the comparison and notes.
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

// columnTitles returns the titles of the columns: the worker, and the task if the worker has several.
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

// metricValue returns a metric of a measurement, nil if it is missing.
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

// formatMetric formats a metric with its unit, and its ratio to the first.
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
