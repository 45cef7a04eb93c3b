package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

type eventsConfig struct {
	remote.QueryOptions
	types    []string
	states   []string
	progress bool
	noFollow bool
}

func (a *runner) eventsCommand() *cli.Command {
	c := &eventsConfig{}
	c.QuietUsage = "Print only the IDs of jobs, tasks and workers"
	return a.NewCommand(app.Command{
		Name: "events", Usage: "Show changes of jobs, tasks and workers as they happen", Args: "[JOB|TASK…]", Complete: c.CompleteSelectors(), Category: app.CategoryWatch,
		Description: "Without arguments, shows all changes until Ctrl-C. Of jobs, shows changes until they have ended. Of one task, shows its history first.",
		Examples: []app.HelpRow{
			{Name: "muster events 17", Usage: "Show the changes of a job and its tasks"},
			{Name: "muster events 17.3", Usage: "Show what has happened to a task, and what follows"},
			{Name: "muster events --type worker -o json", Usage: "Write changes of workers, one JSON object per line"},
		},
		Flags: c.Flags(
			app.Option{Name: "type", Usage: "Only changes of these: job, task, worker", Complete: app.Values("job", "task", "worker").List()}.ListVar(&c.types),
			app.Option{Name: "state", Usage: "Only changes to these states, such as failed or unreachable", Complete: completeStates}.ListVar(&c.states),
			app.Option{Name: "progress", Usage: "Include the progress of running tasks"}.BoolVar(&c.progress),
			app.Option{Name: "no-follow", Usage: "Show the history of one task and exit"}.BoolVar(&c.noFollow)),
		Run: func(ctx context.Context, args []string) error { return a.events(ctx, c, args) },
	})
}

// completeStates completes states of tasks, jobs and workers.
func completeStates(ctx context.Context, prefix string, args []string) ([]app.Candidate, error) {
	var all []app.Candidate
	for _, c := range []app.Completer{app.States(muster.TaskStates), app.States(muster.JobStates), app.States(workerStates)} {
		some, err := c.List()(ctx, prefix, args)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

func (a *runner) events(ctx context.Context, c *eventsConfig, args []string) error {
	var types []muster.EventType
	for _, t := range c.types {
		if !slices.Contains([]string{"job", "task", "worker"}, t) {
			return muster.Errorf(muster.Invalid, "unknown type %q: use job, task or worker", t)
		}
		types = append(types, muster.EventType(t))
	}
	ctx, stop := app.SignalContext(ctx)
	defer stop()
	server, err := c.Connect()
	if err != nil {
		return err
	}
	var sels []remote.Selector
	if len(args) > 0 {
		if sels, err = remote.ResolveSelectors(ctx, server, args); err != nil {
			return err
		}
	}
	p := &eventPrinter{app: a.App, config: c, server: server, names: map[muster.WorkerID]string{}}
	if len(sels) == 1 {
		if id, ok := sels[0].Task(); ok {
			return ended(ctx, p.followTask(ctx, id))
		}
	}
	if c.noFollow {
		return muster.Errorf(muster.Invalid, "--no-follow needs one task, such as 17.3: only tasks have a history")
	}
	return ended(ctx, p.follow(ctx, sels, types))
}

// ended returns nil if the user ended the command.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // by a signal
	}
	return err
}

// eventPrinter prints events.
type eventPrinter struct {
	app    *app.App
	config *eventsConfig
	server *client.Client
	names  map[muster.WorkerID]string // the ID itself if the name is unknown
}

// follow prints events from now on, until the jobs of sels have ended or ctx ends. Without sels it prints those of everything.
func (p *eventPrinter) follow(ctx context.Context, sels []remote.Selector, types []muster.EventType) error {
	query := client.EventQuery{}
	open := map[muster.JobID]bool{}
	for _, sel := range sels {
		open[sel.Job] = true
	}
	if len(open) == 1 {
		query.Job = sels[0].Job
	}
	if len(types) > 0 {
		query.Types = types
		if len(open) > 0 && !slices.Contains(types, muster.EventJob) {
			query.Types = append(slices.Clone(types), muster.EventJob) // to notice the end
		}
	}
	started := false
	for e, err := range p.server.Events(ctx, query) {
		if err != nil {
			return err
		}
		switch {
		case e.Type == muster.EventResync:
			if started {
				p.app.Warnf("events were missed")
			}
			started = true
			for id := range open {
				job, err := p.server.Job(ctx, id)
				if err != nil {
					return err
				}
				if job.State.Final() {
					p.app.Messagef("job %d has ended: %s", id, job.State)
					delete(open, id)
				}
			}
		case len(sels) > 0 && !selected(sels, &e):
			continue
		default:
			if len(types) == 0 || slices.Contains(types, e.Type) {
				if err := p.print(ctx, &e); err != nil {
					return err
				}
			}
			if e.Type == muster.EventJob && muster.JobState(e.State).Final() {
				delete(open, e.Job)
			}
		}
		if len(sels) > 0 && len(open) == 0 {
			return nil
		}
	}
	return ctx.Err()
}

// selected reports whether an event is about a selected task or its job.
func selected(sels []remote.Selector, e *muster.Event) bool {
	return slices.ContainsFunc(sels, func(s remote.Selector) bool {
		return e.Type == muster.EventJob && e.Job == s.Job || s.Contains(e.Task)
	})
}

// print prints an event unless the options exclude it.
func (p *eventPrinter) print(ctx context.Context, e *muster.Event) error {
	if len(p.config.states) > 0 && !slices.Contains(p.config.states, e.State) {
		return nil
	}
	if isReport(e) && !p.config.progress {
		return nil
	}
	d := cmp.Or(e.Detail, &muster.TaskDetail{})
	subject, detail := e.Job.String(), []string{}
	switch {
	case e.Type == muster.EventWorker:
		subject, detail = string(e.Worker), append(detail, e.Constrained)
	case e.Task != nil:
		subject = e.Task.String()
		if d.Attempt > 1 {
			detail = append(detail, fmt.Sprintf("attempt %d", d.Attempt))
		}
		if d.Progress != nil && isReport(e) {
			detail = append(detail, term.FormatPercent(*d.Progress))
		}
		detail = append(detail, string(d.Reason), d.Step)
	}
	return p.app.PrintLine(p.config.OutputOptions, e, subject, func() error {
		return p.line(ctx, e.At, string(e.Type), subject, e.State, e.Worker, detail...)
	})
}

// isReport reports whether an event is about something that a running task reported, such as its progress.
func isReport(e *muster.Event) bool {
	d := e.Detail
	return d != nil && e.State == muster.Running.String() && (d.Progress != nil || d.Step != "" || len(d.Metrics)+len(d.Artifacts) > 0)
}

// followTask prints the history of a task, and what happens until it has ended.
func (p *eventPrinter) followTask(ctx context.Context, id muster.TaskID) error {
	seen := map[client.TaskEvent]bool{}
	update := func() (bool, error) {
		all, err := p.server.TaskEvents(ctx, id)
		if err != nil {
			return false, err
		}
		finished := false
		for _, e := range all {
			finished = e.Type == client.EventFinished
			if seen[e] {
				continue
			}
			seen[e] = true
			if err := p.printTaskEvent(ctx, id, &e); err != nil {
				return false, err
			}
		}
		return finished, nil
	}
	if p.config.noFollow {
		_, err := update()
		return err
	}
	for e, err := range p.server.Events(ctx, client.EventQuery{Job: id.Job, Types: []muster.EventType{muster.EventTask}}) {
		if err != nil {
			return err
		}
		if e.Type != muster.EventResync && (e.Task == nil || *e.Task != id || isReport(&e)) {
			continue
		}
		if finished, err := update(); err != nil || finished {
			return err
		}
	}
	return ctx.Err()
}

func (p *eventPrinter) printTaskEvent(ctx context.Context, id muster.TaskID, e *client.TaskEvent) error {
	if len(p.config.states) > 0 && !slices.Contains(p.config.states, string(e.Outcome)) && !slices.Contains(p.config.states, e.Type) {
		return nil
	}
	attempt := ""
	if e.Attempt > 0 {
		attempt = fmt.Sprintf("attempt %d", e.Attempt)
	}
	return p.app.PrintLine(p.config.OutputOptions, e, id.String(), func() error {
		return p.line(ctx, e.At, string(muster.EventTask), id.String(), e.Type, e.Worker, attempt, string(e.Outcome), string(e.Reason), app.Headline(e.Message))
	})
}

// line prints an event for people.
func (p *eventPrinter) line(ctx context.Context, at muster.Time, kind, subject, state string, worker muster.WorkerID, detail ...string) error {
	name := p.workerName(ctx, worker)
	if subject == string(worker) {
		subject, name = name, ""
	}
	text := fmt.Sprintf("%s  %-6s  %-10s  %-11s  %-12s  %s", at.Std().Local().Format("2006-01-02 15:04:05"), kind, subject, state, name, strings.Join(app.NonEmpty(detail), ", "))
	return app.WriteOutput(p.app.Out, []byte(strings.TrimRight(term.Sanitize(text), " ")+"\n"))
}

// workerName returns the name of a worker, its ID if that is unknown. It asks the server once for each worker.
func (p *eventPrinter) workerName(ctx context.Context, id muster.WorkerID) string {
	if id == "" || p.names[id] != "" {
		return p.names[id]
	}
	p.names[id] = string(id)
	if w, err := p.server.Worker(ctx, string(id)); err == nil && w.Name != "" {
		p.names[id] = w.Name
	}
	return p.names[id]
}
