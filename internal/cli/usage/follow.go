package usage

import (
	"context"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

// initialSamples is the number of past samples that follow prints first.
const initialSamples = 10

// follow prints a line for each sample of a task.
func follow(ctx context.Context, a *app.App, c *config, server *client.Client, views []view) error {
	if len(views) == 0 {
		return muster.Errorf(muster.NotFound, "no such task")
	}
	v := views[0]
	if c.Output == "json" {
		all := client.Series{Task: v.task.ID, Attempt: c.attempt}
		return forEachSample(ctx, server, all, c, func(s client.Sample) error {
			return a.PrintLine(c.OutputOptions, s, "", nil)
		})
	}
	var err error
	if v.Series, err = server.Usage(ctx, v.task.ID, c.attempt, 0); err != nil {
		return err
	}
	p := printer{app: a, attempt: v.Attempt, shared: v.task.Grant != nil && v.task.Grant.GPUMemory > 0}
	for _, s := range v.Samples[max(0, len(v.Samples)-initialSamples):] {
		if err := p.print(client.Sample{Attempt: v.Attempt, Sample: s}); err != nil {
			return err
		}
	}
	return forEachSample(ctx, server, v.Series, c, p.print)
}

func forEachSample(ctx context.Context, server *client.Client, series client.Series, c *config, fn func(client.Sample) error) error {
	for s, err := range server.Samples(ctx, series, c.attempt > 0) {
		if err == nil {
			err = fn(s)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// printer prints samples as lines under titles.
type printer struct {
	app     *app.App
	attempt int
	shared  bool
	titles  string // the last printed titles
}

// cell is one column.
type cell struct {
	title  string
	width  int
	metric metric
}

func (p *printer) cells(devices bool) []cell {
	u := &muster.Usage{}
	f := machineMetrics(u)
	cells := []cell{{"CPU", 6, f[0]}, {"MEMORY", 10, f[1]}, {"DISK", 10, f[2]}, {"READ/S", 10, f[3]}, {"WRITE/S", 10, f[4]}, {"THREADS", 7, f[5]}}
	if !devices {
		return cells
	}
	v := view{}
	v.task.Grant = &muster.Grant{}
	if p.shared {
		v.task.Grant.GPUMemory = 1
	}
	g := v.deviceMetrics(u)
	return append(cells, cell{"GPU", 4, g[0]}, cell{"VRAM", 10, g[1]}, cell{"°C", 3, g[2]}, cell{"WATTS", 5, g[3]})
}

// print prints a sample, after a message if the attempt is another one.
func (p *printer) print(s client.Sample) error {
	if s.Attempt != p.attempt && p.attempt != 0 {
		p.app.Messagef("muster: the task was retried: attempt %d", s.Attempt)
	}
	p.attempt = s.Attempt
	var titles, line strings.Builder
	titles.WriteString("TIME    ")
	line.WriteString(s.At.Std().Local().Format(time.TimeOnly))
	for _, c := range p.cells(len(s.GPUs) > 0) {
		text := "-"
		if v := c.metric.value(&s.Sample); v != nil {
			text = c.metric.format(*v)
		}
		titles.WriteString(alignRight(c.title, c.width))
		line.WriteString(alignRight(text, c.width))
	}
	width := p.app.Out.Width
	if titles.String() != p.titles {
		p.titles = titles.String()
		if err := app.WriteOutput(p.app.Out, []byte(p.app.Out.Paint(term.Bold, term.Truncate(p.titles, width))+"\n")); err != nil {
			return err
		}
	}
	return app.WriteOutput(p.app.Out, []byte(term.Truncate(line.String(), width)+"\n"))
}

// alignRight returns a column with the text on the right.
func alignRight(text string, width int) string {
	return "  " + strings.Repeat(" ", max(0, width-term.Width(text))) + text
}
