package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
)

type explainConfig struct {
	remote.ServerOptions
	app.OutputOptions
}

func (c *explainConfig) flags() []cli.Flag {
	return slices.Concat(c.OutputOptions.Flags(), c.ServerOptions.Flags())
}

func (a *runner) explainCommand() *cli.Command {
	c := &explainConfig{}
	return a.NewCommand(app.Command{
		Name: "explain", Usage: "say why a task waits, where it could run, and what would let it start", Args: "TASK…", Category: app.CategoryWatch, Flags: c.flags(),
		Description: "Of a whole job, its first task that has not ended is explained.",
		Run:         func(ctx context.Context, args []string) error { return a.explain(ctx, c, args) },
	})
}

// explanationView is an explanation with what was tried already: what people look at.
type explanationView struct {
	muster.Explanation
	attempts []muster.Attempt
}

func (a *runner) explain(ctx context.Context, c *explainConfig, args []string) error {
	server, err := c.Connect()
	if err != nil {
		return err
	}
	sels, err := remote.ResolveSelectors(ctx, server, args)
	if err != nil {
		return err
	}
	var all []explanationView
	for _, sel := range sels {
		id, single := sel.Task()
		if !single {
			if id, err = firstUnfinished(remote.Tasks(ctx, server, []remote.Selector{sel}, nil)); err != nil {
				return err
			}
		}
		var x explanationView
		if x.Explanation, err = server.Explain(ctx, id); err != nil {
			return err
		}
		if c.Human() {
			if x.attempts, err = server.Attempts(ctx, id); err != nil {
				return err
			}
		}
		all = append(all, x)
	}
	return app.PrintItems(a.App, c.OutputOptions, all, func(x explanationView) string { return x.Task.String() }, app.WithBlankLines(a.App, func(x explanationView) error {
		return a.drawExplanation(x, c.Wide())
	}))
}

// firstUnfinished returns the first task that has not ended, or the first of all.
func firstUnfinished(tasks func(func(muster.Task, error) bool)) (muster.TaskID, error) {
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

// maxExplainRows is how many workers are listed unless all are asked for.
const maxExplainRows = 10

// drawExplanation writes an explanation for people.
func (a *runner) drawExplanation(x explanationView, wide bool) error {
	name := x.Task.String()
	if x.Stage != "" {
		name = x.Stage
	}
	var b strings.Builder
	if x.State.Final() {
		b.WriteString(term.Sanitize(x.Summary) + "\n")
		if len(x.attempts) > 1 { // of the only one, the summary has said it
			writeAttempts(&b, x.attempts)
		}
		return app.WriteOutput(a.Out, []byte(b.String()))
	}
	fmt.Fprintf(&b, "%s %s: %s\n", a.Out.Paint(term.Bold, term.Sanitize(name)), a.Out.Paint(app.StateStyle(x.State.String()), x.State.String()), term.Sanitize(x.Summary))
	if len(x.Waiting) > 0 {
		fmt.Fprintf(&b, "  waits for  %s\n", term.Sanitize(strings.Join(x.Waiting, ", ")))
	}
	switch {
	case x.AheadTruncated:
		fmt.Fprintf(&b, "  in line    more than %d ahead\n", x.Ahead)
	case x.Position > 0:
		fmt.Fprintf(&b, "  in line    number %d, %d ahead\n", x.Position, x.Ahead)
	}
	if x.NotUntil != 0 {
		fmt.Fprintf(&b, "  not before %s\n", app.FormatFuture(x.NotUntil))
	}
	if x.Start != 0 {
		fmt.Fprintf(&b, "  may start  %s\n", app.FormatFuture(x.Start))
	}
	if x.Nearest != "" {
		fmt.Fprintf(&b, "  to help    %s\n", term.Sanitize(x.Nearest))
	}
	writeAttempts(&b, x.attempts)
	if err := app.WriteOutput(a.Out, []byte(b.String())); err != nil || len(x.Workers) == 0 {
		return err
	}
	visible := x.Workers
	if !wide {
		visible = visible[:min(len(visible), maxExplainRows)]
	}
	table := term.NewTable(term.Column{Title: "WORKER"}, term.Column{Title: "FITS", NoTruncate: true, Style: fitStyle}, term.Column{Title: "WHY"})
	for _, v := range visible {
		fits := "no"
		if v.Fits {
			fits = "yes"
		}
		table.AddRow(v.Name, fits, v.Why)
	}
	fmt.Fprintln(a.Out)
	if err := table.Draw(a.Out); err != nil {
		return err
	}
	if more := len(x.Workers) - len(visible) + x.More; more > 0 {
		a.Messagef("%d more workers are not listed", more)
	}
	return nil
}

func writeAttempts(b *strings.Builder, attempts []muster.Attempt) {
	for i := range attempts {
		fmt.Fprintf(b, "  attempt %d  %s\n", attempts[i].ID.N, term.Sanitize(app.FormatAttempt(&attempts[i], time.Now())))
	}
}

func fitStyle(cell string) term.Style {
	if cell == "yes" {
		return term.Green
	}
	return term.Red
}
