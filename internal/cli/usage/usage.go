// Package usage implements muster usage, and formats the resource usage of tasks for other commands.
package usage

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

type config struct {
	remote.ServerOptions
	app.OutputOptions
	follow  bool
	attempt int
}

// maxTasks limits the tasks of one command: each is one request.
const maxTasks = 100

// Command returns muster usage.
func Command(a *app.App) *cli.Command {
	c := &config{}
	return a.NewCommand(app.Command{
		Name: "usage", Usage: "Show the CPU, memory, disk, network and GPU usage of tasks", Args: "JOB|TASK…", Complete: c.CompleteSelectors(), Category: app.CategoryWatch,
		Flags: append([]cli.Flag{
			app.Option{Name: "follow", Short: "f", Usage: "Print each sample until the task ends, including later attempts"}.BoolVar(&c.follow),
			app.Option{Name: "attempt", Usage: "Show this attempt (default: the last one)"}.IntVar(&c.attempt, 1, math.MaxInt32),
			app.Option{Name: "output", Short: "o", Value: "format", Usage: "Output format: table, json or yaml; with -f, json prints one line per sample", Group: "Output"}.EnumVar(&c.Output, "table", "json", "yaml"),
		}, c.ServerOptions.Flags()...),
		Description: "Samples are taken every five seconds in the first hour of a task, then less often, down to one per minute. " +
			"Network traffic is that of the whole machine. " +
			"With -o json or yaml, one task is an object and several are a list.",
		Run: func(ctx context.Context, args []string) error { return show(ctx, a, c, args) },
	})
}

// view is the usage of an attempt, with its task.
type view struct {
	client.Series
	task muster.Task
	jobs remote.TaskJobs
}

func show(ctx context.Context, a *app.App, c *config, args []string) error {
	ctx, stop := app.SignalContext(ctx)
	defer stop()
	if c.follow && c.Output == "yaml" {
		return muster.Errorf(muster.Invalid, "-f does not support -o yaml: use -o json")
	}
	server, sels, err := c.Select(ctx, args)
	if err != nil {
		return err
	}
	jobs, err := remote.LoadTaskJobs(ctx, server, sels)
	if err != nil {
		return err
	}
	var views []view
	for t, err := range remote.Tasks(ctx, server, sels, nil) {
		switch {
		case err != nil:
			return err
		case len(views) == maxTasks:
			return muster.Errorf(muster.Invalid, "more than %d tasks: select fewer, or use muster tasks -o wide", maxTasks)
		case c.follow && len(views) == 1:
			return muster.Errorf(muster.Invalid, "-f follows a single task: select one, such as %s", t.ID)
		}
		views = append(views, view{task: t, jobs: jobs})
	}
	if c.follow {
		return follow(ctx, a, c, server, views)
	}
	for i := range views {
		if views[i].Series, err = server.Usage(ctx, views[i].task.ID, c.attempt, 0); err != nil {
			return err
		}
	}
	draw := app.WithBlankLines(a, func(v view) error { return v.draw(a) })
	return app.PrintItems(a, c.OutputOptions, views, func(v view) string { return v.Task.String() }, draw)
}

// draw draws the usage for people.
func (v *view) draw(a *app.App) error {
	now := time.Now()
	f := app.Details{App: a}
	f.Add("task", term.Sanitize(v.jobs.Address(v.Task)))
	f.AddPainted("state", app.StateStyle(v.State.String()), v.State.String())
	if v.Attempt > 1 {
		f.Add("attempt", strconv.Itoa(v.Attempt))
	}
	if v.Attempt == v.task.Attempt {
		f.Add("worker", term.Sanitize(app.WorkerName(v.task.Worker, v.task.WorkerName)))
	}
	if v.Usage != nil && v.Usage.WallSeconds > 0 {
		f.Add("took", term.FormatDuration(seconds(v.Usage.WallSeconds)))
	}
	switch {
	case v.Attempt == 0:
		f.Add("samples", "none: the task has not started")
	case v.Taken == 0 && v.State.Final():
		f.Add("samples", "none: the task ended before its first sample, which is taken after a second")
	case v.Taken == 0:
		f.Add("samples", "none yet")
	case v.State.Final():
		f.Add("samples", strconv.Itoa(v.Taken))
	default:
		f.Add("samples", fmt.Sprintf("%d, the last one %s ago", v.Taken, term.FormatDuration(now.Sub(v.Samples[len(v.Samples)-1].At.Std()))))
	}
	if v.Usage != nil {
		f.Add("energy", FormatEnergy(v.Usage))
		f.Add("cost", FormatCost(v.Usage))
	}
	if err := f.Draw(); err != nil {
		return err
	}
	rows := v.metrics()
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(a.Out)
	return v.table(rows, sparkWidth(a.Out)).Draw(a.Out)
}

// sparkWidth returns the width of a sparkline in columns.
func sparkWidth(s term.Screen) int {
	const maxWidth, otherColumns = 48, 50
	if s.Width == 0 {
		return maxWidth
	}
	return min(maxWidth, max(12, s.Width-otherColumns))
}

func (v *view) table(rows []metric, width int) *term.Table {
	overTitle := ""
	if n := len(v.Samples); n > 1 {
		overTitle = "OVER " + term.FormatDuration(v.Samples[n-1].At.Sub(v.Samples[0].At).Std())
	}
	table := term.NewTable(
		term.Column{Title: "METRIC", NoTruncate: true}, term.Column{Title: "NOW", AlignRight: true, NoTruncate: true}, term.Column{Title: "AVERAGE", AlignRight: true, NoTruncate: true},
		term.Column{Title: "PEAK", AlignRight: true, NoTruncate: true}, term.Column{Title: "TOTAL", AlignRight: true, NoTruncate: true}, term.Column{Title: overTitle},
	)
	for _, r := range rows {
		now := ""
		if n := len(v.Samples); n > 0 && !v.State.Final() && v.Attempt == v.task.Attempt {
			now = formatSample(r, &v.Samples[n-1])
		}
		table.AddRow(r.name, now, r.average, r.formatPeak(v.Samples), r.total, r.spark(v.Samples, width))
	}
	return table
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
