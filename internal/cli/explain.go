package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/sched"
)

type explainConfig struct {
	remote
	format
}

func (c *explainConfig) flags() []cli.Flag { return slices.Concat(c.format.flags(), c.remote.flags()) }

func (a *app) explainCommand() *cli.Command {
	c := &explainConfig{}
	return a.command(command{
		name: "explain", usage: "say why a task waits, where it could run, and what would let it start", args: "TASK…", category: watch, flags: c.flags(),
		about: "Of a whole job, its first task that has not ended is explained.",
		run:   func(ctx context.Context, args []string) error { return a.explain(ctx, c, args) },
	})
}

func (a *app) explain(ctx context.Context, c *explainConfig, args []string) error {
	server, err := c.connect()
	if err != nil {
		return err
	}
	sels, err := selection(ctx, server, args)
	if err != nil {
		return err
	}
	var all []sched.Explanation
	for _, sel := range sels {
		id, one := sel.task()
		if !one {
			if id, err = firstLive(tasksOf(ctx, server, []selector{sel}, nil)); err != nil {
				return err
			}
		}
		x, err := server.Explain(ctx, id)
		if err != nil {
			return err
		}
		all = append(all, x)
	}
	return showSome(a, c.format, all, func(x sched.Explanation) string { return x.Task.String() }, func(x sched.Explanation) error {
		return a.drawExplanation(x.Task.String(), x, c.wide())
	})
}

// firstLive returns the first task that has not ended, or the first of all.
func firstLive(tasks func(func(muster.Task, error) bool)) (muster.TaskID, error) {
	var first muster.TaskID
	for t, err := range tasks {
		if err != nil {
			return first, err
		}
		if !t.State.Final() {
			return t.ID, nil
		}
		if first.Job == 0 {
			first = t.ID
		}
	}
	return first, nil
}

// explainRows is how many workers are listed unless all are asked for.
const explainRows = 10

// drawExplanation writes an explanation for people. Its name is that of the
// task, or of the stage that a plan is about.
func (a *app) drawExplanation(name string, x sched.Explanation, wide bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %s\n", a.out.Paint(term.Bold, term.Clean(name)), a.out.Paint(stateStyle(x.State.String()), x.State.String()), term.Clean(x.Summary))
	if len(x.Waiting) > 0 {
		fmt.Fprintf(&b, "  waits for  %s\n", term.Clean(strings.Join(x.Waiting, ", ")))
	}
	if x.Position > 0 {
		fmt.Fprintf(&b, "  in line    number %d, %d ahead\n", x.Position, x.Ahead)
	}
	if x.NotUntil != 0 {
		fmt.Fprintf(&b, "  not before %s\n", until(x.NotUntil))
	}
	if x.Start != 0 {
		fmt.Fprintf(&b, "  may start  %s\n", until(x.Start))
	}
	if x.Nearest != "" {
		fmt.Fprintf(&b, "  to help    %s\n", term.Clean(x.Nearest))
	}
	if err := write(a.out, []byte(b.String())); err != nil || len(x.Workers) == 0 {
		return err
	}
	shown := x.Workers
	if !wide {
		shown = shown[:min(len(shown), explainRows)]
	}
	table := term.NewTable(term.Column{Title: "WORKER"}, term.Column{Title: "FITS", Whole: true, Style: fitStyle}, term.Column{Title: "WHY"})
	for _, v := range shown {
		fits := "no"
		if v.Fits {
			fits = "yes"
		}
		table.Row(v.Name, fits, v.Why)
	}
	fmt.Fprintln(a.out)
	if err := table.Draw(a.out); err != nil {
		return err
	}
	if more := len(x.Workers) - len(shown) + x.More; more > 0 {
		a.say("%d more workers are not listed", more)
	}
	return nil
}

func fitStyle(cell string) term.Style {
	if cell == "yes" {
		return term.Green
	}
	return term.Red
}

func until(t muster.Time) string {
	if d := time.Until(t.Std()); d > 0 {
		return fmt.Sprintf("in %s (%s)", term.Elapsed(d), t)
	}
	return t.String()
}
