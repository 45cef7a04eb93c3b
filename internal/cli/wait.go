package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/follow"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

type waitConfig struct {
	remote.QueryOptions
	timeout muster.Duration
}

func (a *runner) waitCommand() *cli.Command {
	c := &waitConfig{}
	return a.NewCommand(app.Command{
		Examples: []app.HelpRow{
			{Name: "muster wait 17 18", Usage: "Wait for two jobs; the exit status is that of the first that fails"},
		},
		Name: "wait", Usage: "Wait until jobs or tasks end", Args: "JOB|TASK…", Complete: c.CompleteSelectors(), Category: app.CategoryWatch,
		Flags: c.Flags(app.Option{Name: "timeout", Usage: "Stop waiting after this time, with exit status 124; the jobs keep running (default: never)"}.DurationVar(&c.timeout)),
		Description: "The exit status is that of the first argument that did not succeed: its exit code, " +
			"124 if it timed out, 125 if the fleet failed, or 130 if it was cancelled.",
		Run: func(ctx context.Context, args []string) error { return a.wait(ctx, c, args) },
	})
}

// waitResult is the outcome of one selector.
type waitResult struct {
	ID     string `json:"id"`
	State  string `json:"state"`
	Status int    `json:"exit_status"`

	name string // as the user gave it
}

func (a *runner) wait(ctx context.Context, c *waitConfig, args []string) error {
	ctx, stop := app.SignalContext(ctx)
	defer stop()
	server, sels, err := c.Select(ctx, args)
	if err != nil {
		return err
	}
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout.Std())
		defer cancel()
	}
	ended, err := a.waitAll(ctx, server, sels)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &app.StatusError{Status: app.ExitTimedOut, Err: muster.Errorf(muster.Unavailable, "timed out after %s, still waiting for %s", c.timeout, unfinished(sels, ended))}
	}
	if err != nil {
		return err
	}
	ids := make([]string, len(ended))
	status := 0
	for i, w := range ended {
		ids[i] = w.ID
		if status == 0 {
			status = w.Status
		}
	}
	err = a.Print(c.OutputOptions, ended, ids, func() error {
		for _, w := range ended {
			if w.Status != 0 && a.Err.Interactive {
				defer a.Messagef("muster retry %s runs what failed again", w.name)
			}
			fmt.Fprintf(a.Out, "%s %s\n", w.name, a.Out.Paint(app.StateStyle(w.State), term.Sanitize(w.State)))
		}
		return nil
	})
	if err == nil && status != 0 {
		return &app.StatusError{Status: status}
	}
	return err
}

// waitAll waits for all selectors concurrently, with the unfinished ones in a status line.
func (a *runner) waitAll(ctx context.Context, server *client.Client, sels []remote.Selector) ([]waitResult, error) {
	ended := make([]waitResult, len(sels))
	var mu sync.Mutex
	started := time.Now()
	line := func() string {
		mu.Lock()
		defer mu.Unlock()
		return fmt.Sprintf("%s  waiting for %s", term.FormatDuration(time.Since(started)), unfinished(sels, ended))
	}
	err := a.RunWithMessages(ctx, line, func(ctx context.Context, messages io.Writer) error {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(follow.MaxConcurrent)
		for i, sel := range sels {
			group.Go(func() error {
				warnCtx, stop := context.WithCancel(ctx)
				var warner sync.WaitGroup
				warner.Go(func() { follow.WarnWaiting(warnCtx, messages, a.Err.Interactive, server, sel.Job) })
				w, err := waitOne(ctx, server, sel)
				stop()
				warner.Wait()
				mu.Lock()
				defer mu.Unlock()
				ended[i] = w
				return err
			})
		}
		return group.Wait()
	})
	return ended, err
}

func unfinished(sels []remote.Selector, ended []waitResult) string {
	var names []string
	for i, sel := range sels {
		if ended[i].State == "" {
			names = append(names, sel.String())
		}
	}
	return strings.Join(names, ", ")
}

func waitOne(ctx context.Context, server *client.Client, sel remote.Selector) (waitResult, error) {
	w := waitResult{ID: sel.IDs(), name: sel.String()}
	if sel.Spans == nil {
		job, err := server.Wait(ctx, sel.Job)
		if err != nil {
			return waitResult{}, err
		}
		w.State = string(job.State)
		w.Status, _, err = follow.JobExitStatus(ctx, server, job)
		return w, err
	}
	for e, err := range server.Events(ctx, client.EventQuery{Job: sel.Job}) {
		if err != nil {
			return waitResult{}, err
		}
		if e.Type != muster.EventResync && (e.Type != muster.EventTask || !sel.Contains(e.Task)) {
			continue
		}
		ended, err := w.refresh(ctx, server, sel)
		if err != nil {
			return waitResult{}, err
		}
		if ended {
			return w, nil
		}
	}
	return waitResult{}, ctx.Err()
}

// refresh reads the tasks of a selector and reports whether all have ended.
func (w *waitResult) refresh(ctx context.Context, server *client.Client, sel remote.Selector) (bool, error) {
	w.State, w.Status = "", 0
	for t, err := range remote.Tasks(ctx, server, []remote.Selector{sel}, nil) {
		if err != nil || !t.State.Final() {
			return false, err
		}
		if w.State == "" || w.Status == 0 && t.State != muster.Succeeded {
			w.State, w.Status = t.State.String(), follow.TaskExitStatus(&t)
		}
	}
	return true, nil
}
