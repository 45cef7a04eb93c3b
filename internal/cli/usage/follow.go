package usage

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

// before is how many samples of the past a person sees at first.
const before = 10

// follow writes a line for each sample of a task.
func follow(ctx context.Context, a *frame.App, c *config, server *client.Client, views []view) error {
	if len(views) == 0 {
		return muster.Errorf(muster.NotFound, "there is no such task")
	}
	v := views[0]
	if c.Output == "json" {
		all := client.Series{Task: v.task.ID, Attempt: c.attempt}
		return each(ctx, server, all, c, func(s client.Sample) error {
			line, err := json.Marshal(s)
			if err != nil {
				return fmt.Errorf("encode: %w", err)
			}
			return frame.Write(a.Out, append(line, '\n'))
		})
	}
	var err error
	if v.Series, err = server.Usage(ctx, v.task.ID, c.attempt, 0); err != nil {
		return err
	}
	p := printer{app: a, attempt: v.Attempt, shared: v.task.Grant != nil && v.task.Grant.GPUMemory > 0}
	for _, s := range v.Samples[max(0, len(v.Samples)-before):] {
		if err := p.print(client.Sample{Attempt: v.Attempt, Sample: s}); err != nil {
			return err
		}
	}
	return each(ctx, server, v.Series, c, p.print)
}

func each(ctx context.Context, server *client.Client, from client.Series, c *config, do func(client.Sample) error) error {
	for s, err := range server.Samples(ctx, from, c.attempt > 0) {
		if err == nil {
			err = do(s)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// printer writes samples as lines under titles.
type printer struct {
	app     *frame.App
	attempt int
	shared  bool
	titles  string // those that were written last
}

// cell is one column: its title, its width and what it says of a sample.
type cell struct {
	title string
	width int
	of    figure
}

func (p *printer) cells(devices bool) []cell {
	u := &muster.Usage{}
	f := machineFigures(u)
	cells := []cell{{"CPU", 6, f[0]}, {"MEMORY", 10, f[1]}, {"DISK", 10, f[2]}, {"READ/S", 10, f[3]}, {"WRITE/S", 10, f[4]}, {"THREADS", 7, f[5]}}
	if !devices {
		return cells
	}
	v := view{}
	v.task.Grant = &muster.Grant{}
	if p.shared {
		v.task.Grant.GPUMemory = 1
	}
	g := v.deviceFigures(u)
	return append(cells, cell{"GPU", 4, g[0]}, cell{"VRAM", 10, g[1]}, cell{"°C", 3, g[2]}, cell{"WATTS", 5, g[3]})
}

// print writes a sample; one of the next attempt is announced.
func (p *printer) print(s client.Sample) error {
	if s.Attempt != p.attempt && p.attempt != 0 {
		p.app.Say("muster: it is tried again: attempt %d", s.Attempt)
	}
	p.attempt = s.Attempt
	var titles, line strings.Builder
	titles.WriteString("TIME    ")
	line.WriteString(s.At.Std().Local().Format(time.TimeOnly))
	for _, c := range p.cells(len(s.GPUs) > 0) {
		text := "-"
		if v := c.of.of(&s.Sample); v != nil {
			text = c.of.words(*v)
		}
		titles.WriteString(right(c.title, c.width))
		line.WriteString(right(text, c.width))
	}
	width := p.app.Out.Width
	if titles.String() != p.titles {
		p.titles = titles.String()
		if err := frame.Write(p.app.Out, []byte(p.app.Out.Paint(term.Bold, term.Fit(p.titles, width))+"\n")); err != nil {
			return err
		}
	}
	return frame.Write(p.app.Out, []byte(term.Fit(line.String(), width)+"\n"))
}

// right is a text at the right of a column.
func right(text string, width int) string {
	return "  " + strings.Repeat(" ", max(0, width-term.Width(text))) + text
}
