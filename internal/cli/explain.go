package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
)

func (a *runner) explainCommand() *cli.Command {
	c := &remote.QueryOptions{}
	return a.NewCommand(app.Command{
		Name: "explain", Usage: "Explain why tasks wait and where they could run", Args: "JOB|TASK…", Complete: c.CompleteSelectors(), Category: app.CategoryWatch, Flags: c.Flags(),
		Description: "For a job, explains its first unfinished task.",
		Run:         func(ctx context.Context, args []string) error { return a.explain(ctx, c, args) },
	})
}

// explanationView is an explanation with the task's attempts, for people.
type explanationView struct {
	muster.Explanation
	attempts []muster.Attempt
	address  string // of the task
	tasks    string // of the stage, in a plan
}

func (a *runner) explain(ctx context.Context, c *remote.QueryOptions, args []string) error {
	server, sels, err := c.Select(ctx, args)
	if err != nil {
		return err
	}
	var jobs remote.TaskJobs
	if c.Human() {
		if jobs, err = remote.LoadTaskJobs(ctx, server, sels); err != nil {
			return err
		}
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
			x.address = jobs.Address(id)
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

// firstUnfinished returns the first unfinished task, or the first task if all are finished.
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

// maxExplainRows limits the workers of an explanation, except in wide output.
const maxExplainRows = 10

func (a *runner) drawExplanation(x explanationView, wide bool) error {
	name := x.address
	if x.Stage != "" {
		name = x.Stage
	}
	var b strings.Builder
	if x.State.Final() {
		b.WriteString(term.Lines(app.LocalTimes(x.Summary)) + "\n")
		if len(x.attempts) > 1 { // the summary describes the only one
			writeAttempts(&b, x.attempts)
		}
		return app.WriteOutput(a.Out, []byte(b.String()))
	}
	fmt.Fprintf(&b, "%s %s: %s\n", a.Out.Paint(term.Bold, term.Sanitize(name)), a.Out.Paint(app.StateStyle(x.State.String()), x.State.String()), term.Sanitize(app.LocalTimes(x.Summary)))
	if x.tasks != "" {
		fmt.Fprintf(&b, "  tasks      %s\n", term.Sanitize(x.tasks))
	}
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
		fmt.Fprintf(&b, "  to help    %s\n", term.Sanitize(app.LocalTimes(x.Nearest)))
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
		table.AddRow(v.Name, fits, app.LocalTimes(v.Why))
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
