package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

type waitConfig struct {
	remote
	format
	timeout muster.Duration
}

func (c *waitConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		option{name: "timeout", usage: "give up after this `DURATION`, with exit status 124; the jobs go on"}.duration(&c.timeout),
	}, c.format.flags(), c.remote.flags())
}

func (a *app) waitCommand() *cli.Command {
	c := &waitConfig{}
	return a.command(command{
		name: "wait", usage: "wait until jobs or tasks have ended", args: "JOB|TASK…", category: watch, flags: c.flags(),
		about: "The exit status is that of the first one named that did not succeed: its own exit code, " +
			"124 timed out, 125 the fleet's fault, 130 cancelled.",
		run: func(ctx context.Context, args []string) error { return a.wait(ctx, c, args) },
	})
}

// waited is how one selector of wait ended.
type waited struct {
	ID     string `json:"id"`
	State  string `json:"state"`
	Status int    `json:"exit_status"`
}

func (a *app) wait(ctx context.Context, c *waitConfig, args []string) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	server, err := c.connect()
	if err != nil {
		return err
	}
	sels, err := selection(ctx, server, args)
	if err != nil {
		return err
	}
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout.Std())
		defer cancel()
	}
	ended, err := a.waitAll(ctx, server, sels)
	if ctx.Err() == context.DeadlineExceeded { //nolint:errorlint // a context's error is never wrapped
		return &statusError{exitTimedOut, muster.Errorf(muster.Unavailable, "still not ended after %s: %s", c.timeout, unfinished(sels, ended))}
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
	err = a.show(c.format, ended, ids, func() error {
		for _, w := range ended {
			fmt.Fprintf(a.out, "%s %s\n", w.ID, a.out.Paint(stateStyle(w.State), w.State))
		}
		return nil
	})
	if err == nil && status != 0 {
		return &statusError{Status: status}
	}
	return err
}

// waitAll waits for everything at once and shows on a terminal what is missing.
func (a *app) waitAll(ctx context.Context, server *client.Client, sels []selector) ([]waited, error) {
	ended := make([]waited, len(sels))
	var mu sync.Mutex
	began := time.Now()
	line := func() string {
		mu.Lock()
		defer mu.Unlock()
		return fmt.Sprintf("%s  waiting for %s", term.Elapsed(time.Since(began)), unfinished(sels, ended))
	}
	err := a.underway(ctx, line, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(atOnce)
		for i, sel := range sels {
			group.Go(func() error {
				w, err := waitOne(ctx, server, sel)
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

func unfinished(sels []selector, ended []waited) string {
	var left []string
	for i, sel := range sels {
		if ended[i].State == "" {
			left = append(left, sel.String())
		}
	}
	return strings.Join(left, ", ")
}

func waitOne(ctx context.Context, server *client.Client, sel selector) (waited, error) {
	w := waited{ID: sel.String()}
	if sel.Spans == nil {
		job, err := server.Wait(ctx, sel.Job)
		if err != nil {
			return waited{}, err
		}
		w.State = string(job.State)
		w.Status, _, err = jobStatus(ctx, server, job)
		return w, err
	}
	for e, err := range server.Events(ctx, client.EventQuery{Job: sel.Job}) {
		if err != nil {
			return waited{}, err
		}
		if e.Type != muster.EventResync && (e.Type != muster.EventTask || !sel.has(e.Task)) {
			continue
		}
		ended, err := w.look(ctx, server, sel)
		if err != nil {
			return waited{}, err
		}
		if ended {
			return w, nil
		}
	}
	return waited{}, ctx.Err()
}

// look reads the tasks of a selector and reports whether all of them have ended.
func (w *waited) look(ctx context.Context, server *client.Client, sel selector) (bool, error) {
	w.State, w.Status = "", 0
	for t, err := range tasksOf(ctx, server, []selector{sel}, nil) {
		if err != nil || !t.State.Final() {
			return false, err
		}
		if w.State == "" || w.Status == 0 && t.State != muster.Succeeded {
			w.State, w.Status = t.State.String(), taskStatus(&t)
		}
	}
	return true, nil
}

// has reports whether a task is one of those selected.
func (s selector) has(t *muster.TaskID) bool {
	return t != nil && t.Job == s.Job && (s.Spans == nil || slices.ContainsFunc(s.Spans, func(p client.Span) bool {
		return p.First <= t.Num && t.Num <= p.Last
	}))
}

// jobStatus returns the exit status for a job that has ended, and the task that
// decided it: the first one that failed, else the first that timed out, else the first cancelled.
func jobStatus(ctx context.Context, server *client.Client, job muster.Job) (int, *muster.Task, error) {
	for _, s := range []muster.TaskState{muster.Failed, muster.TimedOut, muster.Cancelled} {
		if job.Counts[s] == 0 {
			continue
		}
		for t, err := range server.Tasks(ctx, job.ID, client.TaskQuery{States: []muster.TaskState{s}, Page: 1}) {
			if err != nil {
				return 0, nil, err
			}
			return taskStatus(&t), &t, nil
		}
	}
	if job.State != muster.JobSucceeded {
		return exitFailed, nil, nil
	}
	return 0, nil, nil
}
